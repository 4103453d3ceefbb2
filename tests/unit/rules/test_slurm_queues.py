"""Partitions, QOS, own lines and programs around jobs: what Slurm would refuse is refused at synth, all at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdk_hyperpod.config.slurm import DrainAgentConfig, SlurmConfig, SlurmFiles
from cdk_hyperpod.rules.slurm_files import MAX_CONF_BYTES, MAX_PROGRAM_BYTES, MAX_PROGRAMS, REFUSED, check_slurm_files
from helpers.findings import Found, found
from helpers.validating import SMALL, findings_of, validate

ACCOUNTS = [{"name": "research", "qos": ["low", "high"]}]
QOS: list[dict[str, Any]] = [{"name": "low"}, {"name": "high", "preempts": ["low"]}]


def queues(**settings: Any) -> dict[str, Any]:
    return {"slurm": {"accounts": ACCOUNTS, "qos": QOS, **settings}}


def test_queues_as_they_should_be() -> None:
    dev = {"state": "inactive"}
    p5 = {"default": True, "max_time_minutes": 60, "priority_tier": 10, "allow_accounts": ["research"], "state": "up"}
    assert validate(queues(partitions={"p5": p5, "dev": dev})) == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param(queues(partitions={"p4": {"default": True}}), [("partition-unknown", "slurm.partitions.p4")], id="a partition of no group"),
        pytest.param(queues(partitions={"P5": {}}), [("partition-unknown", "slurm.partitions.P5")], id="another case"),
        pytest.param(queues(partitions={"p5": {"default": True}, "dev": {"default": True}}), [("partition-default-duplicated", "slurm.partitions.dev.default")], id="two defaults"),
        pytest.param(queues(partitions={"p5": {"max_time_minutes": 0}}), [("value-out-of-range", "slurm.partitions.p5.max_time_minutes")], id="no time"),
        pytest.param(queues(partitions={"p5": {"priority_tier": 65534}}), [("value-out-of-range", "slurm.partitions.p5.priority_tier")], id="Slurm's number for none"),
        pytest.param(queues(partitions={"p5": {"state": "off"}}), [("value-not-a-choice", "slurm.partitions.p5.state")], id="no state"),
        pytest.param(queues(partitions={"p5": {"max_tim_minutes": 5}}), [("setting-misspelled", "slurm.partitions.p5.max_tim_minutes")], id="misspelled"),
        pytest.param(queues(partitions={"p5": {"allow_accounts": ["a", "a"]}}), [("value-duplicated", "slurm.partitions.p5.allow_accounts")], id="an account twice"),
        pytest.param(queues(partitions=["p5"]), [("value-not-named-settings", "slurm.partitions")], id="a list"),
        pytest.param(queues(partitions={"p5": 3}), [("value-not-settings", "slurm.partitions.p5")], id="a number"),
        pytest.param(queues(partitions={"p5; reboot": {}}), [("value-malformed", "slurm.partitions.p5; reboot"), ("partition-unknown", "slurm.partitions.p5; reboot")], id="a command"),
        pytest.param(queues(partitions={"p5": {"allow_accounts": ["ops"]}, "dev": {}}), [("partition-account-unknown", "slurm.partitions.p5.allow_accounts")], id="an account that is not in the file"),
        pytest.param(queues(partitions={"p5": {"allow_accounts": ["root"]}}), [("partition-account-root", "slurm.partitions.p5.allow_accounts")], id="everybody"),
        pytest.param(queues(partitions={"p5": {"max_time_minutes": 5}}), [("partition-dev-open", "slurm.partitions.p5")], id="a way around"),
        pytest.param(queues(partitions={"dev": {"state": "inactive"}}), [("partition-default-closed", "slurm.partitions.dev.state")], id="no partition for jobs that name none"),
        pytest.param(queues(partitions={"p5": {"default": True, "state": "down"}, "dev": {"state": "drain"}}), [("partition-default-closed", "slurm.partitions.p5.state")], id="a default that is closed"),
        pytest.param(queues(qos=[*QOS, {"name": "low"}]), [("qos-duplicated", "slurm.qos[2].name")], id="a QOS twice"),
        pytest.param(queues(qos=[*QOS, {"name": "normal"}]), [("qos-of-slurm", "slurm.qos[normal].name")], id="Slurm's own QOS"),
        pytest.param(queues(qos=[*QOS, {"name": "x=1 y"}]), [("value-malformed", "slurm.qos[x=1 y].name")], id="a QOS with more words"),
        pytest.param(queues(qos=[{"name": "low"}, {"name": "high", "preempts": ["lwo"]}]), [("qos-unknown", "slurm.qos[high].preempts")], id="preempts nothing"),
        pytest.param(queues(qos=[{"name": "low", "preempts": ["high"]}, QOS[1]]), [("qos-preempts-itself", "slurm.qos[low].preempts"), ("qos-preempts-itself", "slurm.qos[high].preempts")], id="a loop"),
        pytest.param(queues(qos=[QOS[0], {"name": "high", "preempts": ["high"]}]), [("qos-preempts-itself", "slurm.qos[high].preempts")], id="itself"),
        pytest.param(queues(qos=[QOS[0], {"name": "high", "preempts": ["normal"]}]), [], id="Slurm's own may be preempted"),
        pytest.param(queues(qos=[*QOS, {"name": "spare"}]), [("qos-unused", "slurm.qos[spare]")], id="a QOS that nobody uses"),
        pytest.param(queues(qos=[QOS[0], {**QOS[1], "preempt_mode": "cancel"}]), [("preempt-mode-unused", "slurm.qos[high].preempt_mode")], id="a mode of the wrong QOS"),
        pytest.param(queues(accounts=[{"name": "research", "qos": ["low", "hgih"]}]), [("qos-unknown", "slurm.accounts[research].qos")], id="an account with an unknown QOS"),
        pytest.param(queues(hook_seconds=30), [("hook-seconds-unused", "slurm.hook_seconds")], id="seconds of nothing"),
        pytest.param(queues(prolog="absent"), [("hooks-unreadable", "slurm.prolog")], id="no folder"),
        pytest.param(queues(conf={"gres": "absent"}), [("slurm-file-unreadable", "slurm.conf.gres")], id="no file"),
        pytest.param({**queues(), "lifecycle": {"steps": {"accounting": False}}}, [("slurm-setting-without-step", "lifecycle.steps.accounting")], id="without the step"),
        pytest.param({"slurm": {"partitions": {"dev": {"allow_accounts": ["a"]}}}, "lifecycle": {"steps": {"accounting": False}}}, [("slurm-setting-without-step", "lifecycle.steps.accounting")], id="without root's account"),
        pytest.param({**queues(partitions={"p5": {}}), "lifecycle": {"steps": {"slurm_conf": False}}}, [("slurm-setting-without-step", "lifecycle.steps.slurm_conf")], id="without the other step"),
        pytest.param({"slurm": {"qos": [{"name": "low"}], "partitions": {"p5": {}}}, "lifecycle": {"mode": "bootstrap"}}, [("slurm-setting-without-scripts", "slurm.qos"), ("slurm-setting-without-scripts", "slurm.partitions")], id="no script runs"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_where_it_is(settings: dict[str, Any], expected: Found) -> None:
    assert validate(settings) == expected


def test_a_partition_twice_is_a_duplicated_key() -> None:

    text = yaml.safe_dump(dict(SMALL)) + "slurm:\n  partitions:\n    p5: {default: true}\n    p5: {state: up}\n"
    assert found(findings_of(text)) == [("setting-duplicated", "slurm.partitions.p5")]


def lines(tmp_path: Path, name: str, content: str | bytes) -> Found:
    (tmp_path / "file").write_bytes(content if isinstance(content, bytes) else content.encode())
    config = SlurmConfig(conf=SlurmFiles(**{name: "file"}))
    return found(check_slurm_files(config, tmp_path))


@pytest.mark.parametrize("key", sorted(REFUSED["slurm"]))
def test_a_key_of_hyperpod_or_of_the_library_is_refused_however_it_is_written(tmp_path: Path, key: str) -> None:
    refused = [("slurm-line-refused", "slurm.conf.slurm")]
    for line in (
        f"{key}=x",
        f"  {key.upper()} = x  # why",
        f"MessageTimeout=9 {key.lower()}+=x",
        f"DebugFlags=a \\\n{key}=x",
        f"MailDomain='a {key}=x b'",
    ):
        assert lines(tmp_path, "slurm", f"# {key}=x\n{line}\n") == refused, line


@pytest.mark.parametrize(
    ("content", "code"),
    [
        pytest.param("MessageTimeout=60\n\n# a comment\nNodeSet=a Feature=b\nMailProg=/bin/x\n", None, id="lines"),
        pytest.param("", None, id="nothing"),
        pytest.param('Licenses="TaskPlugin=1"\n', None, id="a key in quotes is a value"),
        pytest.param("include /etc/other.conf\n", "slurm-line-include", id="another file"),
        pytest.param("MessageTimeout 60\n", "slurm-line-invalid", id="no setting"),
        pytest.param("= 60\n", "slurm-line-invalid", id="no name"),
        pytest.param("MessageTimeout=60\r\n", "slurm-file-not-text", id="line ends of Windows"),
        pytest.param(b"\xff\xfe", "slurm-file-not-text", id="not UTF-8"),
        pytest.param(b"A=\0", "slurm-file-not-text", id="a zero"),
        pytest.param("#" * (MAX_CONF_BYTES + 1), "slurm-file-too-large", id="too large"),
    ],
)
@pytest.mark.parametrize("name", ["slurm", "gres", "cgroup", "job_container"])
def test_a_line_that_slurm_could_not_read(tmp_path: Path, name: str, content: str | bytes, code: str | None) -> None:
    assert lines(tmp_path, name, content) == ([(code, f"slurm.conf.{name}")] if code else [])


@pytest.mark.parametrize(("content", "missing"), [("", 2), ("function slurm_job_submit()", 1), ("A = 'x'", 2)])
def test_slurm_loads_no_lua_file_without_its_functions(tmp_path: Path, content: str, missing: int) -> None:
    expected = [("slurm-lua-function-missing", "slurm.conf.job_submit")] * missing
    assert lines(tmp_path, "job_submit", content) == expected
    both = "function slurm_job_submit() end\nslurm_job_modify = slurm_job_submit\n"
    assert lines(tmp_path, "job_submit", both) == []


@pytest.mark.parametrize(
    ("line", "refused"), [("MinJobAge=299", True), ("minjobage = 0", True), ("MinJobAge=300", False)]
)
def test_slurm_keeps_the_agent_s_jobs_long_enough(tmp_path: Path, line: str, refused: bool) -> None:
    (tmp_path / "file").write_text(f"{line}\n")
    files = SlurmFiles(slurm="file")
    expected = [("slurm-job-age-too-short", "slurm.conf.slurm")] if refused else []
    assert found(check_slurm_files(SlurmConfig(conf=files, drain=DrainAgentConfig()), tmp_path)) == expected
    assert found(check_slurm_files(SlurmConfig(conf=files), tmp_path)) == []


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file")
    assert found(check_slurm_files(SlurmConfig(conf=SlurmFiles(gres="file")), tmp_path)) == [
        ("slurm-file-unreadable", "slurm.conf.gres")
    ]


def test_the_message_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("MessageTimeout=60\nTaskPlugin=task/cgroup\n")
    (finding,) = check_slurm_files(SlurmConfig(conf=SlurmFiles(slurm="file")), tmp_path)
    assert finding.problem == "line 2 of 'file' sets TaskPlugin, but HyperPod sets it"


@pytest.mark.parametrize(
    ("files", "code"),
    [
        pytest.param({"10-a": b"#!/bin/bash\n", ".hidden": b"", "x.pyc": b""}, None, id="a script"),
        pytest.param({"10-a": b"\x7fELF\0"}, None, id="a binary"),
        pytest.param({}, "hooks-wrong-number", id="none"),
        pytest.param({f"{n:02}": b"#!/bin/sh\n" for n in range(MAX_PROGRAMS + 1)}, "hooks-wrong-number", id="too many"),
        pytest.param({"10-a": b"echo\n"}, "hook-without-interpreter", id="no interpreter"),
        pytest.param({"10-a": b"#!/bin/bash\r\necho\r\n"}, "hook-with-carriage-returns", id="line ends of Windows"),
        pytest.param({"a b": b"#!/bin/sh\n"}, "hook-name-invalid", id="a name with a space"),
        pytest.param({"a~": b"#!/bin/sh\n"}, "hook-name-invalid", id="an editor's copy"),
        pytest.param({"10-a": b"#!/bin/sh\n" + b"#" * MAX_PROGRAM_BYTES}, "hook-too-large", id="too large"),
        pytest.param({"d/10-a": b"#!/bin/sh\n"}, "hook-not-a-file", id="a folder"),
    ],
)
def test_a_program_that_a_node_could_not_run(tmp_path: Path, files: dict[str, bytes], code: str | None) -> None:
    folder = tmp_path / "prolog.d"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    expected = [(code, "slurm.prolog")] if code else []
    assert found(check_slurm_files(SlurmConfig(prolog="prolog.d"), tmp_path)) == expected
