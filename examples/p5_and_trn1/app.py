from aws_cdk import App, Environment, RemovalPolicy, Stack

from cdk_hyperpod import EbsVolume, HyperPodCluster, HyperPodNetwork, InstanceGroup, LustreFileSystem, encryption_key
from cdk_hyperpod.config import StorageConfig

app = App()
stack = Stack(app, "p5-and-trn1", env=Environment(region="us-west-2"), termination_protection=True)

# GPUs and Trainium are seldom offered in one zone: each group has its own, and EFA stays within it.
P5_ZONE, TRN1_ZONE = "us-west-2c", "us-west-2d"
key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.RETAIN)
network = HyperPodNetwork(stack, "Network", availability_zones=[P5_ZONE, TRN1_ZONE], log_encryption_key=key)
file_system = LustreFileSystem(
    stack, "FileSystem", network=network, encryption_key=key, storage=StorageConfig(capacity_gib=4800)
)

HyperPodCluster(
    stack,
    "Cluster",
    cluster_name="p5-and-trn1",
    network=network,
    file_system=file_system,
    encryption_key=key,
    instance_groups=[
        InstanceGroup(name="controller", node_type="controller", instance_type="ml.m5.4xlarge", instance_count=1),
        InstanceGroup(name="login", node_type="login", instance_type="ml.m5.2xlarge", instance_count=1),
        InstanceGroup(
            name="p5",
            node_type="compute",
            partition="p5",
            instance_type="ml.p5.48xlarge",
            instance_count=8,
            min_instance_count=4,  # work begins with four nodes; HyperPod goes on to launch the rest
            ebs_volumes=(EbsVolume(volume_size_gib=500),),
        ),
        InstanceGroup(
            name="trn1",
            node_type="compute",
            partition="trn1",
            instance_type="ml.trn1.32xlarge",
            instance_count=4,
            min_instance_count=4,  # all or nothing
            availability_zone=TRN1_ZONE,
        ),
    ],
)
app.synth()
