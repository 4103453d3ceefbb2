import sys
from pathlib import Path

from aws_cdk import App, CrossStackReferences, Environment, ReferenceStrength, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_ssm as ssm

from cdk_hyperpod import HyperPodError, load_config
from cdk_hyperpod.stacks import add_stacks

app = App()
try:
    loaded = load_config(Path(__file__).with_name("cluster.yaml"))
    training = add_stacks(app, loaded)
except HyperPodError as error:
    sys.exit(str(error))

# CDK deploys it after the cluster, because it names the cluster. If it fails, nothing of the cluster rolls back.
jobs = Stack(
    app,
    "own-stacks-jobs",
    env=Environment(account=loaded.config.account, region=loaded.config.region),
    termination_protection=True,
)
# It reads values of the cluster's stack when it is deployed. An export could not change while it is in use.
CrossStackReferences.of(jobs).consume(ReferenceStrength.WEAK)

# For other teams' apps.
ssm.StringParameter(
    jobs, "ClusterArn", parameter_name="/training/own-stacks/cluster-arn", string_value=training.cluster.cluster_arn
)
# The image that jobs run. A release changes it without touching the cluster's stacks.
image = ssm.StringParameter(
    jobs, "Image", parameter_name="/training/own-stacks/image", string_value="training:2026-11-26"
)
iam.ManagedPolicy(
    jobs,
    "ReadImage",
    statements=[iam.PolicyStatement(actions=["ssm:GetParameter"], resources=[image.parameter_arn])],
    roles=[training.cluster.roles["compute"]],
)
app.synth()
