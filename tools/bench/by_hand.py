"""The default cluster's resources as plain L1 classes. Made by write_by_hand.py; do not edit."""

# ruff: noqa
# mypy: ignore-errors
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from app import use_project_node

use_project_node()

import aws_cdk as cdk
from aws_cdk import Fn, Stack
from aws_cdk import aws_s3_assets as s3_assets
from aws_cdk import aws_ec2
from aws_cdk import aws_fsx
from aws_cdk import aws_iam
from aws_cdk import aws_kms
from aws_cdk import aws_lambda
from aws_cdk import aws_logs
from aws_cdk import aws_s3
from aws_cdk import aws_sagemaker
from aws_cdk import aws_stepfunctions

app = cdk.App(outdir=os.environ["CDK_OUTDIR"], analytics_reporting=False)
stack = Stack(app, "hyperpod-llm-train-cluster", analytics_reporting=False)
resource = aws_iam.CfnManagedPolicy(
    stack,
    "ClusterComputePolicy5789ED8F",
    description="What the compute nodes of HyperPod cluster llm-train may do",
    policy_document={
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["logs:CreateLogGroup"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":logs:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":log-group:/aws/sagemaker/Clusters/llm-train/*",
                        ],
                    )
                ],
            },
            {
                "Effect": "Allow",
                "Action": ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":logs:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":log-group:/aws/sagemaker/Clusters/llm-train/*:log-stream:*",
                        ],
                    )
                ],
            },
            {
                "Effect": "Allow",
                "Action": ["cloudwatch:PutMetricData"],
                "Resource": ["*"],
                "Condition": {"StringEquals": {"cloudwatch:namespace": "/aws/sagemaker/Clusters"}},
            },
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":s3:::sagemaker-llm-train-",
                            Fn.ref("AWS::AccountId"),
                            "-us-west-2",
                        ],
                    )
                ],
                "Condition": {"StringEquals": {"aws:ResourceAccount": Fn.ref("AWS::AccountId")}},
            },
            {
                "Effect": "Allow",
                "Action": ["s3:GetObject"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":s3:::sagemaker-llm-train-",
                            Fn.ref("AWS::AccountId"),
                            "-us-west-2/lifecycle/*",
                        ],
                    )
                ],
                "Condition": {"StringEquals": {"aws:ResourceAccount": Fn.ref("AWS::AccountId")}},
            },
            {
                "Effect": "Allow",
                "Action": ["kms:Decrypt"],
                "Resource": [
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttKey961B73FDArn43BC6B29",
                            }
                        }
                    )
                ],
                "Condition": {
                    "StringEquals": {"kms:ViaService": Fn.join("", ["s3.us-west-2.", Fn.ref("AWS::URLSuffix")])}
                },
            },
            {
                "Effect": "Allow",
                "Action": [
                    "ssmmessages:CreateControlChannel",
                    "ssmmessages:CreateDataChannel",
                    "ssmmessages:OpenControlChannel",
                    "ssmmessages:OpenDataChannel",
                ],
                "Resource": ["*"],
            },
            {
                "Effect": "Allow",
                "Action": [
                    "ec2:DescribeDhcpOptions",
                    "ec2:DescribeNetworkInterfaces",
                    "ec2:DescribeSecurityGroups",
                    "ec2:DescribeSubnets",
                    "ec2:DescribeVpcs",
                ],
                "Resource": ["*"],
            },
            {
                "Effect": "Allow",
                "Action": ["ec2:CreateNetworkInterface"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":ec2:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":network-interface/*",
                        ],
                    ),
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":ec2:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":security-group/",
                            cdk.Token.as_string(
                                {
                                    "Fn::GetStackOutput": {
                                        "StackName": "hyperpod-llm-train-foundation",
                                        "Region": "us-west-2",
                                        "OutputName": "PublishOutputFnGetAttNetworkNodes04EB8278GroupId74FD3221",
                                    }
                                }
                            ),
                        ],
                    ),
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":ec2:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":subnet/",
                            cdk.Token.as_string(
                                {
                                    "Fn::GetStackOutput": {
                                        "StackName": "hyperpod-llm-train-foundation",
                                        "Region": "us-west-2",
                                        "OutputName": "PublishOutputFnGetAttNetworkPrivateUsWest2cFB9C700DSubnetId33C429E7",
                                    }
                                }
                            ),
                        ],
                    ),
                ],
            },
            {
                "Effect": "Allow",
                "Action": [
                    "ec2:CreateNetworkInterfacePermission",
                    "ec2:CreateTags",
                    "ec2:DeleteNetworkInterface",
                    "ec2:DeleteNetworkInterfacePermission",
                ],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":ec2:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":network-interface/*",
                        ],
                    )
                ],
            },
            {
                "Effect": "Allow",
                "Action": ["ec2:DetachNetworkInterface"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":ec2:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":network-interface/*",
                        ],
                    ),
                    Fn.join("", ["arn:", Fn.ref("AWS::Partition"), ":ec2:us-west-2:*:instance/*"]),
                ],
            },
        ],
    },
)
resource.override_logical_id("ClusterComputePolicy5789ED8F")
resource = aws_iam.CfnRole(
    stack,
    "ClusterComputeRole88D4F7ED",
    assume_role_policy_document={
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "sagemaker.amazonaws.com"}}
        ],
    },
    description="Execution role of the compute nodes of HyperPod cluster llm-train",
    managed_policy_arns=[Fn.ref("ClusterComputePolicy5789ED8F")],
)
resource.override_logical_id("ClusterComputeRole88D4F7ED")
resource = aws_iam.CfnManagedPolicy(
    stack,
    "ClusterControllerPolicy33D62B29",
    description="What the controller nodes of HyperPod cluster llm-train may do",
    policy_document={
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["logs:CreateLogGroup"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":logs:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":log-group:/aws/sagemaker/Clusters/llm-train/*",
                        ],
                    )
                ],
            },
            {
                "Effect": "Allow",
                "Action": ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":logs:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":log-group:/aws/sagemaker/Clusters/llm-train/*:log-stream:*",
                        ],
                    )
                ],
            },
            {
                "Effect": "Allow",
                "Action": ["cloudwatch:PutMetricData"],
                "Resource": ["*"],
                "Condition": {"StringEquals": {"cloudwatch:namespace": "/aws/sagemaker/Clusters"}},
            },
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":s3:::sagemaker-llm-train-",
                            Fn.ref("AWS::AccountId"),
                            "-us-west-2",
                        ],
                    )
                ],
                "Condition": {"StringEquals": {"aws:ResourceAccount": Fn.ref("AWS::AccountId")}},
            },
            {
                "Effect": "Allow",
                "Action": ["s3:GetObject"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":s3:::sagemaker-llm-train-",
                            Fn.ref("AWS::AccountId"),
                            "-us-west-2/lifecycle/*",
                        ],
                    )
                ],
                "Condition": {"StringEquals": {"aws:ResourceAccount": Fn.ref("AWS::AccountId")}},
            },
            {
                "Effect": "Allow",
                "Action": ["kms:Decrypt"],
                "Resource": [
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttKey961B73FDArn43BC6B29",
                            }
                        }
                    )
                ],
                "Condition": {
                    "StringEquals": {"kms:ViaService": Fn.join("", ["s3.us-west-2.", Fn.ref("AWS::URLSuffix")])}
                },
            },
            {
                "Effect": "Allow",
                "Action": [
                    "ssmmessages:CreateControlChannel",
                    "ssmmessages:CreateDataChannel",
                    "ssmmessages:OpenControlChannel",
                    "ssmmessages:OpenDataChannel",
                ],
                "Resource": ["*"],
            },
            {
                "Effect": "Allow",
                "Action": [
                    "ec2:DescribeDhcpOptions",
                    "ec2:DescribeNetworkInterfaces",
                    "ec2:DescribeSecurityGroups",
                    "ec2:DescribeSubnets",
                    "ec2:DescribeVpcs",
                ],
                "Resource": ["*"],
            },
            {
                "Effect": "Allow",
                "Action": ["ec2:CreateNetworkInterface"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":ec2:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":network-interface/*",
                        ],
                    ),
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":ec2:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":security-group/",
                            cdk.Token.as_string(
                                {
                                    "Fn::GetStackOutput": {
                                        "StackName": "hyperpod-llm-train-foundation",
                                        "Region": "us-west-2",
                                        "OutputName": "PublishOutputFnGetAttNetworkNodes04EB8278GroupId74FD3221",
                                    }
                                }
                            ),
                        ],
                    ),
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":ec2:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":subnet/",
                            cdk.Token.as_string(
                                {
                                    "Fn::GetStackOutput": {
                                        "StackName": "hyperpod-llm-train-foundation",
                                        "Region": "us-west-2",
                                        "OutputName": "PublishOutputFnGetAttNetworkPrivateUsWest2cFB9C700DSubnetId33C429E7",
                                    }
                                }
                            ),
                        ],
                    ),
                ],
            },
            {
                "Effect": "Allow",
                "Action": [
                    "ec2:CreateNetworkInterfacePermission",
                    "ec2:CreateTags",
                    "ec2:DeleteNetworkInterface",
                    "ec2:DeleteNetworkInterfacePermission",
                ],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":ec2:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":network-interface/*",
                        ],
                    )
                ],
            },
            {
                "Effect": "Allow",
                "Action": ["ec2:DetachNetworkInterface"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":ec2:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":network-interface/*",
                        ],
                    ),
                    Fn.join("", ["arn:", Fn.ref("AWS::Partition"), ":ec2:us-west-2:*:instance/*"]),
                ],
            },
        ],
    },
)
resource.override_logical_id("ClusterControllerPolicy33D62B29")
resource = aws_iam.CfnRole(
    stack,
    "ClusterControllerRoleEE53E66B",
    assume_role_policy_document={
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "sagemaker.amazonaws.com"}}
        ],
    },
    description="Execution role of the controller nodes of HyperPod cluster llm-train",
    managed_policy_arns=[Fn.ref("ClusterControllerPolicy33D62B29")],
)
resource.override_logical_id("ClusterControllerRoleEE53E66B")
resource = aws_iam.CfnManagedPolicy(
    stack,
    "ClusterLoginPolicyF513AC7D",
    description="What the login nodes of HyperPod cluster llm-train may do",
    policy_document={
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["logs:CreateLogGroup"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":logs:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":log-group:/aws/sagemaker/Clusters/llm-train/*",
                        ],
                    )
                ],
            },
            {
                "Effect": "Allow",
                "Action": ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":logs:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":log-group:/aws/sagemaker/Clusters/llm-train/*:log-stream:*",
                        ],
                    )
                ],
            },
            {
                "Effect": "Allow",
                "Action": ["cloudwatch:PutMetricData"],
                "Resource": ["*"],
                "Condition": {"StringEquals": {"cloudwatch:namespace": "/aws/sagemaker/Clusters"}},
            },
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":s3:::sagemaker-llm-train-",
                            Fn.ref("AWS::AccountId"),
                            "-us-west-2",
                        ],
                    )
                ],
                "Condition": {"StringEquals": {"aws:ResourceAccount": Fn.ref("AWS::AccountId")}},
            },
            {
                "Effect": "Allow",
                "Action": ["s3:GetObject"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":s3:::sagemaker-llm-train-",
                            Fn.ref("AWS::AccountId"),
                            "-us-west-2/lifecycle/*",
                        ],
                    )
                ],
                "Condition": {"StringEquals": {"aws:ResourceAccount": Fn.ref("AWS::AccountId")}},
            },
            {
                "Effect": "Allow",
                "Action": ["kms:Decrypt"],
                "Resource": [
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttKey961B73FDArn43BC6B29",
                            }
                        }
                    )
                ],
                "Condition": {
                    "StringEquals": {"kms:ViaService": Fn.join("", ["s3.us-west-2.", Fn.ref("AWS::URLSuffix")])}
                },
            },
            {
                "Effect": "Allow",
                "Action": [
                    "ssmmessages:CreateControlChannel",
                    "ssmmessages:CreateDataChannel",
                    "ssmmessages:OpenControlChannel",
                    "ssmmessages:OpenDataChannel",
                ],
                "Resource": ["*"],
            },
            {
                "Effect": "Allow",
                "Action": [
                    "ec2:DescribeDhcpOptions",
                    "ec2:DescribeNetworkInterfaces",
                    "ec2:DescribeSecurityGroups",
                    "ec2:DescribeSubnets",
                    "ec2:DescribeVpcs",
                ],
                "Resource": ["*"],
            },
            {
                "Effect": "Allow",
                "Action": ["ec2:CreateNetworkInterface"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":ec2:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":network-interface/*",
                        ],
                    ),
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":ec2:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":security-group/",
                            cdk.Token.as_string(
                                {
                                    "Fn::GetStackOutput": {
                                        "StackName": "hyperpod-llm-train-foundation",
                                        "Region": "us-west-2",
                                        "OutputName": "PublishOutputFnGetAttNetworkNodes04EB8278GroupId74FD3221",
                                    }
                                }
                            ),
                        ],
                    ),
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":ec2:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":subnet/",
                            cdk.Token.as_string(
                                {
                                    "Fn::GetStackOutput": {
                                        "StackName": "hyperpod-llm-train-foundation",
                                        "Region": "us-west-2",
                                        "OutputName": "PublishOutputFnGetAttNetworkPrivateUsWest2cFB9C700DSubnetId33C429E7",
                                    }
                                }
                            ),
                        ],
                    ),
                ],
            },
            {
                "Effect": "Allow",
                "Action": [
                    "ec2:CreateNetworkInterfacePermission",
                    "ec2:CreateTags",
                    "ec2:DeleteNetworkInterface",
                    "ec2:DeleteNetworkInterfacePermission",
                ],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":ec2:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":network-interface/*",
                        ],
                    )
                ],
            },
            {
                "Effect": "Allow",
                "Action": ["ec2:DetachNetworkInterface"],
                "Resource": [
                    Fn.join(
                        "",
                        [
                            "arn:",
                            Fn.ref("AWS::Partition"),
                            ":ec2:us-west-2:",
                            Fn.ref("AWS::AccountId"),
                            ":network-interface/*",
                        ],
                    ),
                    Fn.join("", ["arn:", Fn.ref("AWS::Partition"), ":ec2:us-west-2:*:instance/*"]),
                ],
            },
        ],
    },
)
resource.override_logical_id("ClusterLoginPolicyF513AC7D")
resource = aws_iam.CfnRole(
    stack,
    "ClusterLoginRoleB98EF332",
    assume_role_policy_document={
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "sagemaker.amazonaws.com"}}
        ],
    },
    description="Execution role of the login nodes of HyperPod cluster llm-train",
    managed_policy_arns=[Fn.ref("ClusterLoginPolicyF513AC7D")],
)
resource.override_logical_id("ClusterLoginRoleB98EF332")
resource = aws_sagemaker.CfnCluster(
    stack,
    "ClusterEB0386A7",
    cluster_name="llm-train",
    instance_groups=[
        aws_sagemaker.CfnCluster.ClusterInstanceGroupProperty(
            execution_role=cdk.Token.as_string(Fn.get_att("ClusterControllerRoleEE53E66B", "Arn")),
            instance_count=1,
            instance_group_name="controller",
            instance_storage_configs=[
                aws_sagemaker.CfnCluster.ClusterInstanceStorageConfigProperty(
                    fsx_lustre_config=aws_sagemaker.CfnCluster.ClusterFsxLustreConfigProperty(
                        dns_name=cdk.Token.as_string(
                            {
                                "Fn::GetStackOutput": {
                                    "StackName": "hyperpod-llm-train-foundation",
                                    "Region": "us-west-2",
                                    "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0DNSName3C4BFB85",
                                }
                            }
                        ),
                        mount_name=cdk.Token.as_string(
                            {
                                "Fn::GetStackOutput": {
                                    "StackName": "hyperpod-llm-train-foundation",
                                    "Region": "us-west-2",
                                    "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0LustreMountName31F4D580",
                                }
                            }
                        ),
                        mount_path="/fsx",
                    )
                )
            ],
            instance_type="ml.m5.4xlarge",
            life_cycle_config=aws_sagemaker.CfnCluster.ClusterLifeCycleConfigProperty(
                on_create="controller.sh",
                source_s3_uri=Fn.join(
                    "", ["s3://sagemaker-llm-train-", Fn.ref("AWS::AccountId"), "-us-west-2/lifecycle/cf8a9e270abaf26f"]
                ),
            ),
            min_instance_count=0,
            slurm_config=aws_sagemaker.CfnCluster.ClusterSlurmConfigProperty(node_type="Controller"),
        ),
        aws_sagemaker.CfnCluster.ClusterInstanceGroupProperty(
            execution_role=cdk.Token.as_string(Fn.get_att("ClusterLoginRoleB98EF332", "Arn")),
            instance_count=1,
            instance_group_name="login",
            instance_storage_configs=[
                aws_sagemaker.CfnCluster.ClusterInstanceStorageConfigProperty(
                    fsx_lustre_config=aws_sagemaker.CfnCluster.ClusterFsxLustreConfigProperty(
                        dns_name=cdk.Token.as_string(
                            {
                                "Fn::GetStackOutput": {
                                    "StackName": "hyperpod-llm-train-foundation",
                                    "Region": "us-west-2",
                                    "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0DNSName3C4BFB85",
                                }
                            }
                        ),
                        mount_name=cdk.Token.as_string(
                            {
                                "Fn::GetStackOutput": {
                                    "StackName": "hyperpod-llm-train-foundation",
                                    "Region": "us-west-2",
                                    "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0LustreMountName31F4D580",
                                }
                            }
                        ),
                        mount_path="/fsx",
                    )
                )
            ],
            instance_type="ml.m5.2xlarge",
            life_cycle_config=aws_sagemaker.CfnCluster.ClusterLifeCycleConfigProperty(
                on_create="login.sh",
                source_s3_uri=Fn.join(
                    "", ["s3://sagemaker-llm-train-", Fn.ref("AWS::AccountId"), "-us-west-2/lifecycle/cf8a9e270abaf26f"]
                ),
            ),
            min_instance_count=0,
            slurm_config=aws_sagemaker.CfnCluster.ClusterSlurmConfigProperty(node_type="Login"),
        ),
        aws_sagemaker.CfnCluster.ClusterInstanceGroupProperty(
            execution_role=cdk.Token.as_string(Fn.get_att("ClusterComputeRole88D4F7ED", "Arn")),
            instance_count=8,
            instance_group_name="p5",
            instance_storage_configs=[
                aws_sagemaker.CfnCluster.ClusterInstanceStorageConfigProperty(
                    fsx_lustre_config=aws_sagemaker.CfnCluster.ClusterFsxLustreConfigProperty(
                        dns_name=cdk.Token.as_string(
                            {
                                "Fn::GetStackOutput": {
                                    "StackName": "hyperpod-llm-train-foundation",
                                    "Region": "us-west-2",
                                    "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0DNSName3C4BFB85",
                                }
                            }
                        ),
                        mount_name=cdk.Token.as_string(
                            {
                                "Fn::GetStackOutput": {
                                    "StackName": "hyperpod-llm-train-foundation",
                                    "Region": "us-west-2",
                                    "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0LustreMountName31F4D580",
                                }
                            }
                        ),
                        mount_path="/fsx",
                    )
                )
            ],
            instance_type="ml.p5.48xlarge",
            life_cycle_config=aws_sagemaker.CfnCluster.ClusterLifeCycleConfigProperty(
                on_create="compute.sh",
                source_s3_uri=Fn.join(
                    "", ["s3://sagemaker-llm-train-", Fn.ref("AWS::AccountId"), "-us-west-2/lifecycle/cf8a9e270abaf26f"]
                ),
            ),
            min_instance_count=4,
            slurm_config=aws_sagemaker.CfnCluster.ClusterSlurmConfigProperty(
                node_type="Compute", partition_names=["p5"]
            ),
        ),
        aws_sagemaker.CfnCluster.ClusterInstanceGroupProperty(
            execution_role=cdk.Token.as_string(Fn.get_att("ClusterComputeRole88D4F7ED", "Arn")),
            instance_count=4,
            instance_group_name="trn1",
            instance_storage_configs=[
                aws_sagemaker.CfnCluster.ClusterInstanceStorageConfigProperty(
                    fsx_lustre_config=aws_sagemaker.CfnCluster.ClusterFsxLustreConfigProperty(
                        dns_name=cdk.Token.as_string(
                            {
                                "Fn::GetStackOutput": {
                                    "StackName": "hyperpod-llm-train-foundation",
                                    "Region": "us-west-2",
                                    "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0DNSName3C4BFB85",
                                }
                            }
                        ),
                        mount_name=cdk.Token.as_string(
                            {
                                "Fn::GetStackOutput": {
                                    "StackName": "hyperpod-llm-train-foundation",
                                    "Region": "us-west-2",
                                    "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0LustreMountName31F4D580",
                                }
                            }
                        ),
                        mount_path="/fsx",
                    )
                )
            ],
            instance_type="ml.trn1.32xlarge",
            life_cycle_config=aws_sagemaker.CfnCluster.ClusterLifeCycleConfigProperty(
                on_create="compute.sh",
                source_s3_uri=Fn.join(
                    "", ["s3://sagemaker-llm-train-", Fn.ref("AWS::AccountId"), "-us-west-2/lifecycle/cf8a9e270abaf26f"]
                ),
            ),
            min_instance_count=4,
            slurm_config=aws_sagemaker.CfnCluster.ClusterSlurmConfigProperty(
                node_type="Compute", partition_names=["trn1"]
            ),
        ),
    ],
    node_provisioning_mode="Continuous",
    node_recovery="Automatic",
    orchestrator=aws_sagemaker.CfnCluster.OrchestratorProperty(
        slurm=aws_sagemaker.CfnCluster.ClusterOrchestratorSlurmConfigProperty()
    ),
    tags=[
        cdk.CfnTag(key="cdk-hyperpod:foundation", value="55bdd280f8c84458"),
        cdk.CfnTag(key="cdk-hyperpod:stack-id", value=Fn.ref("AWS::StackId")),
    ],
    vpc_config=aws_sagemaker.CfnCluster.VpcConfigProperty(
        security_group_ids=[
            cdk.Token.as_string(
                {
                    "Fn::GetStackOutput": {
                        "StackName": "hyperpod-llm-train-foundation",
                        "Region": "us-west-2",
                        "OutputName": "PublishOutputFnGetAttNetworkNodes04EB8278GroupId74FD3221",
                    }
                }
            )
        ],
        subnets=[
            cdk.Token.as_string(
                {
                    "Fn::GetStackOutput": {
                        "StackName": "hyperpod-llm-train-foundation",
                        "Region": "us-west-2",
                        "OutputName": "PublishOutputFnGetAttNetworkPrivateUsWest2cFB9C700DSubnetId33C429E7",
                    }
                }
            )
        ],
    ),
)
resource.override_logical_id("ClusterEB0386A7")
resource = aws_iam.CfnRole(
    stack,
    "ScaleDownRole49059B0B",
    assume_role_policy_document={
        "Statement": [
            {"Action": "sts:AssumeRole", "Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}}
        ],
        "Version": "2012-10-17",
    },
    description="Takes nodes and instance groups of HyperPod cluster llm-train",
)
resource.override_logical_id("ScaleDownRole49059B0B")
resource = aws_logs.CfnLogGroup(
    stack,
    "ScaleDownOnEventLogB8891FE1",
    kms_key_id=cdk.Token.as_string(
        {
            "Fn::GetStackOutput": {
                "StackName": "hyperpod-llm-train-foundation",
                "Region": "us-west-2",
                "OutputName": "PublishOutputFnGetAttKey961B73FDArn43BC6B29",
            }
        }
    ),
    retention_in_days=365,
)
resource.override_logical_id("ScaleDownOnEventLogB8891FE1")
resource = aws_lambda.CfnFunction(
    stack,
    "ScaleDownOnEventD5F49163",
    architectures=["arm64"],
    code=aws_lambda.CfnFunction.CodeProperty(
        s3_bucket=Fn.sub("cdk-hnb659fds-assets-${AWS::AccountId}-us-west-2"),
        s3_key="cd874ade72efa8962397dcf224ee2fd59eba8e935ff3d68f57c76cbd8ebad53e.zip",
    ),
    description="Scaling down HyperPod cluster llm-train",
    function_name="hyperpod-llm-train-cluster-efbe141d-onevent",
    handler="hyperpod_provider.handler.on_event",
    logging_config=aws_lambda.CfnFunction.LoggingConfigProperty(log_group=Fn.ref("ScaleDownOnEventLogB8891FE1")),
    memory_size=512,
    role=cdk.Token.as_string(Fn.get_att("ScaleDownRole49059B0B", "Arn")),
    runtime="python3.14",
    timeout=300,
)
resource.override_logical_id("ScaleDownOnEventD5F49163")
resource = aws_logs.CfnLogGroup(
    stack,
    "ScaleDownIsCompleteLogCD0520FB",
    kms_key_id=cdk.Token.as_string(
        {
            "Fn::GetStackOutput": {
                "StackName": "hyperpod-llm-train-foundation",
                "Region": "us-west-2",
                "OutputName": "PublishOutputFnGetAttKey961B73FDArn43BC6B29",
            }
        }
    ),
    retention_in_days=365,
)
resource.override_logical_id("ScaleDownIsCompleteLogCD0520FB")
resource = aws_lambda.CfnFunction(
    stack,
    "ScaleDownIsComplete17173078",
    architectures=["arm64"],
    code=aws_lambda.CfnFunction.CodeProperty(
        s3_bucket=Fn.sub("cdk-hnb659fds-assets-${AWS::AccountId}-us-west-2"),
        s3_key="cd874ade72efa8962397dcf224ee2fd59eba8e935ff3d68f57c76cbd8ebad53e.zip",
    ),
    description="Scaling down HyperPod cluster llm-train",
    function_name="hyperpod-llm-train-cluster-efbe141d-iscomplete",
    handler="hyperpod_provider.handler.is_complete",
    logging_config=aws_lambda.CfnFunction.LoggingConfigProperty(log_group=Fn.ref("ScaleDownIsCompleteLogCD0520FB")),
    memory_size=512,
    role=cdk.Token.as_string(Fn.get_att("ScaleDownRole49059B0B", "Arn")),
    runtime="python3.14",
    timeout=300,
)
resource.override_logical_id("ScaleDownIsComplete17173078")
resource = aws_iam.CfnManagedPolicy(
    stack,
    "ScaleDownReading0D9B83DC",
    description="Reading, for scaling down HyperPod cluster llm-train",
    policy_document={
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["sagemaker:DescribeCluster", "sagemaker:ListClusterNodes", "sagemaker:ListTags"],
                "Resource": Fn.join(
                    "",
                    ["arn:", Fn.ref("AWS::Partition"), ":sagemaker:us-west-2:", Fn.ref("AWS::AccountId"), ":cluster/*"],
                ),
            },
            {
                "Effect": "Allow",
                "Action": ["cloudformation:DescribeStackEvents", "cloudformation:DescribeStacks"],
                "Resource": Fn.ref("AWS::StackId"),
            },
            {
                "Effect": "Allow",
                "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
                "Resource": [
                    cdk.Token.as_string(Fn.get_att("ScaleDownOnEventLogB8891FE1", "Arn")),
                    cdk.Token.as_string(Fn.get_att("ScaleDownIsCompleteLogCD0520FB", "Arn")),
                ],
            },
        ],
    },
    roles=[Fn.ref("ScaleDownRole49059B0B")],
)
resource.override_logical_id("ScaleDownReading0D9B83DC")
resource = aws_logs.CfnLogGroup(
    stack,
    "ScaleDownFrameworkLog59E52B79",
    kms_key_id=cdk.Token.as_string(
        {
            "Fn::GetStackOutput": {
                "StackName": "hyperpod-llm-train-foundation",
                "Region": "us-west-2",
                "OutputName": "PublishOutputFnGetAttKey961B73FDArn43BC6B29",
            }
        }
    ),
    retention_in_days=365,
)
resource.override_logical_id("ScaleDownFrameworkLog59E52B79")
resource = aws_iam.CfnRole(
    stack,
    "ScaleDownProviderframeworkonEventServiceRoleC89F03C6",
    assume_role_policy_document={
        "Statement": [
            {"Action": "sts:AssumeRole", "Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}}
        ],
        "Version": "2012-10-17",
    },
    managed_policy_arns=[
        Fn.join("", ["arn:", Fn.ref("AWS::Partition"), ":iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"])
    ],
)
resource.override_logical_id("ScaleDownProviderframeworkonEventServiceRoleC89F03C6")
resource = aws_iam.CfnPolicy(
    stack,
    "ScaleDownProviderframeworkonEventServiceRoleDefaultPolicyE6016FED",
    policy_document={
        "Statement": [
            {
                "Action": "lambda:InvokeFunction",
                "Effect": "Allow",
                "Resource": [
                    cdk.Token.as_string(Fn.get_att("ScaleDownIsComplete17173078", "Arn")),
                    cdk.Token.as_string(Fn.get_att("ScaleDownOnEventD5F49163", "Arn")),
                    Fn.join("", [cdk.Token.as_string(Fn.get_att("ScaleDownIsComplete17173078", "Arn")), ":*"]),
                    Fn.join("", [cdk.Token.as_string(Fn.get_att("ScaleDownOnEventD5F49163", "Arn")), ":*"]),
                ],
            },
            {
                "Action": "lambda:GetFunction",
                "Effect": "Allow",
                "Resource": [
                    cdk.Token.as_string(Fn.get_att("ScaleDownIsComplete17173078", "Arn")),
                    cdk.Token.as_string(Fn.get_att("ScaleDownOnEventD5F49163", "Arn")),
                ],
            },
            {
                "Action": "states:StartExecution",
                "Effect": "Allow",
                "Resource": Fn.ref("ScaleDownProviderwaiterstatemachineF62990DE"),
            },
        ],
        "Version": "2012-10-17",
    },
    policy_name="ScaleDownProviderframeworkonEventServiceRoleDefaultPolicyE6016FED",
    roles=[Fn.ref("ScaleDownProviderframeworkonEventServiceRoleC89F03C6")],
)
resource.override_logical_id("ScaleDownProviderframeworkonEventServiceRoleDefaultPolicyE6016FED")
resource = aws_lambda.CfnFunction(
    stack,
    "ScaleDownProviderframeworkonEvent9CA91BC0",
    code=aws_lambda.CfnFunction.CodeProperty(
        s3_bucket=Fn.sub("cdk-hnb659fds-assets-${AWS::AccountId}-us-west-2"),
        s3_key="e16ffb3b34af185b8b30c88fdb19faa13b6c42bb38580485c4e84b384ee48b63.zip",
    ),
    description="AWS CDK resource provider framework - onEvent (hyperpod-llm-train-cluster/ScaleDown/Provider)",
    environment=aws_lambda.CfnFunction.EnvironmentProperty(
        variables={
            "USER_ON_EVENT_FUNCTION_ARN": cdk.Token.as_string(Fn.get_att("ScaleDownOnEventD5F49163", "Arn")),
            "USER_IS_COMPLETE_FUNCTION_ARN": cdk.Token.as_string(Fn.get_att("ScaleDownIsComplete17173078", "Arn")),
            "WAITER_STATE_MACHINE_ARN": Fn.ref("ScaleDownProviderwaiterstatemachineF62990DE"),
            "NODE_OPTIONS": "--stack-trace-limit=0",
        }
    ),
    function_name="hyperpod-llm-train-cluster-efbe141d-provider",
    handler="framework.onEvent",
    logging_config=aws_lambda.CfnFunction.LoggingConfigProperty(
        application_log_level="FATAL", log_format="JSON", log_group=Fn.ref("ScaleDownFrameworkLog59E52B79")
    ),
    role=cdk.Token.as_string(Fn.get_att("ScaleDownProviderframeworkonEventServiceRoleC89F03C6", "Arn")),
    runtime="nodejs24.x",
    timeout=900,
)
resource.override_logical_id("ScaleDownProviderframeworkonEvent9CA91BC0")
resource = aws_iam.CfnRole(
    stack,
    "ScaleDownProviderframeworkisCompleteServiceRole070FD3D4",
    assume_role_policy_document={
        "Statement": [
            {"Action": "sts:AssumeRole", "Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}}
        ],
        "Version": "2012-10-17",
    },
    managed_policy_arns=[
        Fn.join("", ["arn:", Fn.ref("AWS::Partition"), ":iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"])
    ],
)
resource.override_logical_id("ScaleDownProviderframeworkisCompleteServiceRole070FD3D4")
resource = aws_iam.CfnPolicy(
    stack,
    "ScaleDownProviderframeworkisCompleteServiceRoleDefaultPolicyC2653F93",
    policy_document={
        "Statement": [
            {
                "Action": "lambda:InvokeFunction",
                "Effect": "Allow",
                "Resource": [
                    cdk.Token.as_string(Fn.get_att("ScaleDownIsComplete17173078", "Arn")),
                    cdk.Token.as_string(Fn.get_att("ScaleDownOnEventD5F49163", "Arn")),
                    Fn.join("", [cdk.Token.as_string(Fn.get_att("ScaleDownIsComplete17173078", "Arn")), ":*"]),
                    Fn.join("", [cdk.Token.as_string(Fn.get_att("ScaleDownOnEventD5F49163", "Arn")), ":*"]),
                ],
            },
            {
                "Action": "lambda:GetFunction",
                "Effect": "Allow",
                "Resource": [
                    cdk.Token.as_string(Fn.get_att("ScaleDownIsComplete17173078", "Arn")),
                    cdk.Token.as_string(Fn.get_att("ScaleDownOnEventD5F49163", "Arn")),
                ],
            },
        ],
        "Version": "2012-10-17",
    },
    policy_name="ScaleDownProviderframeworkisCompleteServiceRoleDefaultPolicyC2653F93",
    roles=[Fn.ref("ScaleDownProviderframeworkisCompleteServiceRole070FD3D4")],
)
resource.override_logical_id("ScaleDownProviderframeworkisCompleteServiceRoleDefaultPolicyC2653F93")
resource = aws_lambda.CfnFunction(
    stack,
    "ScaleDownProviderframeworkisCompleteC5CD4F08",
    code=aws_lambda.CfnFunction.CodeProperty(
        s3_bucket=Fn.sub("cdk-hnb659fds-assets-${AWS::AccountId}-us-west-2"),
        s3_key="e16ffb3b34af185b8b30c88fdb19faa13b6c42bb38580485c4e84b384ee48b63.zip",
    ),
    description="AWS CDK resource provider framework - isComplete (hyperpod-llm-train-cluster/ScaleDown/Provider)",
    environment=aws_lambda.CfnFunction.EnvironmentProperty(
        variables={
            "USER_ON_EVENT_FUNCTION_ARN": cdk.Token.as_string(Fn.get_att("ScaleDownOnEventD5F49163", "Arn")),
            "USER_IS_COMPLETE_FUNCTION_ARN": cdk.Token.as_string(Fn.get_att("ScaleDownIsComplete17173078", "Arn")),
            "NODE_OPTIONS": "--stack-trace-limit=0",
        }
    ),
    handler="framework.isComplete",
    logging_config=aws_lambda.CfnFunction.LoggingConfigProperty(
        application_log_level="FATAL", log_format="JSON", log_group=Fn.ref("ScaleDownFrameworkLog59E52B79")
    ),
    role=cdk.Token.as_string(Fn.get_att("ScaleDownProviderframeworkisCompleteServiceRole070FD3D4", "Arn")),
    runtime="nodejs24.x",
    timeout=900,
)
resource.override_logical_id("ScaleDownProviderframeworkisCompleteC5CD4F08")
resource = aws_iam.CfnRole(
    stack,
    "ScaleDownProviderframeworkonTimeoutServiceRoleEC0823DB",
    assume_role_policy_document={
        "Statement": [
            {"Action": "sts:AssumeRole", "Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}}
        ],
        "Version": "2012-10-17",
    },
    managed_policy_arns=[
        Fn.join("", ["arn:", Fn.ref("AWS::Partition"), ":iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"])
    ],
)
resource.override_logical_id("ScaleDownProviderframeworkonTimeoutServiceRoleEC0823DB")
resource = aws_iam.CfnPolicy(
    stack,
    "ScaleDownProviderframeworkonTimeoutServiceRoleDefaultPolicy49FD82E3",
    policy_document={
        "Statement": [
            {
                "Action": "lambda:InvokeFunction",
                "Effect": "Allow",
                "Resource": [
                    cdk.Token.as_string(Fn.get_att("ScaleDownIsComplete17173078", "Arn")),
                    cdk.Token.as_string(Fn.get_att("ScaleDownOnEventD5F49163", "Arn")),
                    Fn.join("", [cdk.Token.as_string(Fn.get_att("ScaleDownIsComplete17173078", "Arn")), ":*"]),
                    Fn.join("", [cdk.Token.as_string(Fn.get_att("ScaleDownOnEventD5F49163", "Arn")), ":*"]),
                ],
            },
            {
                "Action": "lambda:GetFunction",
                "Effect": "Allow",
                "Resource": [
                    cdk.Token.as_string(Fn.get_att("ScaleDownIsComplete17173078", "Arn")),
                    cdk.Token.as_string(Fn.get_att("ScaleDownOnEventD5F49163", "Arn")),
                ],
            },
        ],
        "Version": "2012-10-17",
    },
    policy_name="ScaleDownProviderframeworkonTimeoutServiceRoleDefaultPolicy49FD82E3",
    roles=[Fn.ref("ScaleDownProviderframeworkonTimeoutServiceRoleEC0823DB")],
)
resource.override_logical_id("ScaleDownProviderframeworkonTimeoutServiceRoleDefaultPolicy49FD82E3")
resource = aws_lambda.CfnFunction(
    stack,
    "ScaleDownProviderframeworkonTimeout02C65EDA",
    code=aws_lambda.CfnFunction.CodeProperty(
        s3_bucket=Fn.sub("cdk-hnb659fds-assets-${AWS::AccountId}-us-west-2"),
        s3_key="e16ffb3b34af185b8b30c88fdb19faa13b6c42bb38580485c4e84b384ee48b63.zip",
    ),
    description="AWS CDK resource provider framework - onTimeout (hyperpod-llm-train-cluster/ScaleDown/Provider)",
    environment=aws_lambda.CfnFunction.EnvironmentProperty(
        variables={
            "USER_ON_EVENT_FUNCTION_ARN": cdk.Token.as_string(Fn.get_att("ScaleDownOnEventD5F49163", "Arn")),
            "USER_IS_COMPLETE_FUNCTION_ARN": cdk.Token.as_string(Fn.get_att("ScaleDownIsComplete17173078", "Arn")),
            "NODE_OPTIONS": "--stack-trace-limit=0",
        }
    ),
    handler="framework.onTimeout",
    logging_config=aws_lambda.CfnFunction.LoggingConfigProperty(
        application_log_level="FATAL", log_format="JSON", log_group=Fn.ref("ScaleDownFrameworkLog59E52B79")
    ),
    role=cdk.Token.as_string(Fn.get_att("ScaleDownProviderframeworkonTimeoutServiceRoleEC0823DB", "Arn")),
    runtime="nodejs24.x",
    timeout=900,
)
resource.override_logical_id("ScaleDownProviderframeworkonTimeout02C65EDA")
resource = aws_iam.CfnRole(
    stack,
    "ScaleDownProviderwaiterstatemachineRole1894445B",
    assume_role_policy_document={
        "Statement": [
            {"Action": "sts:AssumeRole", "Effect": "Allow", "Principal": {"Service": "states.amazonaws.com"}}
        ],
        "Version": "2012-10-17",
    },
)
resource.override_logical_id("ScaleDownProviderwaiterstatemachineRole1894445B")
resource = aws_iam.CfnPolicy(
    stack,
    "ScaleDownProviderwaiterstatemachineRoleDefaultPolicy6AC1DEC0",
    policy_document={
        "Statement": [
            {
                "Action": "lambda:InvokeFunction",
                "Effect": "Allow",
                "Resource": [
                    cdk.Token.as_string(Fn.get_att("ScaleDownProviderframeworkisCompleteC5CD4F08", "Arn")),
                    cdk.Token.as_string(Fn.get_att("ScaleDownProviderframeworkonTimeout02C65EDA", "Arn")),
                    Fn.join(
                        "",
                        [cdk.Token.as_string(Fn.get_att("ScaleDownProviderframeworkisCompleteC5CD4F08", "Arn")), ":*"],
                    ),
                    Fn.join(
                        "",
                        [cdk.Token.as_string(Fn.get_att("ScaleDownProviderframeworkonTimeout02C65EDA", "Arn")), ":*"],
                    ),
                ],
            }
        ],
        "Version": "2012-10-17",
    },
    policy_name="ScaleDownProviderwaiterstatemachineRoleDefaultPolicy6AC1DEC0",
    roles=[Fn.ref("ScaleDownProviderwaiterstatemachineRole1894445B")],
)
resource.override_logical_id("ScaleDownProviderwaiterstatemachineRoleDefaultPolicy6AC1DEC0")
resource = aws_stepfunctions.CfnStateMachine(
    stack,
    "ScaleDownProviderwaiterstatemachineF62990DE",
    definition_string=Fn.join(
        "",
        [
            '{"StartAt":"framework-isComplete-task","States":{"framework-isComplete-task":{"End":true,"Retry":[{"ErrorEquals":["States.ALL"],"IntervalSeconds":30,"MaxAttempts":120,"BackoffRate":1}],"Catch":[{"ErrorEquals":["States.ALL"],"Next":"framework-onTimeout-task"}],"Type":"Task","Resource":"',
            cdk.Token.as_string(Fn.get_att("ScaleDownProviderframeworkisCompleteC5CD4F08", "Arn")),
            '"},"framework-onTimeout-task":{"End":true,"Type":"Task","Resource":"',
            cdk.Token.as_string(Fn.get_att("ScaleDownProviderframeworkonTimeout02C65EDA", "Arn")),
            '"}}}',
        ],
    ),
    role_arn=cdk.Token.as_string(Fn.get_att("ScaleDownProviderwaiterstatemachineRole1894445B", "Arn")),
)
resource.override_logical_id("ScaleDownProviderwaiterstatemachineF62990DE")
resource = cdk.CfnResource(
    stack,
    "ScaleDownPrepare37B24AC0",
    type="Custom::HyperPodScaleDown",
    properties={
        "ServiceToken": cdk.Token.as_string(Fn.get_att("ScaleDownProviderframeworkonEvent9CA91BC0", "Arn")),
        "ClusterName": "llm-train",
        "Groups": [
            Fn.join(
                "",
                [
                    '{"ExecutionRole":"',
                    cdk.Token.as_string(Fn.get_att("ClusterControllerRoleEE53E66B", "Arn")),
                    '","InstanceCount":1,"InstanceGroupName":"controller","InstanceStorageConfigs":[{"FsxLustreConfig":{"DnsName":"',
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0DNSName3C4BFB85",
                            }
                        }
                    ),
                    '","MountName":"',
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0LustreMountName31F4D580",
                            }
                        }
                    ),
                    '","MountPath":"/fsx"}}],"InstanceType":"ml.m5.4xlarge","LifeCycleConfig":{"OnCreate":"controller.sh","SourceS3Uri":"s3://sagemaker-llm-train-',
                    Fn.ref("AWS::AccountId"),
                    '-us-west-2/lifecycle/cf8a9e270abaf26f"},"MinInstanceCount":0,"SlurmConfig":{"NodeType":"Controller"}}',
                ],
            ),
            Fn.join(
                "",
                [
                    '{"ExecutionRole":"',
                    cdk.Token.as_string(Fn.get_att("ClusterLoginRoleB98EF332", "Arn")),
                    '","InstanceCount":1,"InstanceGroupName":"login","InstanceStorageConfigs":[{"FsxLustreConfig":{"DnsName":"',
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0DNSName3C4BFB85",
                            }
                        }
                    ),
                    '","MountName":"',
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0LustreMountName31F4D580",
                            }
                        }
                    ),
                    '","MountPath":"/fsx"}}],"InstanceType":"ml.m5.2xlarge","LifeCycleConfig":{"OnCreate":"login.sh","SourceS3Uri":"s3://sagemaker-llm-train-',
                    Fn.ref("AWS::AccountId"),
                    '-us-west-2/lifecycle/cf8a9e270abaf26f"},"MinInstanceCount":0,"SlurmConfig":{"NodeType":"Login"}}',
                ],
            ),
            Fn.join(
                "",
                [
                    '{"ExecutionRole":"',
                    cdk.Token.as_string(Fn.get_att("ClusterComputeRole88D4F7ED", "Arn")),
                    '","InstanceCount":8,"InstanceGroupName":"p5","InstanceStorageConfigs":[{"FsxLustreConfig":{"DnsName":"',
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0DNSName3C4BFB85",
                            }
                        }
                    ),
                    '","MountName":"',
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0LustreMountName31F4D580",
                            }
                        }
                    ),
                    '","MountPath":"/fsx"}}],"InstanceType":"ml.p5.48xlarge","LifeCycleConfig":{"OnCreate":"compute.sh","SourceS3Uri":"s3://sagemaker-llm-train-',
                    Fn.ref("AWS::AccountId"),
                    '-us-west-2/lifecycle/cf8a9e270abaf26f"},"MinInstanceCount":4,"SlurmConfig":{"NodeType":"Compute","PartitionNames":["p5"]}}',
                ],
            ),
            Fn.join(
                "",
                [
                    '{"ExecutionRole":"',
                    cdk.Token.as_string(Fn.get_att("ClusterComputeRole88D4F7ED", "Arn")),
                    '","InstanceCount":4,"InstanceGroupName":"trn1","InstanceStorageConfigs":[{"FsxLustreConfig":{"DnsName":"',
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0DNSName3C4BFB85",
                            }
                        }
                    ),
                    '","MountName":"',
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0LustreMountName31F4D580",
                            }
                        }
                    ),
                    '","MountPath":"/fsx"}}],"InstanceType":"ml.trn1.32xlarge","LifeCycleConfig":{"OnCreate":"compute.sh","SourceS3Uri":"s3://sagemaker-llm-train-',
                    Fn.ref("AWS::AccountId"),
                    '-us-west-2/lifecycle/cf8a9e270abaf26f"},"MinInstanceCount":4,"SlurmConfig":{"NodeType":"Compute","PartitionNames":["trn1"]}}',
                ],
            ),
        ],
        "InstanceGroupsToDelete": [],
        "AutoscaledGroups": [],
        "Digest": Fn.join(
            "",
            [
                '{"NodeProvisioningMode":"Continuous","NodeRecovery":"Automatic","Orchestrator":{"Slurm":{}},"VpcConfig":{"SecurityGroupIds":["',
                cdk.Token.as_string(
                    {
                        "Fn::GetStackOutput": {
                            "StackName": "hyperpod-llm-train-foundation",
                            "Region": "us-west-2",
                            "OutputName": "PublishOutputFnGetAttNetworkNodes04EB8278GroupId74FD3221",
                        }
                    }
                ),
                '"],"Subnets":["',
                cdk.Token.as_string(
                    {
                        "Fn::GetStackOutput": {
                            "StackName": "hyperpod-llm-train-foundation",
                            "Region": "us-west-2",
                            "OutputName": "PublishOutputFnGetAttNetworkPrivateUsWest2cFB9C700DSubnetId33C429E7",
                        }
                    }
                ),
                '"]},"Tags":[{"key":"cdk-hyperpod:foundation","value":"55bdd280f8c84458"},{"key":"cdk-hyperpod:stack-id","value":"',
                Fn.ref("AWS::StackId"),
                '"}]}',
            ],
        ),
        "NodesToDelete": [],
        "MaxNodes": "16",
        "CreateOnly": Fn.join(
            "",
            [
                '{"VpcConfig":{"SecurityGroupIds":["',
                cdk.Token.as_string(
                    {
                        "Fn::GetStackOutput": {
                            "StackName": "hyperpod-llm-train-foundation",
                            "Region": "us-west-2",
                            "OutputName": "PublishOutputFnGetAttNetworkNodes04EB8278GroupId74FD3221",
                        }
                    }
                ),
                '"],"Subnets":["',
                cdk.Token.as_string(
                    {
                        "Fn::GetStackOutput": {
                            "StackName": "hyperpod-llm-train-foundation",
                            "Region": "us-west-2",
                            "OutputName": "PublishOutputFnGetAttNetworkPrivateUsWest2cFB9C700DSubnetId33C429E7",
                        }
                    }
                ),
                '"]},"Orchestrator":{"Slurm":{}}}',
            ],
        ),
    },
)
resource.override_logical_id("ScaleDownPrepare37B24AC0")
resource = aws_iam.CfnManagedPolicy(
    stack,
    "ScaleDownWritingA763A32C",
    description="Writing, for scaling down HyperPod cluster llm-train",
    policy_document={
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["sagemaker:BatchDeleteClusterNodes", "sagemaker:UpdateCluster"],
                "Resource": cdk.Token.as_string(Fn.get_att("ClusterEB0386A7", "ClusterArn")),
            },
            {
                "Effect": "Allow",
                "Action": ["iam:PassRole"],
                "Resource": [
                    cdk.Token.as_string(Fn.get_att("ClusterControllerRoleEE53E66B", "Arn")),
                    cdk.Token.as_string(Fn.get_att("ClusterLoginRoleB98EF332", "Arn")),
                    cdk.Token.as_string(Fn.get_att("ClusterComputeRole88D4F7ED", "Arn")),
                ],
                "Condition": {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
            },
        ],
    },
    roles=[Fn.ref("ScaleDownRole49059B0B")],
)
resource.override_logical_id("ScaleDownWritingA763A32C")
resource = cdk.CfnResource(
    stack,
    "ScaleDownFinalize7EA2ACEA",
    type="Custom::HyperPodGroupRemoval",
    properties={
        "ServiceToken": cdk.Token.as_string(Fn.get_att("ScaleDownProviderframeworkonEvent9CA91BC0", "Arn")),
        "ClusterName": "llm-train",
        "Groups": [
            Fn.join(
                "",
                [
                    '{"ExecutionRole":"',
                    cdk.Token.as_string(Fn.get_att("ClusterControllerRoleEE53E66B", "Arn")),
                    '","InstanceCount":1,"InstanceGroupName":"controller","InstanceStorageConfigs":[{"FsxLustreConfig":{"DnsName":"',
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0DNSName3C4BFB85",
                            }
                        }
                    ),
                    '","MountName":"',
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0LustreMountName31F4D580",
                            }
                        }
                    ),
                    '","MountPath":"/fsx"}}],"InstanceType":"ml.m5.4xlarge","LifeCycleConfig":{"OnCreate":"controller.sh","SourceS3Uri":"s3://sagemaker-llm-train-',
                    Fn.ref("AWS::AccountId"),
                    '-us-west-2/lifecycle/cf8a9e270abaf26f"},"MinInstanceCount":0,"SlurmConfig":{"NodeType":"Controller"}}',
                ],
            ),
            Fn.join(
                "",
                [
                    '{"ExecutionRole":"',
                    cdk.Token.as_string(Fn.get_att("ClusterLoginRoleB98EF332", "Arn")),
                    '","InstanceCount":1,"InstanceGroupName":"login","InstanceStorageConfigs":[{"FsxLustreConfig":{"DnsName":"',
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0DNSName3C4BFB85",
                            }
                        }
                    ),
                    '","MountName":"',
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0LustreMountName31F4D580",
                            }
                        }
                    ),
                    '","MountPath":"/fsx"}}],"InstanceType":"ml.m5.2xlarge","LifeCycleConfig":{"OnCreate":"login.sh","SourceS3Uri":"s3://sagemaker-llm-train-',
                    Fn.ref("AWS::AccountId"),
                    '-us-west-2/lifecycle/cf8a9e270abaf26f"},"MinInstanceCount":0,"SlurmConfig":{"NodeType":"Login"}}',
                ],
            ),
            Fn.join(
                "",
                [
                    '{"ExecutionRole":"',
                    cdk.Token.as_string(Fn.get_att("ClusterComputeRole88D4F7ED", "Arn")),
                    '","InstanceCount":8,"InstanceGroupName":"p5","InstanceStorageConfigs":[{"FsxLustreConfig":{"DnsName":"',
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0DNSName3C4BFB85",
                            }
                        }
                    ),
                    '","MountName":"',
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0LustreMountName31F4D580",
                            }
                        }
                    ),
                    '","MountPath":"/fsx"}}],"InstanceType":"ml.p5.48xlarge","LifeCycleConfig":{"OnCreate":"compute.sh","SourceS3Uri":"s3://sagemaker-llm-train-',
                    Fn.ref("AWS::AccountId"),
                    '-us-west-2/lifecycle/cf8a9e270abaf26f"},"MinInstanceCount":4,"SlurmConfig":{"NodeType":"Compute","PartitionNames":["p5"]}}',
                ],
            ),
            Fn.join(
                "",
                [
                    '{"ExecutionRole":"',
                    cdk.Token.as_string(Fn.get_att("ClusterComputeRole88D4F7ED", "Arn")),
                    '","InstanceCount":4,"InstanceGroupName":"trn1","InstanceStorageConfigs":[{"FsxLustreConfig":{"DnsName":"',
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0DNSName3C4BFB85",
                            }
                        }
                    ),
                    '","MountName":"',
                    cdk.Token.as_string(
                        {
                            "Fn::GetStackOutput": {
                                "StackName": "hyperpod-llm-train-foundation",
                                "Region": "us-west-2",
                                "OutputName": "PublishOutputFnGetAttFileSystem8A8E25C0LustreMountName31F4D580",
                            }
                        }
                    ),
                    '","MountPath":"/fsx"}}],"InstanceType":"ml.trn1.32xlarge","LifeCycleConfig":{"OnCreate":"compute.sh","SourceS3Uri":"s3://sagemaker-llm-train-',
                    Fn.ref("AWS::AccountId"),
                    '-us-west-2/lifecycle/cf8a9e270abaf26f"},"MinInstanceCount":4,"SlurmConfig":{"NodeType":"Compute","PartitionNames":["trn1"]}}',
                ],
            ),
        ],
        "InstanceGroupsToDelete": [],
        "AutoscaledGroups": [],
        "Digest": Fn.join(
            "",
            [
                '{"NodeProvisioningMode":"Continuous","NodeRecovery":"Automatic","Orchestrator":{"Slurm":{}},"VpcConfig":{"SecurityGroupIds":["',
                cdk.Token.as_string(
                    {
                        "Fn::GetStackOutput": {
                            "StackName": "hyperpod-llm-train-foundation",
                            "Region": "us-west-2",
                            "OutputName": "PublishOutputFnGetAttNetworkNodes04EB8278GroupId74FD3221",
                        }
                    }
                ),
                '"],"Subnets":["',
                cdk.Token.as_string(
                    {
                        "Fn::GetStackOutput": {
                            "StackName": "hyperpod-llm-train-foundation",
                            "Region": "us-west-2",
                            "OutputName": "PublishOutputFnGetAttNetworkPrivateUsWest2cFB9C700DSubnetId33C429E7",
                        }
                    }
                ),
                '"]},"Tags":[{"key":"cdk-hyperpod:foundation","value":"55bdd280f8c84458"},{"key":"cdk-hyperpod:stack-id","value":"',
                Fn.ref("AWS::StackId"),
                '"}]}',
            ],
        ),
    },
)
resource.override_logical_id("ScaleDownFinalize7EA2ACEA")
stack = Stack(app, "hyperpod-llm-train-foundation", analytics_reporting=False)
resource = aws_kms.CfnKey(
    stack,
    "Key961B73FD",
    description="Data of HyperPod stack hyperpod-llm-train-foundation",
    enable_key_rotation=True,
    key_policy={
        "Statement": [
            {
                "Action": "kms:*",
                "Effect": "Allow",
                "Principal": {"AWS": Fn.join("", ["arn:aws:iam::", Fn.ref("AWS::AccountId"), ":root"])},
                "Resource": "*",
            },
            {
                "Action": ["kms:Decrypt*", "kms:Describe*", "kms:Encrypt*", "kms:GenerateDataKey*", "kms:ReEncrypt*"],
                "Condition": {
                    "ArnLike": {
                        "kms:EncryptionContext:aws:logs:arn": Fn.join(
                            "", ["arn:", Fn.ref("AWS::Partition"), ":logs:us-west-2:", Fn.ref("AWS::AccountId"), ":*"]
                        )
                    }
                },
                "Effect": "Allow",
                "Principal": {"Service": Fn.join("", ["logs.us-west-2.", Fn.ref("AWS::URLSuffix")])},
                "Resource": "*",
                "Sid": "Logs",
            },
        ],
        "Version": "2012-10-17",
    },
)
resource.override_logical_id("Key961B73FD")
resource = aws_ec2.CfnVPC(
    stack,
    "NetworkVpcFAC8F4A5",
    cidr_block="10.0.0.0/16",
    enable_dns_hostnames=True,
    enable_dns_support=True,
    tags=[cdk.CfnTag(key="Name", value="hyperpod-llm-train-foundation")],
)
resource.override_logical_id("NetworkVpcFAC8F4A5")
resource = aws_logs.CfnLogGroup(
    stack,
    "NetworkFlowLogGroup1F868030",
    kms_key_id=cdk.Token.as_string(Fn.get_att("Key961B73FD", "Arn")),
    retention_in_days=365,
)
resource.override_logical_id("NetworkFlowLogGroup1F868030")
resource = aws_iam.CfnManagedPolicy(
    stack,
    "NetworkFlowLogPolicy81FDE3FD",
    policy_document={
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
                "Resource": cdk.Token.as_string(Fn.get_att("NetworkFlowLogGroup1F868030", "Arn")),
            }
        ],
    },
)
resource.override_logical_id("NetworkFlowLogPolicy81FDE3FD")
resource = aws_iam.CfnRole(
    stack,
    "NetworkFlowLogRole77F83AC2",
    assume_role_policy_document={
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": "sts:AssumeRole",
                "Principal": {"Service": "vpc-flow-logs.amazonaws.com"},
                "Condition": {"StringEquals": {"aws:SourceAccount": Fn.ref("AWS::AccountId")}},
            }
        ],
    },
    managed_policy_arns=[Fn.ref("NetworkFlowLogPolicy81FDE3FD")],
)
resource.override_logical_id("NetworkFlowLogRole77F83AC2")
resource = aws_ec2.CfnFlowLog(
    stack,
    "NetworkFlowLogC0B00A8E",
    deliver_logs_permission_arn=cdk.Token.as_string(Fn.get_att("NetworkFlowLogRole77F83AC2", "Arn")),
    log_destination=cdk.Token.as_string(Fn.get_att("NetworkFlowLogGroup1F868030", "Arn")),
    resource_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
    resource_type="VPC",
    traffic_type="ALL",
)
resource.override_logical_id("NetworkFlowLogC0B00A8E")
resource = aws_ec2.CfnRouteTable(
    stack,
    "NetworkPrivateRoutesC6083B47",
    tags=[cdk.CfnTag(key="Name", value="hyperpod-llm-train-foundation/private")],
    vpc_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
)
resource.override_logical_id("NetworkPrivateRoutesC6083B47")
resource = aws_ec2.CfnSubnet(
    stack,
    "NetworkPrivateUsWest2cFB9C700D",
    availability_zone="us-west-2c",
    cidr_block="10.0.64.0/19",
    map_public_ip_on_launch=False,
    tags=[cdk.CfnTag(key="Name", value="hyperpod-llm-train-foundation/private")],
    vpc_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
)
resource.override_logical_id("NetworkPrivateUsWest2cFB9C700D")
resource = aws_ec2.CfnSubnetRouteTableAssociation(
    stack,
    "NetworkPrivateUsWest2cRoutesB9EA8505",
    route_table_id=Fn.ref("NetworkPrivateRoutesC6083B47"),
    subnet_id=cdk.Token.as_string(Fn.get_att("NetworkPrivateUsWest2cFB9C700D", "SubnetId")),
)
resource.override_logical_id("NetworkPrivateUsWest2cRoutesB9EA8505")
resource = aws_ec2.CfnVPCEndpoint(
    stack,
    "NetworkS3Endpoint635CABAC",
    route_table_ids=[Fn.ref("NetworkPrivateRoutesC6083B47")],
    service_name="com.amazonaws.us-west-2.s3",
    vpc_endpoint_type="Gateway",
    vpc_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
)
resource.override_logical_id("NetworkS3Endpoint635CABAC")
resource = aws_ec2.CfnSecurityGroup(
    stack,
    "NetworkNodes04EB8278",
    group_description="Nodes of a HyperPod cluster",
    security_group_egress=[
        aws_ec2.CfnSecurityGroup.EgressProperty(
            description="S3 through its gateway endpoint",
            destination_prefix_list_id="pl-68a54001",
            from_port=443,
            ip_protocol="tcp",
            to_port=443,
        )
    ],
    tags=[cdk.CfnTag(key="Name", value="hyperpod-llm-train-foundation/nodes")],
    vpc_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
)
resource.override_logical_id("NetworkNodes04EB8278")
resource = aws_ec2.CfnSecurityGroupIngress(
    stack,
    "NetworkNodesToNodesIn7137E527",
    description="All between nodes, EFA included",
    group_id=cdk.Token.as_string(Fn.get_att("NetworkNodes04EB8278", "GroupId")),
    ip_protocol="-1",
    source_security_group_id=cdk.Token.as_string(Fn.get_att("NetworkNodes04EB8278", "GroupId")),
)
resource.override_logical_id("NetworkNodesToNodesIn7137E527")
resource = aws_ec2.CfnSecurityGroupEgress(
    stack,
    "NetworkNodesToNodesOut323DF202",
    description="All between nodes, EFA included",
    destination_security_group_id=cdk.Token.as_string(Fn.get_att("NetworkNodes04EB8278", "GroupId")),
    group_id=cdk.Token.as_string(Fn.get_att("NetworkNodes04EB8278", "GroupId")),
    ip_protocol="-1",
)
resource.override_logical_id("NetworkNodesToNodesOut323DF202")
resource = aws_ec2.CfnSecurityGroup(
    stack,
    "NetworkEndpoints88F47C84",
    group_description="Interface endpoints that the nodes call",
    security_group_egress=[
        aws_ec2.CfnSecurityGroup.EgressProperty(cidr_ip="127.0.0.1/32", description="No egress", ip_protocol="-1")
    ],
    tags=[cdk.CfnTag(key="Name", value="hyperpod-llm-train-foundation/endpoints")],
    vpc_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
)
resource.override_logical_id("NetworkEndpoints88F47C84")
resource = aws_ec2.CfnSecurityGroupIngress(
    stack,
    "NetworkNodesToEndpointsIn8D1B5FB9",
    description="AWS services",
    from_port=443,
    group_id=cdk.Token.as_string(Fn.get_att("NetworkEndpoints88F47C84", "GroupId")),
    ip_protocol="tcp",
    source_security_group_id=cdk.Token.as_string(Fn.get_att("NetworkNodes04EB8278", "GroupId")),
    to_port=443,
)
resource.override_logical_id("NetworkNodesToEndpointsIn8D1B5FB9")
resource = aws_ec2.CfnSecurityGroupEgress(
    stack,
    "NetworkNodesToEndpointsOutCE2E8F07",
    description="AWS services",
    destination_security_group_id=cdk.Token.as_string(Fn.get_att("NetworkEndpoints88F47C84", "GroupId")),
    from_port=443,
    group_id=cdk.Token.as_string(Fn.get_att("NetworkNodes04EB8278", "GroupId")),
    ip_protocol="tcp",
    to_port=443,
)
resource.override_logical_id("NetworkNodesToEndpointsOutCE2E8F07")
resource = aws_ec2.CfnVPCEndpoint(
    stack,
    "NetworkEndpointEc238CA71F5",
    private_dns_enabled=True,
    security_group_ids=[cdk.Token.as_string(Fn.get_att("NetworkEndpoints88F47C84", "GroupId"))],
    service_name="com.amazonaws.us-west-2.ec2",
    subnet_ids=[cdk.Token.as_string(Fn.get_att("NetworkPrivateUsWest2cFB9C700D", "SubnetId"))],
    vpc_endpoint_type="Interface",
    vpc_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
)
resource.override_logical_id("NetworkEndpointEc238CA71F5")
resource = aws_ec2.CfnVPCEndpoint(
    stack,
    "NetworkEndpointEc2messagesC640C309",
    private_dns_enabled=True,
    security_group_ids=[cdk.Token.as_string(Fn.get_att("NetworkEndpoints88F47C84", "GroupId"))],
    service_name="com.amazonaws.us-west-2.ec2messages",
    subnet_ids=[cdk.Token.as_string(Fn.get_att("NetworkPrivateUsWest2cFB9C700D", "SubnetId"))],
    vpc_endpoint_type="Interface",
    vpc_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
)
resource.override_logical_id("NetworkEndpointEc2messagesC640C309")
resource = aws_ec2.CfnVPCEndpoint(
    stack,
    "NetworkEndpointEcrApi89C0A175",
    private_dns_enabled=True,
    security_group_ids=[cdk.Token.as_string(Fn.get_att("NetworkEndpoints88F47C84", "GroupId"))],
    service_name="com.amazonaws.us-west-2.ecr.api",
    subnet_ids=[cdk.Token.as_string(Fn.get_att("NetworkPrivateUsWest2cFB9C700D", "SubnetId"))],
    vpc_endpoint_type="Interface",
    vpc_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
)
resource.override_logical_id("NetworkEndpointEcrApi89C0A175")
resource = aws_ec2.CfnVPCEndpoint(
    stack,
    "NetworkEndpointEcrDkrF012671D",
    private_dns_enabled=True,
    security_group_ids=[cdk.Token.as_string(Fn.get_att("NetworkEndpoints88F47C84", "GroupId"))],
    service_name="com.amazonaws.us-west-2.ecr.dkr",
    subnet_ids=[cdk.Token.as_string(Fn.get_att("NetworkPrivateUsWest2cFB9C700D", "SubnetId"))],
    vpc_endpoint_type="Interface",
    vpc_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
)
resource.override_logical_id("NetworkEndpointEcrDkrF012671D")
resource = aws_ec2.CfnVPCEndpoint(
    stack,
    "NetworkEndpointLogs04634C0B",
    private_dns_enabled=True,
    security_group_ids=[cdk.Token.as_string(Fn.get_att("NetworkEndpoints88F47C84", "GroupId"))],
    service_name="com.amazonaws.us-west-2.logs",
    subnet_ids=[cdk.Token.as_string(Fn.get_att("NetworkPrivateUsWest2cFB9C700D", "SubnetId"))],
    vpc_endpoint_type="Interface",
    vpc_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
)
resource.override_logical_id("NetworkEndpointLogs04634C0B")
resource = aws_ec2.CfnVPCEndpoint(
    stack,
    "NetworkEndpointMonitoring9090A422",
    private_dns_enabled=True,
    security_group_ids=[cdk.Token.as_string(Fn.get_att("NetworkEndpoints88F47C84", "GroupId"))],
    service_name="com.amazonaws.us-west-2.monitoring",
    subnet_ids=[cdk.Token.as_string(Fn.get_att("NetworkPrivateUsWest2cFB9C700D", "SubnetId"))],
    vpc_endpoint_type="Interface",
    vpc_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
)
resource.override_logical_id("NetworkEndpointMonitoring9090A422")
resource = aws_ec2.CfnVPCEndpoint(
    stack,
    "NetworkEndpointSagemakerApi857BF008",
    private_dns_enabled=True,
    security_group_ids=[cdk.Token.as_string(Fn.get_att("NetworkEndpoints88F47C84", "GroupId"))],
    service_name="com.amazonaws.us-west-2.sagemaker.api",
    subnet_ids=[cdk.Token.as_string(Fn.get_att("NetworkPrivateUsWest2cFB9C700D", "SubnetId"))],
    vpc_endpoint_type="Interface",
    vpc_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
)
resource.override_logical_id("NetworkEndpointSagemakerApi857BF008")
resource = aws_ec2.CfnVPCEndpoint(
    stack,
    "NetworkEndpointSsmB52ADE97",
    private_dns_enabled=True,
    security_group_ids=[cdk.Token.as_string(Fn.get_att("NetworkEndpoints88F47C84", "GroupId"))],
    service_name="com.amazonaws.us-west-2.ssm",
    subnet_ids=[cdk.Token.as_string(Fn.get_att("NetworkPrivateUsWest2cFB9C700D", "SubnetId"))],
    vpc_endpoint_type="Interface",
    vpc_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
)
resource.override_logical_id("NetworkEndpointSsmB52ADE97")
resource = aws_ec2.CfnVPCEndpoint(
    stack,
    "NetworkEndpointSsmmessages642EF02E",
    private_dns_enabled=True,
    security_group_ids=[cdk.Token.as_string(Fn.get_att("NetworkEndpoints88F47C84", "GroupId"))],
    service_name="com.amazonaws.us-west-2.ssmmessages",
    subnet_ids=[cdk.Token.as_string(Fn.get_att("NetworkPrivateUsWest2cFB9C700D", "SubnetId"))],
    vpc_endpoint_type="Interface",
    vpc_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
)
resource.override_logical_id("NetworkEndpointSsmmessages642EF02E")
resource = aws_ec2.CfnVPCEndpoint(
    stack,
    "NetworkEndpointSts3DA521EC",
    private_dns_enabled=True,
    security_group_ids=[cdk.Token.as_string(Fn.get_att("NetworkEndpoints88F47C84", "GroupId"))],
    service_name="com.amazonaws.us-west-2.sts",
    subnet_ids=[cdk.Token.as_string(Fn.get_att("NetworkPrivateUsWest2cFB9C700D", "SubnetId"))],
    vpc_endpoint_type="Interface",
    vpc_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
)
resource.override_logical_id("NetworkEndpointSts3DA521EC")
resource = aws_s3.CfnBucket(
    stack,
    "AccessLogs8B620ECA",
    bucket_encryption=aws_s3.CfnBucket.BucketEncryptionProperty(
        server_side_encryption_configuration=[
            aws_s3.CfnBucket.ServerSideEncryptionRuleProperty(
                server_side_encryption_by_default=aws_s3.CfnBucket.ServerSideEncryptionByDefaultProperty(
                    sse_algorithm="AES256"
                )
            )
        ]
    ),
    lifecycle_configuration=aws_s3.CfnBucket.LifecycleConfigurationProperty(
        rules=[
            aws_s3.CfnBucket.RuleProperty(
                expiration_in_days=365,
                id="KeepAYear",
                noncurrent_version_expiration=aws_s3.CfnBucket.NoncurrentVersionExpirationProperty(noncurrent_days=1),
                status="Enabled",
            )
        ]
    ),
    ownership_controls=aws_s3.CfnBucket.OwnershipControlsProperty(
        rules=[aws_s3.CfnBucket.OwnershipControlsRuleProperty(object_ownership="BucketOwnerEnforced")]
    ),
    public_access_block_configuration=aws_s3.CfnBucket.PublicAccessBlockConfigurationProperty(
        block_public_acls=True, block_public_policy=True, ignore_public_acls=True, restrict_public_buckets=True
    ),
    versioning_configuration=aws_s3.CfnBucket.VersioningConfigurationProperty(status="Enabled"),
)
resource.override_logical_id("AccessLogs8B620ECA")
resource = aws_s3.CfnBucketPolicy(
    stack,
    "AccessLogsPolicyABDC4D2D",
    bucket=Fn.ref("AccessLogs8B620ECA"),
    policy_document={
        "Statement": [
            {
                "Action": "s3:*",
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                "Effect": "Deny",
                "Principal": {"AWS": "*"},
                "Resource": [
                    cdk.Token.as_string(Fn.get_att("AccessLogs8B620ECA", "Arn")),
                    Fn.join("", [cdk.Token.as_string(Fn.get_att("AccessLogs8B620ECA", "Arn")), "/*"]),
                ],
            },
            {
                "Action": "s3:PutObject",
                "Condition": {"StringEquals": {"aws:SourceAccount": Fn.ref("AWS::AccountId")}},
                "Effect": "Allow",
                "Principal": {"Service": "logging.s3.amazonaws.com"},
                "Resource": Fn.join("", [cdk.Token.as_string(Fn.get_att("AccessLogs8B620ECA", "Arn")), "/*"]),
            },
        ],
        "Version": "2012-10-17",
    },
)
resource.override_logical_id("AccessLogsPolicyABDC4D2D")
resource = aws_ec2.CfnSecurityGroup(
    stack,
    "FileSystemServersC925A323",
    group_description="Servers of an FSx for Lustre file system",
    security_group_egress=[
        aws_ec2.CfnSecurityGroup.EgressProperty(cidr_ip="127.0.0.1/32", description="No egress", ip_protocol="-1")
    ],
    tags=[cdk.CfnTag(key="Name", value="hyperpod-llm-train-foundation/lustre")],
    vpc_id=cdk.Token.as_string(Fn.get_att("NetworkVpcFAC8F4A5", "VpcId")),
)
resource.override_logical_id("FileSystemServersC925A323")
resource = aws_fsx.CfnFileSystem(
    stack,
    "FileSystem8A8E25C0",
    file_system_type="LUSTRE",
    file_system_type_version="2.15",
    kms_key_id=cdk.Token.as_string(Fn.get_att("Key961B73FD", "Arn")),
    lustre_configuration=aws_fsx.CfnFileSystem.LustreConfigurationProperty(
        automatic_backup_retention_days=0,
        data_compression_type="LZ4",
        deployment_type="PERSISTENT_2",
        metadata_configuration=aws_fsx.CfnFileSystem.MetadataConfigurationProperty(mode="AUTOMATIC"),
        per_unit_storage_throughput=250,
    ),
    security_group_ids=[cdk.Token.as_string(Fn.get_att("FileSystemServersC925A323", "GroupId"))],
    storage_capacity=4800,
    storage_type="SSD",
    subnet_ids=[cdk.Token.as_string(Fn.get_att("NetworkPrivateUsWest2cFB9C700D", "SubnetId"))],
    tags=[cdk.CfnTag(key="Name", value="hyperpod-llm-train-foundation")],
)
resource.override_logical_id("FileSystem8A8E25C0")
resource = aws_ec2.CfnSecurityGroupIngress(
    stack,
    "FileSystemServersInA758D57A",
    description="Lustre between its servers, EFA included",
    group_id=cdk.Token.as_string(Fn.get_att("FileSystemServersC925A323", "GroupId")),
    ip_protocol="-1",
    source_security_group_id=cdk.Token.as_string(Fn.get_att("FileSystemServersC925A323", "GroupId")),
)
resource.override_logical_id("FileSystemServersInA758D57A")
resource = aws_ec2.CfnSecurityGroupEgress(
    stack,
    "FileSystemServersOut367DFA89",
    description="Lustre between its servers, EFA included",
    destination_security_group_id=cdk.Token.as_string(Fn.get_att("FileSystemServersC925A323", "GroupId")),
    group_id=cdk.Token.as_string(Fn.get_att("FileSystemServersC925A323", "GroupId")),
    ip_protocol="-1",
)
resource.override_logical_id("FileSystemServersOut367DFA89")
resource = aws_ec2.CfnSecurityGroupIngress(
    stack,
    "FileSystemNodesToServers988InEF5CEA7B",
    description="Lustre",
    from_port=988,
    group_id=cdk.Token.as_string(Fn.get_att("FileSystemServersC925A323", "GroupId")),
    ip_protocol="tcp",
    source_security_group_id=cdk.Token.as_string(Fn.get_att("NetworkNodes04EB8278", "GroupId")),
    to_port=988,
)
resource.override_logical_id("FileSystemNodesToServers988InEF5CEA7B")
resource = aws_ec2.CfnSecurityGroupEgress(
    stack,
    "FileSystemNodesToServers988Out23DA1081",
    description="Lustre",
    destination_security_group_id=cdk.Token.as_string(Fn.get_att("FileSystemServersC925A323", "GroupId")),
    from_port=988,
    group_id=cdk.Token.as_string(Fn.get_att("NetworkNodes04EB8278", "GroupId")),
    ip_protocol="tcp",
    to_port=988,
)
resource.override_logical_id("FileSystemNodesToServers988Out23DA1081")
resource = aws_ec2.CfnSecurityGroupIngress(
    stack,
    "FileSystemServersToNodes988In03205403",
    description="Lustre",
    from_port=988,
    group_id=cdk.Token.as_string(Fn.get_att("NetworkNodes04EB8278", "GroupId")),
    ip_protocol="tcp",
    source_security_group_id=cdk.Token.as_string(Fn.get_att("FileSystemServersC925A323", "GroupId")),
    to_port=988,
)
resource.override_logical_id("FileSystemServersToNodes988In03205403")
resource = aws_ec2.CfnSecurityGroupEgress(
    stack,
    "FileSystemServersToNodes988Out0577D7EE",
    description="Lustre",
    destination_security_group_id=cdk.Token.as_string(Fn.get_att("NetworkNodes04EB8278", "GroupId")),
    from_port=988,
    group_id=cdk.Token.as_string(Fn.get_att("FileSystemServersC925A323", "GroupId")),
    ip_protocol="tcp",
    to_port=988,
)
resource.override_logical_id("FileSystemServersToNodes988Out0577D7EE")
resource = aws_ec2.CfnSecurityGroupIngress(
    stack,
    "FileSystemNodesToServers1018In49A92661",
    description="Lustre",
    from_port=1018,
    group_id=cdk.Token.as_string(Fn.get_att("FileSystemServersC925A323", "GroupId")),
    ip_protocol="tcp",
    source_security_group_id=cdk.Token.as_string(Fn.get_att("NetworkNodes04EB8278", "GroupId")),
    to_port=1023,
)
resource.override_logical_id("FileSystemNodesToServers1018In49A92661")
resource = aws_ec2.CfnSecurityGroupEgress(
    stack,
    "FileSystemNodesToServers1018Out16B88ED8",
    description="Lustre",
    destination_security_group_id=cdk.Token.as_string(Fn.get_att("FileSystemServersC925A323", "GroupId")),
    from_port=1018,
    group_id=cdk.Token.as_string(Fn.get_att("NetworkNodes04EB8278", "GroupId")),
    ip_protocol="tcp",
    to_port=1023,
)
resource.override_logical_id("FileSystemNodesToServers1018Out16B88ED8")
resource = aws_ec2.CfnSecurityGroupIngress(
    stack,
    "FileSystemServersToNodes1018In8A470EA6",
    description="Lustre",
    from_port=1018,
    group_id=cdk.Token.as_string(Fn.get_att("NetworkNodes04EB8278", "GroupId")),
    ip_protocol="tcp",
    source_security_group_id=cdk.Token.as_string(Fn.get_att("FileSystemServersC925A323", "GroupId")),
    to_port=1023,
)
resource.override_logical_id("FileSystemServersToNodes1018In8A470EA6")
resource = aws_ec2.CfnSecurityGroupEgress(
    stack,
    "FileSystemServersToNodes1018Out2845B964",
    description="Lustre",
    destination_security_group_id=cdk.Token.as_string(Fn.get_att("NetworkNodes04EB8278", "GroupId")),
    from_port=1018,
    group_id=cdk.Token.as_string(Fn.get_att("FileSystemServersC925A323", "GroupId")),
    ip_protocol="tcp",
    to_port=1023,
)
resource.override_logical_id("FileSystemServersToNodes1018Out2845B964")
resource = aws_s3.CfnBucket(
    stack,
    "LifecycleScriptsBucketBB67840B",
    bucket_encryption=aws_s3.CfnBucket.BucketEncryptionProperty(
        server_side_encryption_configuration=[
            aws_s3.CfnBucket.ServerSideEncryptionRuleProperty(
                bucket_key_enabled=True,
                server_side_encryption_by_default=aws_s3.CfnBucket.ServerSideEncryptionByDefaultProperty(
                    kms_master_key_id=cdk.Token.as_string(Fn.get_att("Key961B73FD", "Arn")), sse_algorithm="aws:kms"
                ),
            )
        ]
    ),
    bucket_name=Fn.join("", ["sagemaker-llm-train-", Fn.ref("AWS::AccountId"), "-us-west-2"]),
    lifecycle_configuration=aws_s3.CfnBucket.LifecycleConfigurationProperty(
        rules=[
            aws_s3.CfnBucket.RuleProperty(
                abort_incomplete_multipart_upload=aws_s3.CfnBucket.AbortIncompleteMultipartUploadProperty(
                    days_after_initiation=7
                ),
                id="AbortUploads",
                status="Enabled",
            )
        ]
    ),
    logging_configuration=aws_s3.CfnBucket.LoggingConfigurationProperty(
        destination_bucket_name=Fn.ref("AccessLogs8B620ECA"), log_file_prefix="bucket/"
    ),
    ownership_controls=aws_s3.CfnBucket.OwnershipControlsProperty(
        rules=[aws_s3.CfnBucket.OwnershipControlsRuleProperty(object_ownership="BucketOwnerEnforced")]
    ),
    public_access_block_configuration=aws_s3.CfnBucket.PublicAccessBlockConfigurationProperty(
        block_public_acls=True, block_public_policy=True, ignore_public_acls=True, restrict_public_buckets=True
    ),
    tags=[
        cdk.CfnTag(key="aws-cdk:auto-delete-objects", value="true"),
        cdk.CfnTag(key="aws-cdk:cr-owned:lifecycle/cf8a9e270abaf26f:f0b42a39", value="true"),
    ],
    versioning_configuration=aws_s3.CfnBucket.VersioningConfigurationProperty(status="Enabled"),
)
resource.override_logical_id("LifecycleScriptsBucketBB67840B")
resource = aws_s3.CfnBucketPolicy(
    stack,
    "LifecycleScriptsBucketPolicyDF866F1A",
    bucket=Fn.ref("LifecycleScriptsBucketBB67840B"),
    policy_document={
        "Statement": [
            {
                "Action": "s3:*",
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                "Effect": "Deny",
                "Principal": {"AWS": "*"},
                "Resource": [
                    cdk.Token.as_string(Fn.get_att("LifecycleScriptsBucketBB67840B", "Arn")),
                    Fn.join("", [cdk.Token.as_string(Fn.get_att("LifecycleScriptsBucketBB67840B", "Arn")), "/*"]),
                ],
            },
            {
                "Action": ["s3:DeleteObject*", "s3:GetBucket*", "s3:List*", "s3:PutBucketPolicy"],
                "Effect": "Allow",
                "Principal": {
                    "AWS": cdk.Token.as_string(
                        Fn.get_att("CustomS3AutoDeleteObjectsCustomResourceProviderRole3B1BD092", "Arn")
                    )
                },
                "Resource": [
                    cdk.Token.as_string(Fn.get_att("LifecycleScriptsBucketBB67840B", "Arn")),
                    Fn.join("", [cdk.Token.as_string(Fn.get_att("LifecycleScriptsBucketBB67840B", "Arn")), "/*"]),
                ],
            },
        ],
        "Version": "2012-10-17",
    },
)
resource.override_logical_id("LifecycleScriptsBucketPolicyDF866F1A")
resource = cdk.CfnResource(
    stack,
    "LifecycleScriptsBucketAutoDeleteObjectsCustomResource77A7D856",
    type="Custom::S3AutoDeleteObjects",
    properties={
        "ServiceToken": cdk.Token.as_string(
            Fn.get_att("CustomS3AutoDeleteObjectsCustomResourceProviderHandler9D90184F", "Arn")
        ),
        "BucketName": Fn.ref("LifecycleScriptsBucketBB67840B"),
    },
)
resource.override_logical_id("LifecycleScriptsBucketAutoDeleteObjectsCustomResource77A7D856")
resource = aws_logs.CfnLogGroup(
    stack,
    "LifecycleScriptsUploadLog140F2945",
    kms_key_id=cdk.Token.as_string(Fn.get_att("Key961B73FD", "Arn")),
    retention_in_days=365,
)
resource.override_logical_id("LifecycleScriptsUploadLog140F2945")
resource = aws_lambda.CfnLayerVersion(
    stack,
    "LifecycleScriptsUploadAwsCliLayer7AAC8F93",
    content=aws_lambda.CfnLayerVersion.ContentProperty(
        s3_bucket=Fn.sub("cdk-hnb659fds-assets-${AWS::AccountId}-us-west-2"),
        s3_key="98f62bef9320f8c0a0a7be21d7c746f069131f196f51ffe3008a6bb730b368ec.zip",
    ),
    description="/opt/awscli/aws",
)
resource.override_logical_id("LifecycleScriptsUploadAwsCliLayer7AAC8F93")
resource = cdk.CfnResource(
    stack,
    "LifecycleScriptsUploadCustomResourceB84691E5",
    type="Custom::CDKBucketDeployment",
    properties={
        "ServiceToken": cdk.Token.as_string(
            Fn.get_att("CustomCDKBucketDeployment8693BB64968944B69AAFB0CC9EB8756C81C01536", "Arn")
        ),
        "SourceBucketNames": [
            Fn.sub("cdk-hnb659fds-assets-${AWS::AccountId}-us-west-2"),
            Fn.sub("cdk-hnb659fds-assets-${AWS::AccountId}-us-west-2"),
        ],
        "SourceObjectKeys": [
            "20161540b05d623f2ec7e7b601753f46237d6ded06e635bd730b0da95cf83128.zip",
            "88840b7bd1f9fc045030a2f3fb65acd3f469280e9a0a04c597e6fb101e23730b.zip",
        ],
        "SourceMarkers": [{}, {}],
        "SourceMarkersConfig": [{}, {}],
        "DestinationBucketName": Fn.ref("LifecycleScriptsBucketBB67840B"),
        "DestinationBucketKeyPrefix": "lifecycle/cf8a9e270abaf26f",
        "WaitForDistributionInvalidation": True,
        "RetainOnDelete": True,
        "Prune": False,
        "OutputObjectKeys": True,
    },
)
resource.override_logical_id("LifecycleScriptsUploadCustomResourceB84691E5")
resource = aws_iam.CfnRole(
    stack,
    "CustomS3AutoDeleteObjectsCustomResourceProviderRole3B1BD092",
    assume_role_policy_document={
        "Version": "2012-10-17",
        "Statement": [
            {"Action": "sts:AssumeRole", "Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}}
        ],
    },
    managed_policy_arns=[Fn.sub("arn:${AWS::Partition}:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole")],
)
resource.override_logical_id("CustomS3AutoDeleteObjectsCustomResourceProviderRole3B1BD092")
resource = aws_lambda.CfnFunction(
    stack,
    "CustomS3AutoDeleteObjectsCustomResourceProviderHandler9D90184F",
    code=aws_lambda.CfnFunction.CodeProperty(
        s3_bucket=Fn.sub("cdk-hnb659fds-assets-${AWS::AccountId}-us-west-2"),
        s3_key="faa95a81ae7d7373f3e1f242268f904eb748d8d0fdd306e8a6fe515a1905a7d6.zip",
    ),
    timeout=900,
    memory_size=128,
    handler="index.handler",
    role=cdk.Token.as_string(Fn.get_att("CustomS3AutoDeleteObjectsCustomResourceProviderRole3B1BD092", "Arn")),
    runtime="nodejs24.x",
    description=Fn.join(
        "", ["Lambda function for auto-deleting objects in ", Fn.ref("LifecycleScriptsBucketBB67840B"), " S3 bucket."]
    ),
)
resource.override_logical_id("CustomS3AutoDeleteObjectsCustomResourceProviderHandler9D90184F")
resource = aws_iam.CfnRole(
    stack,
    "CustomCDKBucketDeployment8693BB64968944B69AAFB0CC9EB8756CServiceRole89A01265",
    assume_role_policy_document={
        "Statement": [
            {"Action": "sts:AssumeRole", "Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}}
        ],
        "Version": "2012-10-17",
    },
    managed_policy_arns=[
        Fn.join("", ["arn:", Fn.ref("AWS::Partition"), ":iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"])
    ],
)
resource.override_logical_id("CustomCDKBucketDeployment8693BB64968944B69AAFB0CC9EB8756CServiceRole89A01265")
resource = aws_iam.CfnPolicy(
    stack,
    "CustomCDKBucketDeployment8693BB64968944B69AAFB0CC9EB8756CServiceRoleDefaultPolicy88902FDF",
    policy_document={
        "Statement": [
            {
                "Action": ["s3:GetBucket*", "s3:GetObject*", "s3:List*"],
                "Effect": "Allow",
                "Resource": [
                    Fn.join("", ["arn:aws:s3:::", Fn.sub("cdk-hnb659fds-assets-${AWS::AccountId}-us-west-2"), "/*"]),
                    Fn.join("", ["arn:aws:s3:::", Fn.sub("cdk-hnb659fds-assets-${AWS::AccountId}-us-west-2")]),
                ],
            },
            {
                "Action": [
                    "s3:Abort*",
                    "s3:DeleteObject*",
                    "s3:GetBucket*",
                    "s3:GetObject*",
                    "s3:List*",
                    "s3:PutObject",
                    "s3:PutObjectLegalHold",
                    "s3:PutObjectRetention",
                    "s3:PutObjectTagging",
                    "s3:PutObjectVersionTagging",
                ],
                "Effect": "Allow",
                "Resource": [
                    cdk.Token.as_string(Fn.get_att("LifecycleScriptsBucketBB67840B", "Arn")),
                    Fn.join("", [cdk.Token.as_string(Fn.get_att("LifecycleScriptsBucketBB67840B", "Arn")), "/*"]),
                ],
            },
            {
                "Action": ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"],
                "Effect": "Allow",
                "Resource": cdk.Token.as_string(Fn.get_att("Key961B73FD", "Arn")),
            },
        ],
        "Version": "2012-10-17",
    },
    policy_name="CustomCDKBucketDeployment8693BB64968944B69AAFB0CC9EB8756CServiceRoleDefaultPolicy88902FDF",
    roles=[Fn.ref("CustomCDKBucketDeployment8693BB64968944B69AAFB0CC9EB8756CServiceRole89A01265")],
)
resource.override_logical_id(
    "CustomCDKBucketDeployment8693BB64968944B69AAFB0CC9EB8756CServiceRoleDefaultPolicy88902FDF"
)
resource = aws_lambda.CfnFunction(
    stack,
    "CustomCDKBucketDeployment8693BB64968944B69AAFB0CC9EB8756C81C01536",
    architectures=["arm64"],
    code=aws_lambda.CfnFunction.CodeProperty(
        s3_bucket=Fn.sub("cdk-hnb659fds-assets-${AWS::AccountId}-us-west-2"),
        s3_key="35328da138f26fbd9160297abc9a2522d93dbf75878cd5114a9c050419fc1ce0.zip",
    ),
    environment=aws_lambda.CfnFunction.EnvironmentProperty(
        variables={"AWS_CA_BUNDLE": "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"}
    ),
    handler="index.handler",
    layers=[Fn.ref("LifecycleScriptsUploadAwsCliLayer7AAC8F93")],
    logging_config=aws_lambda.CfnFunction.LoggingConfigProperty(log_group=Fn.ref("LifecycleScriptsUploadLog140F2945")),
    memory_size=1024,
    role=cdk.Token.as_string(
        Fn.get_att("CustomCDKBucketDeployment8693BB64968944B69AAFB0CC9EB8756CServiceRole89A01265", "Arn")
    ),
    runtime="python3.13",
    timeout=900,
)
resource.override_logical_id("CustomCDKBucketDeployment8693BB64968944B69AAFB0CC9EB8756C81C01536")
for path in sorted(Path(os.environ["BENCH_ASSETS"]).glob("asset.*")):
    s3_assets.Asset(stack, path.name, path=str(path))
app.synth()
