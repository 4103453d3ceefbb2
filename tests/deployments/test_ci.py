"""The workflow of `init --ci github`: its steps run as they stand, in a checkout of a repository, with the local AWS as AWS.

The roles have the policies of docs/ci.md. The library comes from its wheel, as that page says.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdk_hyperpod_local import environment as local_environment
from cdk_hyperpod_local.session import LocalAws
from helpers.github.runner import Job, Runner
from helpers.pages import blocks, named
from helpers.synthesis import ROOT

Json = Any
NAME = "in-ci"
REPOSITORY = "acme/cluster"
MAIN = "refs/heads/main"
_GH = """\
#!{python}
# `gh api` for main's newest commit, and for comments of one pull request, which are in a file. Pages have two comments.
import json
import subprocess
import sys
from pathlib import Path

file = Path({file!r})
comments = json.loads(file.read_text())
words = sys.argv[1:]
assert words.pop(0) == "api", words
if words == ["repos/acme/cluster/commits/main", "--jq", ".sha"]:
    subprocess.run(["git", "-C", {origin!r}, "rev-parse", "main"], check=True)
    raise SystemExit
if words[0] == "--paginate":
    assert words[1:] == ["--slurp", "repos/acme/cluster/issues/7/comments"], words
    print(json.dumps([comments[at : at + 2] for at in range(0, len(comments), 2)]))
    raise SystemExit
silent, option, method, path, flag, assigned = words
assert (silent, option, flag) == ("--silent", "--method", "-f"), words
name, _, body = assigned.partition("=")
assert name == "body" and len(body) <= 65536
if method == "POST":
    assert path == "repos/acme/cluster/issues/7/comments", path
    comments.append({{"id": len(comments) + 1, "user": {{"login": "github-actions[bot]"}}, "body": body}})
else:
    assert method == "PATCH", method
    (comment,) = (each for each in comments if path == f"repos/acme/cluster/issues/comments/{{each['id']}}")
    comment["body"] = body
file.write_text(json.dumps(comments))
"""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the workflow: its jobs that were not skipped."""

    jobs: dict[str, Job] = field(default_factory=dict)

    def results(self) -> dict[str, str]:
        return {name: job.result for name, job in self.jobs.items()}

    def log(self) -> str:
        return "\n".join(job.log() for job in self.jobs.values())


