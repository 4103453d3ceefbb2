import sys
from pathlib import Path

from aws_cdk import App, CrossStackReferences, Environment, ReferenceStrength, Stack
from aws_cdk import aws_iam as iam

from cdk_hyperpod import HyperPodError, load_config
from cdk_hyperpod.stacks import add_stacks

app = App()
try:
    loaded = load_config(Path(__file__).with_name("cluster.yaml"))
    training = add_stacks(app, loaded)
except HyperPodError as error:
    sys.exit(str(error))

# CDK deploys it after the cluster, because it names the cluster. If it fails, nothing of the cluster rolls back.
access = Stack(
    app,
    "hyperpod-own-stacks-access",
    env=Environment(account=loaded.config.account, region=loaded.config.region),
    termination_protection=True,
)
# It reads values of the cluster's stack when it is deployed. An export could not change while it is in use.
CrossStackReferences.of(access).consume(ReferenceStrength.WEAK)

# For a role of the people on call: what `cdk-hyperpod nodes` and `watch` need of the cluster.
iam.ManagedPolicy(
    access,
    "OnCall",
    statements=[
        iam.PolicyStatement(
            actions=[
                "sagemaker:DescribeCluster",
                "sagemaker:DescribeClusterEvent",
                "sagemaker:ListClusterEvents",
                "sagemaker:ListClusterNodes",
            ],
            resources=[training.cluster.cluster_arn],
        )
    ],
)
# For jobs on the compute nodes: a parameter that a release writes, with the image to run.
iam.ManagedPolicy(
    access,
    "ReadImage",
    statements=[
        iam.PolicyStatement(
            actions=["ssm:GetParameter"],
            resources=[access.format_arn(service="ssm", resource="parameter", resource_name="training/image")],
        )
    ],
    roles=[training.cluster.roles["compute"]],
)
app.synth()
