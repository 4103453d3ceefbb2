"""An app of somebody else: what a platform team writes that has the wheel, and nothing of this repository.

mypy takes it as it stands. pyright does not take CDK's own classes for CDK's interfaces, because parameters have other names
in the one than in the other (aws/aws-cdk#15584), so the lines where an app gives it one say so: no other line may.
"""

from __future__ import annotations

import jsii
from aws_cdk import App, Aspects, CfnResource, Environment, IAspect, RemovalPolicy, Stack, Stage, Tags, pipelines
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sagemaker as sagemaker
from aws_cdk import aws_sns as sns
from constructs import Construct, IConstruct

from cdk_hyperpod import (
    HyperPodCluster,
    HyperPodNetwork,
    IHyperPodCluster,
    InstanceGroup,
    LustreFileSystem,
    ScaleDown,
)
from cdk_hyperpod.config import ScaleDownConfig

ENV = Environment(account="111122223333", region="us-west-2")
HEAD = InstanceGroup(name="head", node_type="controller", instance_type="ml.m5.xlarge", instance_count=1)
LOGIN = InstanceGroup(name="login", node_type="login", instance_type="ml.m5.xlarge", instance_count=1)
P5 = InstanceGroup(
    name="p5",
    node_type="compute",
    partition="p5",
    instance_type="ml.p5.48xlarge",
    instance_count=4,
    min_instance_count=2,
)


class TrainingStack(Stack):
    """In a VPC of the company's, found by its name, with roles and a key of the team's own."""

    def __init__(self, scope: Construct, construct_id: str, *, cluster_name: str, env: Environment) -> None:
        super().__init__(scope, construct_id, env=env, stack_name=cluster_name)
        vpc = ec2.Vpc.from_lookup(self, "Vpc", tags={"Name": "shared"})
        key = kms.Key(self, "Key", enable_key_rotation=True, removal_policy=RemovalPolicy.DESTROY)
        network = HyperPodNetwork(
            self,
            "Network",
            vpc=vpc,
            vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS),
            internet_egress=True,
        )
        nodes = iam.Role(self, "Nodes", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))  # pyright: ignore[reportArgumentType]
        nodes.add_managed_policy(iam.ManagedPolicy.from_aws_managed_policy_name("AmazonSSMManagedInstanceCore"))
        self.cluster = HyperPodCluster(
            self,
            "Cluster",
            cluster_name=cluster_name,
            network=network,
            encryption_key=key,  # pyright: ignore[reportArgumentType]
            roles={"compute": nodes},  # pyright: ignore[reportArgumentType]
            instance_groups=[HEAD, P5],
            scale_down=ScaleDownConfig(nodes_to_delete=("i-0123456789abcdef0",), max_nodes=2),
            node_recovery="automatic",
        )
        self.cluster.add_instance_group(LOGIN)
        s3.Bucket(self, "Datasets").grant_read(self.cluster)
        s3.Bucket(self, "Checkpoints").grant_read_write(self.cluster.roles["compute"])
        table = dynamodb.TableV2(
            self, "Runs", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        )
        table.grant_read_write_data(self.cluster.roles["login"])
        database = ec2.SecurityGroup(self, "Database", vpc=vpc, allow_all_outbound=False)
        database.connections.allow_from(self.cluster, ec2.Port.tcp(5432), "Nodes")
        alarm(self, self.cluster)


def alarm(scope: Construct, cluster: IHyperPodCluster) -> None:
    """Tell the team of nodes that are not well."""
    topic = sns.Topic(scope, "Alarms")
    cluster.on_event("NodeHealth", kinds=["node_health"], target=targets.SnsTopic(topic))  # pyright: ignore[reportArgumentType]


class OnCallStack(Stack):
    """Another team's, which knows the cluster by its attributes."""

    def __init__(self, scope: Construct, construct_id: str, *, env: Environment) -> None:
        super().__init__(scope, construct_id, env=env)
        cluster = HyperPodCluster.from_cluster_attributes(
            self,
            "Cluster",
            cluster_name="training",
            cluster_arn="arn:aws:sagemaker:us-west-2:111122223333:cluster/0123456789ab",
            roles={"compute": iam.Role.from_role_name(self, "Nodes", "training-nodes")},
        )
        alarm(self, cluster)
        logs.MetricFilter(
            self,
            "Failures",
            log_group=cluster.log_group,
            filter_pattern=logs.FilterPattern.literal("failed"),
            metric_namespace="Training",
            metric_name="Failures",
        )