class Hub:
    """A repository on GitHub, with its comments and variables."""

    def __init__(self, aws: LocalAws, folder: Path, python: Path) -> None:
        self.aws, self.folder, self.python = aws, folder, python
        self.variables: dict[str, str] = {}
        self._runs = 0
        self.origin = folder / "origin"
        self._comments = folder / "comments.json"
        others = [{"id": 1, "user": {"login": "alice"}, "body": f"<!-- cdk-hyperpod: Cluster {NAME} --> forged"}] * 3
        self._comments.write_text(json.dumps(others), "utf-8")
        programs = folder / "programs"
        programs.mkdir()
        (programs / "gh").write_text(
            _GH.format(python=sys.executable, file=str(self._comments), origin=str(self.origin)), "utf-8"
        )
        (programs / "gh").chmod(0o755)
        own = local_environment.complete(aws.place, region=aws.region, account=aws.account)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "VIRTUAL_ENV"):
            own.pop(name, None)
        own["PATH"] = os.pathsep.join([str(python), str(programs), own["PATH"]])
        # npm asks its registry, and the CDK CLI the engine.
        authorities = folder / "authorities.pem"
        texts = [Path(file).read_text("utf-8") for file in _authorities(own["NODE_EXTRA_CA_CERTS"])]
        authorities.write_text("\n".join(texts), "utf-8")
        own |= {"NODE_EXTRA_CA_CERTS": str(authorities), "npm_config_prefer_offline": "true", "CDK_VALIDATION": "false"}
        self._environment = own
        self.git("init", "--quiet", "--initial-branch=main")
        (self.origin / "README.md").write_text("Ours.\n", "utf-8")
        self.commit("first")

    def git(self, *words: str) -> str:
        self.origin.mkdir(exist_ok=True)
        who = ["-c", "user.name=alice", "-c", "user.email=alice@example.com", "-c", "commit.gpgsign=false"]
        command = ["git", *who, *words]
        return subprocess.run(command, cwd=self.origin, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, message: str) -> None:
        self.git("add", "--all", "--force", ".")
        self.git("commit", "--quiet", "--message", message)

    def comments(self) -> list[str]:
        """The comments of the workflow."""
        found = json.loads(self._comments.read_text("utf-8"))
        return [comment["body"] for comment in found if comment["user"]["login"] != "alice"]

    def push(self) -> Run:
        """The run of main's newest commit."""
        return self._run({"event_name": "push", "ref": MAIN, "event": {}}, "main")

    def pull(self, branch: str, *, repository: str = REPOSITORY) -> Run:
        """The run of a pull request to main. `repository`: of its branch, another one for a fork."""
        self.git("checkout", "--quiet", "--detach", "main")
        self.git("merge", "--quiet", "--no-ff", "--message", "merge", branch)
        self.git("branch", "--force", "pull-7", "HEAD")
        self.git("checkout", "--quiet", branch)
        request = {"number": 7, "head": {"repo": {"full_name": repository}}}
        event = {"event_name": "pull_request", "ref": "refs/pull/7/merge", "event": {"pull_request": request}}
        return self._run(event, "pull-7")

    def merge(self, branch: str) -> Run:
        self.git("checkout", "--quiet", "main")
        self.git("merge", "--quiet", "--no-ff", "--message", "merge", branch)
        return self.push()

    def branch(self, name: str) -> None:
        self.git("checkout", "--quiet", "-b", name, "main")

    def _run(self, event: Json, ref: str) -> Run:
        self._runs += 1
        runner = self._runner(ref)
        github = {"repository": REPOSITORY, "token": "t", "sha": self.git("rev-parse", ref), **event}
        contexts: dict[str, Json] = {"github": github, "vars": self.variables, "needs": {}}
        run = Run()
        for name, job in runner.workflow["jobs"].items():
            needed = contexts if "needs" not in job else {**contexts, "needs": {"check": contexts["check"]}}
            if runner.runs(name, needed):
                done = runner.run(name, self.folder / f"run-{self._runs}" / name, needed)
                run.jobs[name] = done
                contexts[name] = {"result": done.result, "outputs": done.outputs}
        return run

    def step_of_an_older_run(self, job: str, step: str) -> Job:
        """One step of a job, in the run of the commit before main's newest."""
        runner = self._runner("main")
        steps = [each for each in runner.workflow["jobs"][job]["steps"] if each.get("name") == step]
        runner.workflow["jobs"][job]["steps"] = steps
        event = {"event_name": "push", "ref": MAIN, "event": {}, "sha": self.git("rev-parse", "main^")}
        contexts = {"github": {"repository": REPOSITORY, "token": "t", **event}, "vars": {}, "needs": {}}
        self._runs += 1
        return runner.run(job, self.folder / f"run-{self._runs}" / job, contexts)

    def _runner(self, ref: str) -> Runner:
        workflow = self.origin / ".github" / "workflows" / "cluster.yml"
        return Runner.of(workflow, self._actions(ref), self._environment)

    def _actions(self, ref: str) -> Json:
        return {
            "actions/checkout": lambda job, given: self._checkout(job, given, ref),
            "actions/setup-python": lambda job, given: None,
            "aws-actions/configure-aws-credentials": self._assume,
        }

    def _checkout(self, job: Job, given: Mapping[str, str], ref: str) -> None:
        for words in (
            ["init", "--quiet"],
            ["fetch", "--quiet", "--depth", given.get("fetch-depth", "1"), f"file://{self.origin}", ref],
            ["checkout", "--quiet", "--detach", "FETCH_HEAD"],
        ):
            subprocess.run(["git", *words], cwd=job.folder, check=True, capture_output=True)

    def _assume(self, job: Job, given: Mapping[str, str]) -> None:
        assert given["aws-region"] == self.aws.region
        assumed = self.aws.client("sts").assume_role(RoleArn=given["role-to-assume"], RoleSessionName="ci")
        keys = assumed["Credentials"]
        job.environment |= {
            "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
            "AWS_SESSION_TOKEN": keys["SessionToken"],
        }


def _authorities(of_the_engine: str) -> list[str]:
    machine = os.environ.get("NODE_EXTRA_CA_CERTS")
    return [of_the_engine, *([machine] if machine else [])]


def _install_python(folder: Path, wheel: Path) -> None:
    """What `actions/setup-python` gives a job. It has the packages of this project, so that pip finds most of them installed."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(pip, check=True)
    (packages,) = folder.glob("lib/*/site-packages")
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")


@pytest.fixture(scope="module")
def hub(engine: LocalAws, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A repository whose branch `new` has the files of `init --ci github`, and whose main has none of them yet."""
    folder = tmp_path_factory.mktemp("hub")
    _install_python(folder / "python", wheel)
    found = Hub(engine, folder, folder / "python" / "bin")
    found.branch("new")
    init = [
        str(found.python / "cdk-hyperpod"),
        "init",
        "--name",
        NAME,
        "--region",
        engine.region,
        "--ci",
        "github",
        "--yes",
    ]
    subprocess.run(init, cwd=found.origin, check=True)
    assert (found.origin / wheel.name).read_bytes() == wheel.read_bytes()
    found.commit("init")
    yield found


