from aws_cdk import App, Environment, RemovalPolicy, Stack

from cdk_hyperpod import HyperPodCluster, HyperPodNetwork, InstanceGroup, encryption_key

app = App()
stack = Stack(app, "smallest-slurm-cluster", env=Environment(region="us-west-2"))
key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
HyperPodCluster(
    stack,
    "Cluster",
    cluster_name="smallest",
    network=HyperPodNetwork(stack, "Network", log_encryption_key=key),
    encryption_key=key,
    instance_groups=[
        InstanceGroup(name="controller", node_type="controller", instance_type="ml.m5.large", instance_count=1),
        InstanceGroup(name="cpu", node_type="compute", partition="cpu", instance_type="ml.m5.large", instance_count=1),
    ],
)
app.synth()
