"""Runs cdk-nag and CDK's own template checks over apps, and prints what they find; test_rule_packs.py reads it.

A program of its own, because CDK's template checks are switched on or off when its Node process starts, and the other
tests have them off. Usage: rule_packs.py OUTDIR CASE…, a case being a cluster file or the name of an example.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aws_cdk
from aws_cdk import App, Stack, Validations
from aws_cdk import aws_s3 as s3
from cdk_nag import AwsSolutionsChecks, NIST80053R5Checks

ROOT = Path(__file__).resolve().parents[2]
PACKS = {"AwsSolutions", "NIST.800.53.R5", "CloudFormation Validate"}


def main(outdir: Path, cases: list[str]) -> None:
    """Print one JSON object: findings and acknowledgements of each case."""
    print(json.dumps({case: check(case, outdir / f"{index}") for index, case in enumerate(cases)}))


def check(case: str, outdir: Path) -> dict[str, Any]:
    """The findings of the packs in one case, and the acknowledged findings with their reasons."""
    folder = ROOT if case.endswith(".yaml") or case == "canary" else ROOT / "examples" / case

    def app_with_packs() -> App:
        context = json.loads((folder / "cdk.json").read_text("utf-8"))["context"]
        app = App(
            context={**context, "aws:cdk:disable-asset-staging": True}, outdir=str(outdir), analytics_reporting=False
        )
        Validations.of(app).add_plugins(AwsSolutionsChecks(app), NIST80053R5Checks(app))
        return app

    try:
        build(case, folder, app_with_packs)
    except RuntimeError as error:
        if "ValidationFailed" not in str(error):
            raise
    return {"findings": list(findings(outdir)), "acknowledged": list(acknowledged(outdir)), "outdir": str(outdir)}


def build(case: str, folder: Path, make_app: Callable[[], App]) -> None:
    """Synthesize a case."""
    if case == "canary":
        app = make_app()
        stack = Stack(app, "Canary")
        s3.CfnBucket(stack, "Bucket", bucket_name="Not_A_Name")
        app.synth()
    elif case.endswith(".yaml"):
        from cdk_hyperpod import load_config
        from stacks import add_stacks

        app = make_app()
        add_stacks(app, load_config(ROOT / case))
        app.synth()
    else:
        original = aws_cdk.App
        try:
            aws_cdk.App = make_app  # type: ignore[assignment,misc]
            runpy.run_path(str(folder / "app.py"))
        finally:
            aws_cdk.App = original  # type: ignore[misc]


def findings(outdir: Path) -> Iterator[str]:
    """Every finding that is not acknowledged."""
    report = json.loads((outdir / "validation-report.json").read_text("utf-8"))
    for pack in report["pluginReports"]:
        for violation in pack["violations"] if pack["pluginName"] in PACKS else ():
            for construct in violation["violatingConstructs"]:
                yield f"{violation['ruleName']} {construct['constructPath']}: {violation['description']}"


def acknowledged(outdir: Path) -> Iterator[tuple[str, str, str]]:
    """Every acknowledgement: rule, construct and reason."""
    for path in sorted(outdir.glob("*.metadata.json")):
        for construct, entries in json.loads(path.read_text("utf-8")).items():
            for entry in entries:
                if entry["type"] == "aws:cdk:acknowledged-rules":
                    for rule, reason in entry["data"].items():
                        yield rule, construct, reason


if __name__ == "__main__":
    os.environ.pop("CDK_VALIDATION", None)
    sys.path.insert(0, str(ROOT))
    import app as front_door

    front_door.use_project_node()
    main(Path(sys.argv[1]), sys.argv[2:])