@pytest.fixture
def begun(hub: Hub) -> Hub:
    """The same, after the files are in main."""
    found = subprocess.run(["git", "cat-file", "-e", "main:requirements.lock"], cwd=hub.origin, check=False)
    if found.returncode:
        hub.git("checkout", "--quiet", "new")
        lock(hub)
        hub.git("checkout", "--quiet", "main")
        hub.git("merge", "--quiet", "--no-ff", "--message", "merge", "new")
    return hub


def lock(hub: Hub) -> None:
    """Write requirements.lock by the command that requirements.txt names."""
    text = (hub.origin / "requirements.txt").read_text("utf-8")
    (command,) = re.findall(r"^#   (uv pip compile .*)$", text, re.MULTILINE)
    uv = str(ROOT / ".tools" / "bin")
    shell = ["bash", "-ec", command]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([uv, os.environ["PATH"]]),
        "UV_CONSTRAINT": str(ROOT / "requirements" / "dev.lock"),  # the versions that are installed
    }
    subprocess.run(shell, cwd=hub.origin, check=True, env=environment)
    hub.commit("lock")


def add_roles(hub: Hub) -> None:
    """The roles of docs/ci.md. The engine has no tokens of GitHub, so the account may assume them."""
    pieces = {"111122223333": hub.aws.account, "train": NAME}
    page = (ROOT / "docs" / "ci.md").read_text("utf-8")
    _, read, _, deploy = (named(block.text, pieces) for block in blocks(page) if block.language == "json")
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": hub.aws.account}}
    iam = hub.aws.client("iam")
    for role, policies in (("plan", {"read": read}), ("deploy", {"read": read, "deploy": deploy})):
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        made = iam.create_role(RoleName=f"hyperpod-{role}", AssumeRolePolicyDocument=document)
        for name, policy in policies.items():
            iam.put_role_policy(RoleName=f"hyperpod-{role}", PolicyName=name, PolicyDocument=policy)
        hub.variables[f"AWS_{role.upper()}_ROLE"] = made["Role"]["Arn"]


def change(hub: Hub, edit: Mapping[str, Json]) -> None:
    """Change settings of the group `compute`, or of the whole file."""
    file = hub.origin / "cluster.yaml"
    content = yaml.safe_load(file.read_text("utf-8"))
    content["instance_groups"][1].update(edit.get("compute", {}))
    content.update({key: value for key, value in edit.items() if key != "compute"})
    file.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
    hub.commit("change")


def test_from_the_first_pull_request_to_a_deletion(hub: Hub) -> None:
    # The first pull request: main has no cluster file and no lock, and AWS is not set up.
    first = hub.pull("new")
    assert first.results() == {"check": "success", "comment": "success"}, first.log()
    assert (
        "warning",
        "requirements.lock is missing, and a deployment needs it. Write it, as requirements.txt says.",
    ) in (first.jobs["check"].obeyed)
    (comment,) = hub.comments()
    assert f"<!-- cdk-hyperpod: Cluster {NAME} -->\n### Cluster {NAME}\n" in comment
    assert "The base branch has no cluster.yaml: the whole file is new." in comment
    assert "Skipped: the repository has no variable AWS_PLAN_ROLE" in comment

    # A later commit updates the comment.
    lock(hub)
    again = hub.pull("new")
    assert again.results() == {"check": "success", "comment": "success"}, again.log()
    assert [command for command in again.jobs["check"].obeyed if command[0] == "warning"] == []
    assert len(hub.comments()) == 1

    # Merged before AWS is set up: nothing is deployed, and the run says so.
    merged = hub.merge("new")
    assert merged.results() == {"check": "success"}, merged.log()
    assert "the repository has no variable AWS_DEPLOY_ROLE" in merged.log()

    add_roles(hub)
    deployed = hub.push()
    assert deployed.results() == {"check": "success", "deploy": "success"}, deployed.log()
    assert "lack the permission" not in deployed.log()
    assert f"There is no cluster {NAME} yet" in deployed.jobs["check"].summary
    groups = hub.aws.client("sagemaker").describe_cluster(ClusterName=NAME)["InstanceGroups"]
    assert {group["InstanceGroupName"]: group["CurrentCount"] for group in groups} == {"controller": 1, "compute": 2}

    # A pull request that deletes a node is green, and its comment warns.
    hub.branch("smaller")
    listed = hub.aws.client("sagemaker").list_cluster_nodes(ClusterName=NAME, InstanceGroupNameContains="compute")
    node = listed["ClusterNodeSummaries"][0]["InstanceId"]
    change(hub, {"compute": {"instance_count": 1}, "scale_down": {"nodes_to_delete": [node]}})
    smaller = hub.pull("smaller")
    assert smaller.results() == {"check": "success", "comment": "success"}, smaller.log()
    (comment,) = hub.comments()
    assert "> [!WARNING]\n> A deployment would delete nodes or groups." in comment
    assert node in comment and "instance_count: 2 → 1" in comment
    assert comment.count("```") == 4, "the plan and the changed settings"
    gone = hub.merge("smaller")
    assert gone.results() == {"check": "success", "deploy": "success"}, gone.log()
    left = hub.aws.client("sagemaker").list_cluster_nodes(ClusterName=NAME, InstanceGroupNameContains="compute")
    assert node not in {each["InstanceId"] for each in left["ClusterNodeSummaries"]}
    assert "lack the permission" not in gone.log()

    checks = [check for role in ("hyperpod-plan", "hyperpod-deploy") for check in hub.aws.checks(role=role)]
    assert checks and [check for check in checks if not check.allowed] == []

    # A pull request that the guard would refuse is red, and its comment says why.
    hub.branch("refused")
    unknown = "i-0123456789abcdef0"
    change(
        hub, {"compute": {"instance_count": 0, "min_instance_count": 0}, "scale_down": {"nodes_to_delete": [unknown]}}
    )
    refused = hub.pull("refused")
    assert refused.results() == {"check": "failure", "comment": "success"}, refused.log()
    assert refused.jobs["check"].outcomes()["Plan"] == "failure"
    assert "the deployment would be refused" in hub.comments()[0] and unknown in hub.comments()[0]


