from aws_cdk import App, CrossStackReferences, Environment, ReferenceStrength, Stack

from cdk_hyperpod import (
    EksConfig,
    EksControlPlane,
    HyperPodAddOns,
    HyperPodCluster,
    HyperPodNetwork,
    HyperPodTeams,
    InstanceGroup,
    Team,
    encryption_key,
)

app = App()
env = Environment(region="us-west-2")

nodes = Stack(app, "eks-cluster", env=env)
key = encryption_key(nodes, "Key", removal="destroy")
network = HyperPodNetwork(
    nodes,
    "Network",
    availability_zones=["us-west-2c", "us-west-2a"],
    more_endpoints=["eks", "eks-auth", "lambda"],
    log_encryption_key=key,
)
control_plane = EksControlPlane(
    nodes,
    "Eks",
    cluster_name="eks-example",
    eks_config=EksConfig(dependencies_chart="installed", admin_role_arns=("arn:aws:iam::111122223333:role/admin",)),
    network=network,
    encryption_key=key,
)
cluster = HyperPodCluster(
    nodes,
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
cluster.node.add_dependency(control_plane)

# A stack of its own: an add-on that does not come up must not roll back the nodes.
teams = Stack(app, "eks-cluster-teams", env=env)
teams.add_stack_dependency(nodes)
CrossStackReferences.of(teams).consume(ReferenceStrength.WEAK)
add_ons = HyperPodAddOns(
    teams,
    "AddOns",
    control_plane=control_plane,
    hyperpod_cluster_arn=cluster.cluster_arn,
    encryption_key=key,
    has_file_system=False,
)
HyperPodTeams(
    teams,
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
