"""What the library uses of CDK and jsii that they do not document: it is there, and one file uses it."""

from __future__ import annotations

import re

import pytest
from aws_cdk import CfnResource, LegacyStackSynthesizer
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_sagemaker as sagemaker

from cdk_hyperpod._common.dependencies import AtSynth
from test_layers import MODULES

MEMBERS = [
    (CfnResource, "_cfn_properties"),
    (sagemaker.CfnCluster, "_cfn_properties"),
    (sagemaker.CfnCluster, "_render_properties"),
    (ec2.SubnetSelection(), "_values"),
    (LegacyStackSynthesizer, "_synthesize_template"),
    (ec2.IVpc, "_is_protocol"),
    (ec2.Vpc, "__jsii_type__"),
    (AtSynth, "__jsii_ifaces__"),
    (AtSynth(list), "__jsii_ref__"),
]


@pytest.mark.parametrize(("owner", "member"), MEMBERS, ids=lambda value: value if isinstance(value, str) else "")
def test_cdk_has_the_private_member(owner: object, member: str) -> None:
    assert hasattr(owner, member), f"this release of CDK has no {member} of {owner}; see _cdk_private.py"


def test_one_file_uses_them() -> None:
    used = re.compile("|".join(rf"[.\"]{member}\b" for _, member in MEMBERS))
    assert {module for module, path in MODULES.items() if used.search(path.read_text("utf-8"))} == {"_cdk_private"}
