"""CloudFormation's pseudo parameters. Each look-up in `Aws` is a call to Node, so they are read once."""

from __future__ import annotations

from aws_cdk import Aws

ACCOUNT_ID = Aws.ACCOUNT_ID
PARTITION = Aws.PARTITION
REGION = Aws.REGION
URL_SUFFIX = Aws.URL_SUFFIX
