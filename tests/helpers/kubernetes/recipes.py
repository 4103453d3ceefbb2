"""A job with what AWS's template for recipes on EKS gives every job (launcher/nemo/k8s_templates/training of
https://github.com/aws/sagemaker-hyperpod-recipes, June 2026), and the same numbers as a job of our own."""

from __future__ import annotations

from cdk_hyperpod.kubernetes.manifests import Manifest


def _from_the_node(name: str, path: str, kind: str) -> Manifest:
    return {"name": name, "hostPath": {"path": path, "type": kind}}


_DEVICES = {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}
RECIPE: Manifest = {
    "apiVersion": "sagemaker.amazonaws.com/v1",
    "kind": "HyperPodPyTorchJob",
    "metadata": {"name": "llama-70b", "namespace": "recipes", "labels": {"app": "llama-70b"}},
    "spec": {
        "nprocPerNode": "8",
        "replicaSpecs": [
            {
                "name": "16-nodes",
                "replicas": 16,
                "template": {
                    "spec": {
                        # The label's older name, without a type for nodes that have only the newer one.
                        "nodeSelector": {"beta.kubernetes.io/instance-type": "ml.p5.48xlarge"},
                        "containers": [
                            {
                                "name": "pytorch",
                                "image": "train:1",
                                "securityContext": {"privileged": True},
                                # Devices, and neither CPU nor memory.
                                "resources": {"requests": _DEVICES, "limits": _DEVICES},
                                "volumeMounts": [
                                    {"name": "shm", "mountPath": "/dev/shm"},
                                    {"name": "training-config", "mountPath": "/config"},
                                    {"name": "logs", "mountPath": "/var/log/aws/clusters", "readOnly": True},
                                ],
                            }
                        ],
                        "volumes": [
                            _from_the_node("shm", "/dev/shm", "Directory"),
                            _from_the_node("logs", "/var/log/aws/clusters", "DirectoryOrCreate"),
                            {"name": "training-config", "configMap": {"name": "training-config-llama-70b"}},
                        ],
                    }
                },
            }
        ],
    },
}
"""The template's result for a recipe with 16 nodes of 8 GPUs."""

FROM_THE_RECIPE = (
    *("job", "render", "--name", "llama-70b", "--image", "train:1"),
    # cluster.instance_type, trainer.num_nodes and trainer.devices of the recipe.
    *("--instance-type", "ml.p5.48xlarge", "--nodes", "16", "--nproc-per-node", "8"),
)
"""The same job by `cdk-hyperpod job render`, without the namespace."""

_TRAINING = {
    "HyperPodPyTorchJob": "hyperpodpytorchjobs.sagemaker.amazonaws.com",
    "PyTorchJob": "pytorchjobs.kubeflow.org",
}
RESOURCES = {
    **_TRAINING,
    "RayJob": "rayjobs.ray.io",
    "StatefulSet": "statefulsets.apps",
    "Deployment": "deployments.apps",
    "Job": "jobs.batch",
    "Service": "services",
    "Secret": "secrets",
    "ConfigMap": "configmaps",
}
"""The kinds that the templates of all recipes create, as a Role names them."""
