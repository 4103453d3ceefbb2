from aws_cdk import App, Environment, RemovalPolicy, Stack

from cdk_hyperpod import HyperPodCluster, HyperPodNetwork, InstanceGroup, encryption_key

app = App()
stack = Stack(app, "hyperpod-ci", env=Environment(region="us-west-2"), termination_protection=True)
key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
HyperPodCluster(
    stack,
    "Cluster",
    cluster_name="ci",
    network=HyperPodNetwork(stack, "Network", availability_zones=["us-west-2b"], log_encryption_key=key),
    encryption_key=key,
    instance_groups=[
        InstanceGroup(name="controller", node_type="controller", instance_type="ml.m5.xlarge", instance_count=1),
        InstanceGroup(
            name="cpu",
            node_type="compute",
            partition="cpu",
            instance_type="ml.c5.4xlarge",
            instance_count=2,
            min_instance_count=1,
        ),
    ],
)
app.synth()
