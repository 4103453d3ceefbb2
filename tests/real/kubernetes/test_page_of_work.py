"""The tables of docs/work-of-a-team.md: which of AWS's templates and which commands of `hyp` a member may run."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cdk_hyperpod.config.teams import Team
from helpers.kubernetes.apiserver.client import Client
from helpers.kubernetes.apiserver.objects import install
from helpers.kubernetes.recipes import RESOURCES
from helpers.synthesis import ROOT

PAGE = (ROOT / "docs" / "work-of-a-team.md").read_text("utf-8")


def table(title: str) -> list[list[str]]:
    """The rows of the table below a title."""
    lines = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert len(rows) > 2, title
    return rows[2:]


TEMPLATES = {row[0].strip("`"): row for row in table("AWS's recipes")}
TEAMS: dict[str, dict[str, Any]] = {
    "": {},
    "training": {"work": ("training",)},
    "ray": {"work": ("ray",)},
    "see_nodes": {"see_nodes": True},
}


@pytest.fixture(scope="module")
def members(admin: Client) -> dict[str, tuple[str, Client]]:
    """A team's namespace and a member, for each setting that the page names."""
    named = {settings: f"page-{settings.replace('_', '-') or 'plain'}" for settings in TEAMS}
    quota = {"ml.p5.48xlarge": 1}
    return {
        settings: (name, install(admin, Team(name=name, quota=quota, **TEAMS[settings])))
        for settings, name in named.items()
    }


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_admitted_in_the_teams_that_the_page_names(
    members: dict[str, tuple[str, Client]], template: str
) -> None:
    _, kinds, work, _ = TEMPLATES[template]
    resources = [RESOURCES[kind] for kind in re.split(r", | or ", kinds)]
    admitted = {
        settings
        for settings, (namespace, member) in members.items()
        if all(member.may("create", resource, namespace) for resource in resources)
    }
    assert admitted == ({work} if work else {*TEAMS})


JOB = "hyperpodpytorchjobs.sagemaker.amazonaws.com"
OWN, OPERATORS, CLUSTER = "own", "aws-hyperpod", None
# What a command requests (the SDK 3.12), and the teams whose members may.
COMMANDS: dict[str, tuple[list[tuple[str, str, str | None]], set[str]]] = {
    "set-cluster-context": ([("list", "namespaces", CLUSTER)], {*TEAMS}),
    "hyp-pytorch-job": (
        [
            *((verb, JOB, OWN) for verb in ("create", "list", "get", "delete")),
            ("list", "pods", OWN),
            ("get", "pods/log", OWN),
            ("create", "pods/exec", OWN),
        ],
        {*TEAMS},
    ),
    "--accelerator-partition-type": ([("list", "nodes", CLUSTER), ("create", JOB, OWN)], {"see_nodes"}),
    "list-accelerator-partition-type": ([("list", "nodes", CLUSTER)], {"see_nodes"}),
    "list-cluster": ([("list", "nodes", CLUSTER), ("list", "pods", CLUSTER)], set()),
    "get-operator-logs": ([("list", "pods", OPERATORS)], set()),
    "hyp-jumpstart-endpoint": ([("create", "jumpstartmodels.inference.sagemaker.aws.amazon.com", OWN)], set()),
    "hyp-ray-dashboard-connection": (
        [("create", "raydashboardconnections.connection.access.sagemaker.amazonaws.com", OWN)],
        set(),
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_hyp_runs_for_whom_the_page_says(members: dict[str, tuple[str, Client]], command: str) -> None:
    requests, allowed = COMMANDS[command]
    may = {
        settings
        for settings, (namespace, member) in members.items()
        if all(member.may(verb, resource, namespace if place == OWN else place) for verb, resource, place in requests)
    }
    assert may == allowed
    needs = next(row[2] for row in table("`hyp`, AWS's command") if command in row[0])
    words = {"nothing more": {*TEAMS}, "`see_nodes`": {"see_nodes"}, "an administrator": set()}
    assert words[needs] == allowed
