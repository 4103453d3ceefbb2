from aws_cdk import App, CfnOutput, Duration, Environment, RemovalPolicy, Stack
from aws_cdk import aws_ecr as ecr

from cdk_hyperpod import encryption_key

app = App()
stack = Stack(app, "elastic-training", env=Environment(region="us-west-2"), termination_protection=True)

images = ecr.Repository(
    stack,
    "Images",
    repository_name="elastic-training",
    encryption=ecr.RepositoryEncryption.KMS,
    encryption_key=encryption_key(stack, "Key", removal_policy=RemovalPolicy.RETAIN),
    image_scan_on_push=True,
    # A replica that joins an hour later pulls the image again: the same tag must be the same code.
    image_tag_mutability=ecr.TagMutability.IMMUTABLE,
    lifecycle_rules=[
        ecr.LifecycleRule(
            description="Parts of pushes that never got a tag",
            tag_status=ecr.TagStatus.UNTAGGED,
            max_image_age=Duration.days(7),
        ),
        # By number and not by age: a job may grow for as long as it runs.
        ecr.LifecycleRule(description="All but the newest", tag_status=ecr.TagStatus.ANY, max_image_count=50),
    ],
)
CfnOutput(stack, "Repository", value=images.repository_uri)
app.synth()
