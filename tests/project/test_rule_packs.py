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

from cdk_hyperpod.cli.cluster_file.init import files

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    "cluster.yaml",
    *sorted(f"tests/helpers/configs/{path.name}" for path in (ROOT / "tests" / "helpers" / "configs").glob("*.yaml")),
]
EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/cdk.json"))
CASES = [*FILES, *EXAMPLES]
WRITTEN = ["hundred groups", "images", "init slurm", "init eks"]
CLUSTERS = [case for case in CASES if case != "elastic_training"]  # which has an image's repository only


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Cluster files that are not in the repository: what `init` writes, as many groups as HyperPod takes, and every setting of
    images and patches, which the checks' schemas lack in part."""
    data = yaml.safe_load((ROOT / "cluster.yaml").read_text("utf-8"))
    controller, _, p5, trn1 = data["instance_groups"]
    groups = [{**(p5, trn1)[index % 2], "name": f"group-{index:02}", "instance_count": 4} for index in range(99)]
    existing = yaml.safe_load((ROOT / "tests/helpers/configs/eks_existing.yaml").read_text("utf-8"))
    first, second, *_ = existing["instance_groups"]
    rolling = {"batch_nodes": 1, "wait_seconds": 60, "rollback_alarms": ["nccl errors"]}
    schedule = {"schedule": "cron(30 12 15 * ? *)"}
    first |= {
        "image_release_version": "1.3.0",
        "auto_patch": "when_idle",
        "scheduled_update": schedule,
        "rolling": rolling,
    }
    second |= {"image_id": "default", "auto_patch": "none", "scheduled_update": "none"}
    texts = {
        "images": yaml.safe_dump(existing),
        "hundred groups": yaml.safe_dump({**data, "instance_groups": [controller, *groups]}),
        **{f"init {each}": files("new", "us-west-2", each)["cluster.yaml"] for each in ("slurm", "eks")},
    }
    folder = tmp_path_factory.mktemp("written")
    for case in WRITTEN:
        (folder / f"{case}.yaml").write_text(texts[case], "utf-8")
    return {case: folder / f"{case}.yaml" for case in WRITTEN}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, written: dict[str, Path]) -> dict[str, Any]:
    """What the packs found, by case; one process for all, since starting costs more than checking."""
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "tests" / "helpers" / "rule_packs.py"),
            str(tmp_path_factory.mktemp("rule-packs")),
            "canary",
            *map(str, written.values()),
            *CASES,
        ],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != "CDK_VALIDATION"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    for case, path in written.items():
        found[case] = found.pop(str(path))
    return found


def test_the_rule_packs_find_errors_in_a_bad_stack(results: dict[str, Any]) -> None:
    rules = {finding.split()[0] for finding in results["canary"]["findings"]}
    assert {"AwsSolutions-S1", "NIST.800.53.R5-S3BucketVersioningEnabled", "F3031"} <= rules


@pytest.mark.parametrize("case", [*CASES, *WRITTEN])
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
def test_findings_that_do_not_fit_our_lambda_functions_are_acknowledged(case: str, results: dict[str, Any]) -> None:
    rules = {rule.rpartition("::")[2] for rule, _, _ in results[case]["acknowledged"]}
    assert {f"NIST.800.53.R5-Lambda{what}" for what in ("Concurrency", "DLQ", "InsideVPC")} <= rules


def test_cfn_lint_finds_nothing_in_any_template(results: dict[str, Any]) -> None:
    templates = [
        str(path)
        for case, result in results.items()
        if case != "canary"
        for path in sorted(Path(result["outdir"]).glob("*.template.json"))
    ]
    under_eks = [path for path in FILES if "orchestrator: eks" in (ROOT / path).read_text("utf-8")]
    # Two stacks of a file, four under EKS; one of an example, with one more of ci, monitoring_agent, gpu_prolog and
    # preemptible_queue, two more of own_stacks and of eks_cluster, and three more of eks_from_one_file.
    of_examples = len(EXAMPLES) + 4 + 2 + 2 + 3
    assert len(templates) == 2 * (len(FILES) + len(WRITTEN)) + 2 * (len(under_eks) + 2) + of_examples
    linted = subprocess.run(
        [str(Path(sys.executable).parent / "cfn-lint"), *templates],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (linted.returncode, linted.stdout, linted.stderr) == (0, "", "")