class ResearchStack(Stack):
    """A VPC by attributes, and a file system that both clusters of this company mount."""

    def __init__(self, scope: Construct, construct_id: str, *, env: Environment) -> None:
        super().__init__(scope, construct_id, env=env)
        vpc = ec2.Vpc.from_vpc_attributes(
            self,
            "Vpc",
            vpc_id="vpc-0123456789abcdef0",
            availability_zones=["us-west-2a", "us-west-2b"],
            private_subnet_ids=["subnet-0123456789abcdef0", "subnet-0fedcba9876543210"],
            private_subnet_ipv4_cidr_blocks=["10.0.0.0/18", "10.0.64.0/18"],
        )
        network = HyperPodNetwork(self, "Network", vpc=vpc, internet_egress=True)
        file_system = LustreFileSystem.from_attributes(
            self,
            "FileSystem",
            network=network,
            file_system_id="fs-0123456789abcdef0",
            mount_name="abcdefgh",
            security_group=ec2.SecurityGroup.from_security_group_id(self, "Servers", "sg-0123456789abcdef0"),
        )
        HyperPodCluster(
            self,
            "Cluster",
            cluster_name="research",
            network=network,
            file_system=file_system,
            instance_groups=[HEAD, P5],
            roles={
                "compute": iam.Role.from_role_arn(
                    self, "Nodes", "arn:aws:iam::111122223333:role/research-nodes", mutable=False
                )
            },
        )


class AdoptedStack(Stack):
    """A cluster of CloudFormation's own class, guarded before it has its groups."""

    def __init__(self, scope: Construct, construct_id: str, *, env: Environment) -> None:
        super().__init__(scope, construct_id, env=env)
        cluster = sagemaker.CfnCluster(self, "Cluster", cluster_name="adopted")
        ScaleDown(self, "ScaleDown", cluster=cluster, instance_groups_to_delete=["old"])
        cluster.instance_groups = [
            sagemaker.CfnCluster.ClusterInstanceGroupProperty(
                instance_group_name="workers",
                instance_type="ml.g6.12xlarge",
                instance_count=2,
                execution_role="arn:aws:iam::111122223333:role/adopted",
            )
        ]


@jsii.implements(IAspect)
class AutomaticRecovery:
    """The company's rule: every cluster recovers its nodes. It comes after everything, the guard included."""

    def visit(self, node: IConstruct) -> None:
        if isinstance(node, sagemaker.CfnCluster):
            node.node_recovery = "None" if node.cluster_name == "research" else "Automatic"
        elif isinstance(node, CfnResource) and node.cfn_resource_type == "AWS::KMS::Key":
            node.apply_removal_policy(RemovalPolicy.RETAIN)


def rules_of_the_company(scope: Construct) -> None:
    """What comes after everything; neither tags nor Aspects of an app reach into its stages."""
    Tags.of(scope).add("cost-centre", "4711")
    Aspects.of(scope).add(AutomaticRecovery())


class DeliveryStack(Stack):
    """The pipeline that deploys one cluster after the other, each in a stage of its own."""

    def __init__(self, scope: Construct, construct_id: str, *, env: Environment) -> None:
        super().__init__(scope, construct_id, env=env)
        source = pipelines.CodePipelineSource.connection(
            "company/training",
            "main",
            connection_arn="arn:aws:codeconnections:us-west-2:111122223333:connection/0123abcd",
        )
        synth = pipelines.ShellStep("Synth", input=source, commands=["npm ci", "npx cdk synth"])
        pipeline = pipelines.CodePipeline(self, "Pipeline", synth=synth)
        for name in ("Beta", "Production"):
            stage = Stage(self, name, env=env)
            TrainingStack(stage, "Training", cluster_name=f"training-{name.lower()}", env=env)
            rules_of_the_company(stage)
            pipeline.add_stage(stage)


app = App()
DeliveryStack(app, "Delivery", env=ENV)
ResearchStack(app, "Research", env=ENV)
AdoptedStack(app, "Adopted", env=ENV)
OnCallStack(app, "OnCall", env=ENV)
rules_of_the_company(app)
app.synth()
