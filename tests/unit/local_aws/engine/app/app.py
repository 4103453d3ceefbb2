"""A small app with everything that the engine must run for a real app: see the two stacks.

`build(folder)` synthesizes in this process. `denied` removes one action from the permissions of the function that calls
it.
"""

from __future__ import annotations

from pathlib import Path

from aws_cdk import App, CfnOutput, CustomResource, Duration, Environment, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sagemaker as sagemaker
from aws_cdk import aws_ssm as ssm
from aws_cdk import custom_resources as cr
from constructs import Construct

REGION = "us-west-2"
ACTIONS = ("sagemaker:DescribeCluster", "sagemaker:ListClusterNodes")

# Asks for the cluster and its nodes; complete once every node runs.
_ASK = """
import boto3

def on_event(event, context):
    return {"PhysicalResourceId": "asked"}

def is_complete(event, context):
    if event["RequestType"] == "Delete":
        return {"IsComplete": True}
    client, name = boto3.client("sagemaker"), event["ResourceProperties"]["ClusterName"]
    groups = client.describe_cluster(ClusterName=name)["InstanceGroups"]
    nodes = client.list_cluster_nodes(ClusterName=name)["ClusterNodeSummaries"]
    running = sum(node["InstanceStatus"]["Status"] == "Running" for node in nodes)
    wanted = sum(group["TargetCount"] for group in groups)
    return {"IsComplete": True, "Data": {"Running": str(running)}} if running == wanted else {"IsComplete": False}
"""


class FoundationStack(Stack):
    """Network with a NAT gateway and a flow log, key, bucket, and a file system that is linked to it.

    Names are parameters.
    """

    def __init__(self, scope: Construct, name: str) -> None:
        super().__init__(scope, name, env=Environment(region=REGION), termination_protection=True)
        vpc = ec2.Vpc(self, "Vpc", max_azs=1)
        vpc.add_flow_log("FlowLog")
        key = kms.Key(self, "Key", alias=f"alias/{name}", removal_policy=RemovalPolicy.DESTROY)
        bucket = s3.Bucket(self, "Data", removal_policy=RemovalPolicy.DESTROY, auto_delete_objects=True)
        group = ec2.SecurityGroup(self, "Nodes", vpc=vpc, allow_all_outbound=False)
        group.connections.allow_internally(ec2.Port.all_traffic())
        subnet = vpc.private_subnets[0]
        file_system = fsx.CfnFileSystem(
            self,
            "FileSystem",
            file_system_type="LUSTRE",
            storage_capacity=1200,
            subnet_ids=[subnet.subnet_id],
            security_group_ids=[group.security_group_id],
            kms_key_id=key.key_arn,
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type="PERSISTENT_2", per_unit_storage_throughput=125
            ),
        )
        # The rule is a resource of its own, and FSx looks at it.
        file_system.node.add_dependency(group)
        fsx.CfnDataRepositoryAssociation(
            self,
            "Link",
            file_system_id=file_system.ref,
            file_system_path="/data",
            data_repository_path=bucket.s3_url_for_object("data"),
        )
        for parameter, value in (("subnet", subnet.subnet_id), ("group", group.security_group_id)):
            ssm.StringParameter(
                self, f"Parameter{parameter}", parameter_name=f"/{name}/{parameter}", string_value=value
            )


class ClusterStack(Stack):
    """A cluster in that network, and a custom resource that waits for its nodes with the given permissions."""

    def __init__(self, scope: Construct, name: str, foundation: FoundationStack, denied: str | None) -> None:
        super().__init__(scope, name, env=Environment(region=REGION))
        self.add_stack_dependency(foundation)

        def parameter(kind: str) -> str:
            return ssm.StringParameter.value_for_string_parameter(self, f"/{foundation.stack_name}/{kind}")

        role = iam.Role(self, "NodeRole", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))
        cluster = sagemaker.CfnCluster(
            self,
            "Cluster",
            cluster_name=name,
            node_provisioning_mode="Continuous",
            orchestrator=sagemaker.CfnCluster.OrchestratorProperty(slurm={}),
            vpc_config=sagemaker.CfnCluster.VpcConfigProperty(
                subnets=[parameter("subnet")], security_group_ids=[parameter("group")]
            ),
            instance_groups=[
                self._group("controller", 1, role.role_arn, {"nodeType": "Controller"}),
                self._group("workers", 2, role.role_arn, {"nodeType": "Compute", "partitionNames": ["all"]}),
            ],
        )
        waiting = CustomResource(
            self,
            "Asked",
            service_token=self._provider(cluster.attr_cluster_arn, denied).service_token,
            properties={"ClusterName": name},
        )
        waiting.node.add_dependency(cluster)
        CfnOutput(self, "Running", value=waiting.get_att_string("Running"))

    def _group(
        self, name: str, count: int, role: str, slurm: dict[str, object]
    ) -> sagemaker.CfnCluster.ClusterInstanceGroupProperty:
        return sagemaker.CfnCluster.ClusterInstanceGroupProperty(
            instance_group_name=name,
            instance_type="ml.m5.xlarge",
            instance_count=count,
            execution_role=role,
            slurm_config=slurm,
        )

    def _provider(self, cluster_arn: str, denied: str | None) -> cr.Provider:
        def function(handler: str) -> lambda_.Function:
            return lambda_.Function(
                self,
                handler.replace("_", ""),
                runtime=lambda_.Runtime.PYTHON_3_13,
                handler=f"index.{handler}",
                code=lambda_.Code.from_inline(_ASK),
                timeout=Duration.minutes(1),
                log_group=logs.LogGroup(self, f"{handler}Log", removal_policy=RemovalPolicy.DESTROY),
            )

        complete = function("is_complete")
        complete.add_to_role_policy(
            iam.PolicyStatement(actions=[action for action in ACTIONS if action != denied], resources=[cluster_arn])
        )
        return cr.Provider(
            self,
            "Provider",
            on_event_handler=function("on_event"),
            is_complete_handler=complete,
            query_interval=Duration.seconds(1),
            total_timeout=Duration.minutes(2),
        )


def build(folder: Path, *, name: str = "sample", denied: str | None = None) -> Path:
    """The assembly's folder."""
    app = App(outdir=str(folder), analytics_reporting=False)
    ClusterStack(app, f"{name}-cluster", FoundationStack(app, f"{name}-foundation"), denied)
    return Path(app.synth().directory)
