"""The uploads of lifecycle scripts: a function of ours, and a resource for each folder that it uploads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from aws_cdk import CustomResource, Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct, DependencyGroup, IDependable

from .._common import reasons
from .._common.acknowledge import acknowledge, policy_wildcards
from .._common.functions import python_function
from .._common.pseudo import PARTITION
from .._lambda.hyperpod.uploader.content import KIND, mark
from .script_folder import write_files

_TOKEN = re.compile(r"\$\{Token\[[^\]]*\]\}")
_TIMEOUT = Duration.minutes(20)
"""The function answers within 5 minutes, and Lambda retries a crashed one twice."""


class ScriptUploads(Construct):
    """A function that writes folders into a bucket, each under the hash of its content (docs/adr/0020).

    Whoever invokes it can repeat an upload, and nothing else. Cost: one small function that runs when scripts change.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster_name: str,
        bucket: s3.IBucket,
        bucket_key: kms.IKey | None,
        folder: str,
        log_group: logs.ILogGroup,
    ) -> None:
        """`folder`: the prefix of all uploads. `bucket_key`: None if the bucket has no key of KMS, or an unknown one."""
        super().__init__(scope, construct_id)
        self._bucket, self._bucket_key, self._folder, self._log = bucket, bucket_key, folder, log_group
        self._description = f"Uploads the lifecycle scripts of HyperPod cluster {cluster_name}"
        self._deploy_values: dict[str, str] = {}
        self._function: lambda_.Function | None = None
        self._before = DependencyGroup()
        self.role = iam.Role(
            self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"), description=self._description
        )

    def come_after(self, *others: IDependable) -> None:
        """Upload nothing before these exist."""
        self._before.add(*others)

    def mark_values(self, settings: str) -> str:
        """The settings with a mark for each value that is known at deployment only. The function fills the values in.

        The text of a token contains a number that any change of the app may change. A mark does not.
        """
        return _TOKEN.sub(lambda found: self._mark(found[0]), settings)

    def _mark(self, token: str) -> str:
        found = mark(Stack.of(self).resolve(token))
        self._deploy_values[found] = token
        return found

    def add(self, construct_id: str, files: Mapping[str, bytes], digest: str, staging: Path) -> CustomResource:
        """Upload these files. `digest`: the hash of their content. `staging`: a folder of this synthesis."""
        folder = write_files(files.items(), staging / digest)
        asset = s3_assets.Asset(self, f"{construct_id}Files", path=str(folder))
        if self._function is None:
            self._function = self._make_function(asset.s3_bucket_name)
        # All values so far: this replaces the variable.
        self._function.add_environment("VALUES", Stack.of(self).to_json_string(self._deploy_values))
        resource = CustomResource(
            self,
            construct_id,
            resource_type=KIND,
            service_token=self._function.function_arn,
            service_timeout=_TIMEOUT,
            # CloudFormation repeats the upload if a value changes. The function reads the values from its own environment.
            properties={"Hash": digest, "Asset": asset.s3_object_key, "Values": self._deploy_values},
        )
        resource.node.add_dependency(self._before)
        return resource

    def _make_function(self, assets: str) -> lambda_.Function:
        """`assets`: CDK's bucket of assets, which every asset of a stack is in."""
        self.come_after(self._allow_copying(assets))
        return python_function(
            self,
            "Function",
            handler="hyperpod.uploader.handler.handle",
            description=self._description,
            role=self.role,
            log_group=self._log,
            environment={"ASSETS": assets, "BUCKET": self._bucket.bucket_name, "FOLDER": self._folder},
        )

    def _allow_copying(self, assets: str) -> iam.CfnManagedPolicy:
        statements: list[dict[str, object]] = [
            {"Action": "s3:GetObject", "Resource": f"arn:{PARTITION}:s3:::{assets}/*.zip"},
            # It has no permission to decrypt what it gets: it only sees whether an earlier upload is there.
            {"Action": ["s3:GetObject", "s3:PutObject"], "Resource": self._bucket.arn_for_objects(f"{self._folder}/*")},
            {"Action": ["logs:CreateLogStream", "logs:PutLogEvents"], "Resource": self._log.log_group_arn},
        ]
        if self._bucket_key is not None:
            statements.append({"Action": "kms:GenerateDataKey", "Resource": self._bucket_key.key_arn})
        policy = iam.CfnManagedPolicy(
            self,
            "Policy",
            description=self._description,
            roles=[self.role.role_name],
            policy_document={
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", **statement} for statement in statements],
            },
        )
        wildcards = policy_wildcards(Stack.of(self).resolve(statements))
        acknowledge(policy, dict.fromkeys(wildcards, reasons.UPLOAD))
        return policy
