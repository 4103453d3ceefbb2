"""The page on the constructs in an app of one's own: all of its code, in one stack."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from aws_cdk import RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns

import cdk_hyperpod
from helpers.synthesis import ROOT, needs, of_stack

CDK = {
    "RemovalPolicy": RemovalPolicy,
    "cloudwatch": cloudwatch,
    "ec2": ec2,
    "iam": iam,
    "kms": kms,
    "logs": logs,
    "s3": s3,
    "sns": sns,
    "targets": targets,
}


def test_the_code_of_the_page_synthesizes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "library.md").read_text("utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    ours = {name: getattr(cdk_hyperpod, name) for name in cdk_hyperpod.__all__}
    (tmp_path / "page.py").write_text(code, "utf-8")
    template = of_stack(lambda stack: runpy.run_path(str(tmp_path / "page.py"), {**ours, **CDK, "self": stack}))
    assert len(template.of("AWS::SageMaker::Cluster")) == 3
    assert len(template.of("Custom::HyperPodScaleDown")) == 3
    assert not [name for name in template.resources if name in needs(template, name)]
