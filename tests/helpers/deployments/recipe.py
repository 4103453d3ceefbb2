"""The least-privilege policies and the boundary, created and bootstrapped as docs/deploy-permissions.md describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cdk_hyperpod_local.cdk import Cdk
from cdk_hyperpod_local.session import LocalAws
from helpers.synthesis import ROOT

Json = Any
BOUNDARY, KEEPER = "cluster-boundary", "keep-the-boundary"


def make_policies(engine: LocalAws) -> dict[str, str]:
    """Every policy of docs/bootstrap and docs/boundary: name -> ARN."""
    iam = engine.client("iam")
    files = [file for folder in ("bootstrap", "boundary") for file in sorted((ROOT / "docs" / folder).glob("*.json"))]
    return {
        file.stem: iam.create_policy(PolicyName=file.stem, PolicyDocument=file.read_text("utf-8"))["Policy"]["Arn"]
        for file in files
    }


def context(qualifier: str) -> Json:
    """The context in cdk.json."""
    return {
        "@aws-cdk/core:bootstrapQualifier": qualifier,
        "@aws-cdk/core:permissionsBoundary": {"name": BOUNDARY},
    }


def bootstrap(engine: LocalAws, qualifier: str, policies: Sequence[str]) -> None:
    """Let CloudFormation deploy with only these policies. `qualifier`: distinguishes this bootstrap from others."""
    made = Cdk(place=engine.place, region=engine.region).bootstrap(
        *("--qualifier", qualifier, "--toolkit-stack-name", f"CDKToolkit-{qualifier}"),
        *("--cloudformation-execution-policies", ",".join(policies)),
    )
    assert made.ok, made.reason
