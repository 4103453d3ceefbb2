"""cdk-nag, CDK's template checks and cfn-lint over every config and example: nothing is found without a reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
FILES = ["cluster.yaml", *sorted(f"tests/configs/{path.name}" for path in (ROOT / "tests" / "configs").glob("*.yaml"))]
EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/cdk.json"))
CASES = [*FILES, *EXAMPLES]
CLUSTERS = [case for case in CASES if case != "elastic_training"]  # which has an image's repository only

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hundred_groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster file with as many groups as HyperPod takes."""
    data = yaml.safe_load((ROOT / "cluster.yaml").read_text("utf-8"))
    controller, _, p5, trn1 = data["instance_groups"]
    groups = [{**(p5, trn1)[index % 2], "name": f"group-{index:02}", "instance_count": 4} for index in range(99)]
    path = tmp_path_factory.mktemp("hundred") / "hundred.yaml"
    path.write_text(yaml.safe_dump({**data, "instance_groups": [controller, *groups]}), "utf-8")
    return path


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, hundred_groups: Path) -> dict[str, Any]:
    """What the packs found, by case; one process for all, since starting costs more than checking."""
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "tests" / "rule_packs.py"),
            str(tmp_path_factory.mktemp("rule-packs")),
            "canary",
            str(hundred_groups),
            *CASES,
        ],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != "CDK_VALIDATION"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    found["hundred groups"] = found.pop(str(hundred_groups))
    return found


def test_the_packs_do_look(results: dict[str, Any]) -> None:
    rules = {finding.split()[0] for finding in results["canary"]["findings"]}
    assert {"AwsSolutions-S1", "NIST.800.53.R5-S3BucketVersioningEnabled", "F3031"} <= rules


@pytest.mark.parametrize("case", [*CASES, "hundred groups"])
def test_nothing_is_found_that_has_no_reason(case: str, results: dict[str, Any]) -> None:
    assert results[case]["findings"] == []


@pytest.mark.parametrize("case", CLUSTERS)
def test_every_reason_is_a_sentence(case: str, results: dict[str, Any]) -> None:
    acknowledged = results[case]["acknowledged"]
    assert acknowledged
    for rule, construct, reason in acknowledged:
        sentence = len(reason) >= 30 and len(reason.split()) >= 6 and reason[0].isupper() and reason.endswith(".")
        assert sentence, f"{rule} on {construct}: {reason!r}"


@pytest.mark.parametrize("case", CLUSTERS)
def test_what_lambda_functions_cannot_have_is_acknowledged_and_not_mended(case: str, results: dict[str, Any]) -> None:
    rules = {rule.rpartition("::")[2] for rule, _, _ in results[case]["acknowledged"]}
    assert {f"NIST.800.53.R5-Lambda{what}" for what in ("Concurrency", "DLQ", "InsideVPC")} <= rules


def test_cfn_lint_has_nothing_to_say(results: dict[str, Any]) -> None:
    templates = [
        str(path)
        for case, result in results.items()
        if case != "canary"
        for path in sorted(Path(result["outdir"]).glob("*.template.json"))
    ]
    under_eks = [path for path in FILES if "orchestrator: eks" in (ROOT / path).read_text("utf-8")]
    # Two stacks of a file, four under EKS; one of an example, three of the one under EKS.
    assert len(templates) == 2 * (len(FILES) + 1) + 2 * len(under_eks) + len(EXAMPLES) + 2
    linted = subprocess.run(
        [str(Path(sys.executable).parent / "cfn-lint"), *templates],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (linted.returncode, linted.stdout, linted.stderr) == (0, "", "")
