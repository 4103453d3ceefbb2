from pathlib import Path

from aws_cdk import App, Environment, Stack

from cdk_hyperpod import HyperPodCluster, HyperPodNetwork, load_config

config = load_config(Path(__file__).parent / "cluster.yaml").config
app = App()
stack = Stack(app, f"hyperpod-{config.name}", env=Environment(region=config.region), termination_protection=True)
HyperPodCluster(
    stack,
    "Cluster",
    cluster_name=config.name,
    network=HyperPodNetwork(stack, "Network", availability_zones=config.network.availability_zones),
    instance_groups=config.instance_groups,
)
app.synth()