def test_an_approval_after_that_of_a_later_run_deploys_nothing(begun: Hub) -> None:
    first, *_ = yaml.safe_load((begun.origin / ".github/workflows/cluster.yml").read_text("utf-8"))["jobs"]["deploy"][
        "steps"
    ]
    older = begun.step_of_an_older_run("deploy", first["name"])
    assert older.outcomes() == {"Stop if main has a newer commit": "failure"}, older.log()
    newest = begun.git("rev-parse", "main")
    assert older.obeyed == [
        ("error", f"main has a newer commit than this run. Approve the run of {newest} instead.")
    ], older.log()


def test_a_fork_gets_no_credentials_and_is_green(begun: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(begun.variables, "AWS_PLAN_ROLE", "arn:aws:iam::111122223333:role/none")
    begun.branch("from-a-fork")
    change(begun, {"compute": {"instance_type": "ml.m5.2xlarge"}})
    before = begun.comments()
    run = begun.pull("from-a-fork", repository="mallory/cluster")
    assert run.results() == {"check": "success"}, run.log()
    assert "Skipped: a pull request from a fork gets no AWS credentials." in run.jobs["check"].summary
    assert begun.comments() == before


def test_text_from_a_forged_file_is_no_command_or_markdown_in_the_comment(begun: Hub) -> None:
    begun.branch("forged")
    bad = "x\n```\n# <b>@all</b>\n::error::forged\n##[error]forged\n"
    (begun.origin / "app.py").write_text(f"import sys\nsys.exit({bad!r} + 'é' * 20000)\n", "utf-8")
    begun.commit("forged")
    run = begun.pull("forged")
    assert run.results() == {"check": "failure", "comment": "success"}, run.log()
    assert run.jobs["check"].outcomes()["Synthesize"] == "failure"
    assert "::error::forged" in run.log() and [each for each in run.jobs["check"].obeyed if "forged" in each[1]] == []
    (comment,) = begun.comments()
    text = re.findall(r"^```text\n(.*?)\n```$", comment, re.MULTILINE | re.DOTALL)
    assert comment.count("```") == 2 * len(text) == 4
    assert "@all" not in re.sub(r"^```text\n.*?\n```$", "", comment, flags=re.MULTILINE | re.DOTALL)
    assert "… the rest is in the log of the run." in comment


def test_a_file_of_the_base_branch_that_cannot_be_read_is_not_this_ones_mistake(begun: Hub) -> None:
    begun.branch("newer")
    begun.git("checkout", "--quiet", "main")
    good = (begun.origin / "cluster.yaml").read_text("utf-8")
    change(begun, {"of_another_version": True})
    begun.git("checkout", "--quiet", "newer")
    begun.git("merge", "--quiet", "main")
    (begun.origin / "cluster.yaml").write_text(good, "utf-8")
    begun.commit("mended")
    run = begun.pull("newer")
    assert run.jobs["check"].outcomes()["Compare with the base branch"] == "success", run.log()
    (comment,) = begun.comments()
    assert "The file of the base branch cannot be compared." in comment and "of_another_version" in comment
