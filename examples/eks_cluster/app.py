from aws_cdk import App, CrossStackReferences, Environment, ReferenceStrength, RemovalPolicy, Stack

from cdk_hyperpod import (
    EksControlPlane,
    HyperPodAddOns,
    HyperPodCluster,
    HyperPodNetwork,
    HyperPodTeams,
    InstanceGroup,
    Team,
    encryption_key,
)
from cdk_hyperpod.config import EksConfig

app = App()
env = Environment(region="us-west-2")

# HyperPod's Helm chart goes into the EKS cluster before the first node, so that the two are not in one stack.
control_plane_stack = Stack(app, "eks-cluster-control-plane", env=env)
key = encryption_key(control_plane_stack, "Key", removal_policy=RemovalPolicy.DESTROY)
network = HyperPodNetwork(
    control_plane_stack,
    "Network",
    availability_zones=["us-west-2c", "us-west-2a"],
    internet_egress=True,
    log_encryption_key=key,
)
control_plane = EksControlPlane(
    control_plane_stack,
    "Eks",
    cluster_name="eks-example",
    eks_config=EksConfig(dependencies_chart="installed", admin_role_arns=("arn:aws:iam::111122223333:role/admin",)),
    network=network,
    encryption_key=key,
)

nodes_stack = Stack(app, "eks-cluster-nodes", env=env)
nodes_stack.add_stack_dependency(control_plane_stack)
# An export could not change while it is in use.
CrossStackReferences.of(nodes_stack).consume(ReferenceStrength.WEAK)
cluster = HyperPodCluster(
    nodes_stack,
    "Cluster",
    cluster_name="eks-example",
    network=network,
    encryption_key=key,
    eks_cluster_arn=control_plane.cluster_arn,
    instance_groups=[
        InstanceGroup(name="system", instance_type="ml.m5.2xlarge", instance_count=2, min_instance_count=2),
        InstanceGroup(name="trn1", instance_type="ml.trn1.32xlarge", instance_count=4, min_instance_count=1),
    ],
)

# A stack of its own: an add-on that does not come up must not roll back the nodes.
teams_stack = Stack(app, "eks-cluster-teams", env=env)
teams_stack.add_stack_dependency(nodes_stack)
CrossStackReferences.of(teams_stack).consume(ReferenceStrength.WEAK)
add_ons = HyperPodAddOns(
    teams_stack,
    "AddOns",
    control_plane=control_plane,
    hyperpod_cluster_arn=cluster.cluster_arn,
    encryption_key=key,
    has_file_system=False,
)
HyperPodTeams(
    teams_stack,
    "Teams",
    control_plane=control_plane,
    cluster_name="eks-example",
    hyperpod_cluster_arn=cluster.cluster_arn,
    teams=[
        Team(
            name="research",
            quota={"ml.trn1.32xlarge": 4},
            role_arns=("arn:aws:iam::111122223333:role/research",),
        )
    ],
    instance_groups=cluster.instance_groups,
    add_ons=list(add_ons.resources.values()),
)
app.synth()
