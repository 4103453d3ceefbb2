"""GitHub's runner for a test: the `run` steps of a job run as they stand, with bash, in a folder of the job's own.

Actions, which cannot run here, have a stand-in each. A test gives the contexts (`github`, `vars`) and an environment.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from helpers.github.expressions import evaluate, filled

Json = Any
_COMMAND = re.compile(r"^\s*::(?P<name>[\w-]+)(?: [^:]*)?::(?P<value>.*)$|##\[(?P<old>[\w-]+)[^\]]*\](?P<rest>.*)$")
"""A line that the runner obeys: the form of today, and the older one, which it accepts anywhere in a line."""
_LONGEST_SECONDS = 900


@dataclass(frozen=True, kw_only=True)
class Step:
    name: str
    outcome: str
    log: str


@dataclass(kw_only=True)
class Job:
    """One run of a job."""

    folder: Path
    """The checkout."""
    temporary: Path
    environment: dict[str, str]
    contexts: dict[str, Json]
    steps: list[Step] = field(default_factory=list)
    obeyed: list[tuple[str, str]] = field(default_factory=list)
    """Workflow commands that the runner found in the logs: name and value."""
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""

    @property
    def result(self) -> str:
        return "failure" if any(step.outcome == "failure" for step in self.steps) else "success"

    def outcomes(self) -> dict[str, str]:
        return {step.name: step.outcome for step in self.steps}

    def log(self) -> str:
        return "\n".join(step.log for step in self.steps)


Action = Callable[[Job, Mapping[str, str]], None]


@dataclass(frozen=True, kw_only=True)
class Runner:
    workflow: Json
    actions: Mapping[str, Action]
    """owner/name of each action -> what it does here."""
    environment: Mapping[str, str]

    @classmethod
    def of(cls, file: Path, actions: Mapping[str, Action], environment: Mapping[str, str]) -> Runner:
        return cls(workflow=yaml.safe_load(file.read_text("utf-8")), actions=actions, environment=environment)

    def runs(self, job: str, contexts: Mapping[str, Json]) -> bool:
        """Whether the `if` of a job lets it run, after jobs whose results are in `contexts`."""
        condition = self.workflow["jobs"][job].get("if", "")
        needs_passed = all(each["result"] == "success" for each in contexts.get("needs", {}).values())
        return _may_run(condition, contexts, is_well=needs_passed)

    def run(self, name: str, folder: Path, contexts: Mapping[str, Json]) -> Job:
        """Run the steps of a job in `folder`, which is empty."""
        job_text = self.workflow["jobs"][name]
        temporary = folder / "temp"
        checkout = folder / "checkout"
        for made in (temporary, checkout):
            made.mkdir(parents=True)
        contexts = {**contexts, "runner": {"temp": str(temporary)}, "steps": {}}
        own = {key: filled(str(value), contexts) for key, value in job_text.get("env", {}).items()}
        github = {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": contexts["github"]["event_name"],
            "GITHUB_REPOSITORY": contexts["github"]["repository"],
            "GITHUB_SHA": contexts["github"]["sha"],
            "GITHUB_WORKFLOW": self.workflow["name"],
            "RUNNER_TEMP": str(temporary),
        }
        job = Job(
            folder=checkout,
            temporary=temporary,
            environment={**self.environment, **github, **own},
            contexts={**contexts, "env": own},
        )
        for step in job_text["steps"]:
            self._step(job, step)
        job.outputs = {key: filled(text, job.contexts) for key, text in job_text.get("outputs", {}).items()}
        return job

    def _step(self, job: Job, step: Json) -> None:
        name = step.get("name") or step["uses"].partition("@")[0]
        if not _may_run(step.get("if", ""), job.contexts, is_well=job.result == "success"):
            done = Step(name=name, outcome="skipped", log="")
        elif "uses" in step:
            given = {key: filled(str(value), job.contexts) for key, value in step.get("with", {}).items()}
            self.actions[step["uses"].partition("@")[0]](job, given)
            done = Step(name=name, outcome="success", log="")
        else:
            done = self._bash(job, name, step)
        job.steps.append(done)
        if "id" in step:
            job.contexts["steps"].setdefault(step["id"], {"outputs": {}})["outcome"] = done.outcome

    def _bash(self, job: Job, name: str, step: Json) -> Step:
        files = {each: job.temporary / f"{len(job.steps)}-{each}" for each in ("OUTPUT", "PATH", "STEP_SUMMARY", "ENV")}
        for file in files.values():
            file.touch()
        own = {key: filled(str(value), job.contexts) for key, value in step.get("env", {}).items()}
        script = job.temporary / f"{len(job.steps)}.sh"
        script.write_text(step["run"], "utf-8")
        assert "${{" not in step["run"], "an expression in a script"
        default = self.workflow["defaults"]["run"]["working-directory"]
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=job.folder / filled(step.get("working-directory", default), job.contexts),
            env={**job.environment, **own, **{f"GITHUB_{each}": str(file) for each, file in files.items()}},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LONGEST_SECONDS,
            check=False,
        )
        job.obeyed += _obeyed(done.stdout)
        job.summary += files["STEP_SUMMARY"].read_text("utf-8")
        added = files["PATH"].read_text("utf-8").splitlines()
        job.environment["PATH"] = os.pathsep.join([*reversed(added), job.environment["PATH"]])
        if "id" in step:
            outputs = dict(_assigned(files["OUTPUT"].read_text("utf-8")))
            job.contexts["steps"][step["id"]] = {"outputs": outputs}
        return Step(name=name, outcome="failure" if done.returncode else "success", log=done.stdout)


def _may_run(condition: str, contexts: Mapping[str, Json], *, is_well: bool) -> bool:
    """Whether a job or a step runs: `condition` without a status function holds only while all is well."""
    if not condition:
        return is_well
    condition = condition.replace("always()", "always")
    holds = bool(evaluate(condition, contexts, {"always": True}))
    return holds and (is_well or "always" in condition)


def _obeyed(log: str) -> Iterator[tuple[str, str]]:
    resume = None
    for line in log.splitlines():
        found = _COMMAND.search(line)
        if found is None:
            continue
        name, value = found["name"] or found["old"], found["value"] or found["rest"] or ""
        if resume is not None:
            resume = None if name == resume else resume
        elif name == "stop-commands":
            resume = value
        else:
            yield name, value


def _assigned(text: str) -> Iterator[tuple[str, str]]:
    """The outputs in a file of $GITHUB_OUTPUT: `name=value`, or `name<<END` and lines up to END."""
    lines = iter(text.splitlines())
    for line in lines:
        name, operator, value = re.fullmatch(r"([\w-]+)(=|<<)(.*)", line).groups()  # type: ignore[union-attr]
        if operator == "=":
            yield name, value
            continue
        block = []
        for inner in lines:
            if inner == value:
                break
            block.append(inner)
        yield name, "\n".join(block)
