from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2

from cdk_hyperpod import HyperPodCluster, HyperPodNetwork, InstanceGroup, LustreFileSystem, SubnetConfig

app = App()
stack = Stack(app, "bring-your-own-vpc", env=Environment(region="us-east-1"), termination_protection=True)

network = HyperPodNetwork(
    stack,
    "Network",
    vpc_id="vpc-0123456789abcdef0",
    subnets=[
        # With the range, synth checks that every node finds an address.
        SubnetConfig(subnet_id="subnet-0123456789abcdef0", availability_zone="us-east-1a", cidr="10.20.0.0/20"),
        SubnetConfig(subnet_id="subnet-0fedcba9876543210", availability_zone="us-east-1b", cidr="10.20.16.0/20"),
    ],
    endpoint_security_group_id="sg-0fedcba9876543210",  # of its interface endpoints; rules let the nodes in
)
file_system = LustreFileSystem.from_attributes(
    stack,
    "FileSystem",
    network=network,
    file_system_id="fs-0123456789abcdef0",
    mount_name="abcdefgh",
    # Rules let the nodes in.
    security_group=ec2.SecurityGroup.from_security_group_id(stack, "Servers", "sg-0123456789abcdef0"),
    availability_zone="us-east-1a",
)
HyperPodCluster(
    stack,
    "Cluster",
    cluster_name="bring-your-own-vpc",
    network=network,
    file_system=file_system,
    instance_groups=[
        InstanceGroup(name="controller", node_type="controller", instance_type="ml.m5.4xlarge", instance_count=1),
        InstanceGroup(name="g6", node_type="compute", partition="g6", instance_type="ml.g6.12xlarge", instance_count=4),
        InstanceGroup(
            name="cpu",
            node_type="compute",
            partition="cpu",
            instance_type="ml.c5.9xlarge",
            instance_count=2,
            availability_zone="us-east-1b",
        ),
    ],
)
app.synth()
