"""docs/ci.md and the workflow that it is about name the same things."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from cdk_hyperpod.cli import frame
from helpers.pages import blocks
from helpers.repository import ROOT

Json = Any
PAGE = (ROOT / "docs" / "ci.md").read_text("utf-8")
WORKFLOW: Json = yaml.safe_load((ROOT / "constructs/cdk_hyperpod/_project/github.yml").read_text("utf-8"))
OF_DRAINS = {"s3:GetObject", "s3:ListBucket", "kms:Decrypt"}
"""Only of a cluster with `slurm.drain`: the page names them below the policy."""


def documents() -> list[Json]:
    """Trust and policy of the plan role, and of the deploy role."""
    return [json.loads(block.text) for block in blocks(PAGE) if block.language == "json"]


def test_only_the_jobs_that_need_a_role_may_assume_it() -> None:
    trusts = [document["Statement"][0]["Condition"]["StringEquals"] for document in documents()[::2]]
    plan, deploy = (trust["token.actions.githubusercontent.com:sub"] for trust in trusts)
    environment = WORKFLOW["jobs"]["deploy"]["environment"]
    assert deploy == f"repo:OWNER/REPO:environment:{environment}"
    # PyYAML reads the key `on` as a boolean.
    (branch,) = WORKFLOW[True]["push"]["branches"]
    assert plan == ["repo:OWNER/REPO:pull_request", f"repo:OWNER/REPO:ref:refs/heads/{branch}"]


def test_the_page_names_what_the_reader_sets() -> None:
    text = (ROOT / "constructs/cdk_hyperpod/_project/github.yml").read_text("utf-8")
    variables = set(re.findall(r"vars\.(\w+)", text))
    assert variables == {"AWS_PLAN_ROLE", "AWS_DEPLOY_ROLE"}
    seconds = re.findall(r"role-duration-seconds: (\d+)", text)
    wanted = [*variables, WORKFLOW["jobs"]["check"]["name"], f"--max-session-duration {seconds[0]}"]
    assert [word for word in wanted if word not in PAGE] == []


def test_workflows_of_two_clusters_do_not_cancel_each_other() -> None:
    """GitHub compares the concurrency groups of all workflows of a repository."""
    groups = [WORKFLOW["concurrency"]["group"], WORKFLOW["jobs"]["deploy"]["concurrency"]["group"]]
    assert [group for group in groups if "${{ github.workflow }}" not in group] == []
    assert "{name}" in WORKFLOW["name"]


@pytest.mark.parametrize("command", ["plan", "why"])
def test_the_read_policy_has_what_the_commands_need(command: str) -> None:
    found = frame.tool.get_command(None, command)  # type: ignore[arg-type]
    assert found is not None
    listed = re.search(r"^IAM permissions: (.*)\.$", f"{found.help}\n{found.epilog}", re.MULTILINE)
    assert listed is not None
    allowed = {action for statement in documents()[1]["Statement"] for action in statement["Action"]}
    assert set(listed[1].split(", ")) - OF_DRAINS <= allowed
    assert [action for action in OF_DRAINS if action not in PAGE] == []
