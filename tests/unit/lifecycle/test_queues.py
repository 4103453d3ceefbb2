"""Partitions, QOS, own lines and programs around jobs on a node: what is decided, and the runner for real."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helpers.lifecycle.programs import LIFECYCLE, load
from lifecycle import provision

accounting = load("steps/40_accounting.py")
hooks = load("hooks.py")
partitions = load("partitions.py")
slurm_conf = load("slurm_conf.py")
slurm_trial = load("slurm_trial.py")

# -- partitions

P5 = {"default": True, "max_time_minutes": 2880, "priority_tier": 0, "allow_accounts": ["research"], "state": "up"}
SHOWN = (
    "PartitionName=p5 AllowGroups=ALL AllowAccounts=ALL Default=NO MaxTime=UNLIMITED PriorityTier=1 State=UP TRES=cpu=9,gres/gpu=8\n"
    "PartitionName=dev AllowGroups=ALL AllowAccounts=ops,cdk-hyperpod Default=YES MaxTime=01:00:00 PriorityTier=1 State=DOWN\n"
)


def test_only_partition_settings_that_differ_are_updated() -> None:
    found = partitions.parse(SHOWN)
    assert list(partitions.commands_for({"p5": P5}, found)) == [
        "partitionname=p5 Default=YES MaxTime=2-00:00:00 PriorityTier=0 AllowAccounts=cdk-hyperpod,research"
    ]
    as_it_is = {"max_time_minutes": 60, "allow_accounts": ["ops"], "state": "down"}
    assert list(partitions.commands_for({"dev": as_it_is, "later": P5}, found)) == []


def test_a_setting_that_leaves_the_file_is_noticed() -> None:
    assert partitions.has_lost({"p5": P5}, {"p5": {"state": "up"}})
    assert partitions.has_lost({"p5": P5}, {})
    assert not partitions.has_lost({"p5": {"state": "up"}}, {"p5": P5, "dev": P5})


def test_a_partition_that_another_program_keeps_changing_ends_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_DELAY_S", "0")
    monkeypatch.setattr(partitions, "ask_slurm", lambda *_: SHOWN)
    with pytest.raises(partitions.StepError, match="another program keeps changing the partitions"):
        partitions.keep({"p5": P5})


# -- QOS

QOS: dict[str, Any] = {
    "slurm": {
        "qos": [
            {"name": "low", "preempt_mode": "cancel"},
            {"name": "high", "priority": 9, "max_jobs": 0, "grp_nodes": 4, "max_wall_minutes": 90, "preempts": ["normal", "low"]},
        ]
    }
}  # fmt: skip
SHOWN_QOS = (
    "normal|Normal QOS default|0|||||cluster\n"
    "low|cdk-hyperpod:train|0|||||cancel\n"
    "high|cdk-hyperpod:train|9|node=4|0|01:30:00|low,normal|cluster\n"
)


def told(content: Any, shown: str) -> list[str]:
    return list(accounting.qos_commands(accounting.wanted_qos(content), accounting.parse_qos(shown), "Train"))


def test_new_qos_are_all_there_before_one_preempts_another() -> None:
    assert told(QOS, SHOWN_QOS.split("\n")[0]) == [
        "add qos name=low description=cdk-hyperpod:train",
        "add qos name=high description=cdk-hyperpod:train",
        "modify qos where name=low set PreemptMode=cancel",
        "modify qos where name=high set Priority=9 GrpTRES=node=4 MaxJobsPerUser=0 MaxWall=01:30:00 Preempt=low,normal",
    ]


def test_qos_that_are_right_are_left_alone() -> None:
    assert told(QOS, SHOWN_QOS) == []


def test_limits_of_a_qos_that_leave_the_file_are_removed() -> None:
    assert told({"slurm": {"qos": [{"name": "low"}, {"name": "high"}]}}, SHOWN_QOS) == [
        "modify qos where name=low set PreemptMode=cluster",
        "modify qos where name=high set Priority=0 GrpTRES=node=-1 MaxJobsPerUser=-1 MaxWall=-1 Preempt=",
    ]


def test_a_qos_of_another_cluster_on_the_database_is_not_taken_over() -> None:
    with pytest.raises(accounting.StepError, match=r"has a QOS low already, which is not ours \(cdk-hyperpod:other\)"):
        told(QOS, SHOWN_QOS.replace("low|cdk-hyperpod:train", "low|cdk-hyperpod:other"))


def test_only_our_qos_that_left_the_file_are_removed() -> None:
    found = accounting.parse_qos(f"{SHOWN_QOS}theirs|a person's|0|||||cluster\n")
    assert accounting.qos_to_remove(["low"], found, "train") == ["high"]


@pytest.mark.parametrize(
    ("jobs", "accounts", "removed"), [("7\n", "", False), ("", "research|low,high\n", False), ("", "a|normal\n", True)]
)
def test_a_qos_is_kept_while_a_job_or_an_account_uses_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], jobs: str, accounts: str, removed: bool
) -> None:
    ran: list[str] = []
    monkeypatch.setattr(accounting, "ask_slurm", lambda *command: jobs if command[0] == "squeue" else accounts)
    monkeypatch.setattr(accounting, "sacctmgr", ran.append)
    accounting.remove_qos("high")
    assert ran == (["remove qos where name=high"] if removed else [])
    assert ("has left the file, and stays for" in capsys.readouterr().err) != removed


ROWS = "root||1|||||||normal|\nresearch||1|||||||{qos}|{default}\n"


@pytest.mark.parametrize(
    ("qos", "default", "expected"),
    [
        ("normal", "", ["DefaultQOS=low QosLevel=high,low"]),
        ("high,low", "", ["DefaultQOS=low QosLevel=high,low"]),
        ("low,high", "low", []),
    ],
)
def test_the_first_qos_of_an_account_is_its_default(qos: str, default: str, expected: list[str]) -> None:
    wanted = accounting.parse({"accounts": [{"name": "research", "qos": ["low", "high"]}]})
    found = accounting.parse_associations(ROWS.format(qos=qos, default=default))
    ours = {"research": accounting.MARK}
    head = "modify account where name=research cluster=train set "
    assert list(accounting.commands_for(wanted, found, ours, "train")) == [f"{head}{each}" for each in expected]


def test_an_account_without_qos_has_those_of_the_account_above_it() -> None:
    wanted = accounting.parse({"accounts": [{"name": "research"}]})
    ours = {"research": accounting.MARK}
    found = accounting.parse_associations(ROWS.format(qos="normal", default=""))
    assert list(accounting.commands_for(wanted, found, ours, "train")) == []
    found = accounting.parse_associations(ROWS.format(qos="low", default="low"))
    assert list(accounting.commands_for(wanted, found, ours, "train")) == [
        "modify account where name=research cluster=train set DefaultQOS=-1 QosLevel="
    ]


# -- slurm.conf


def test_settings_that_qos_and_a_prolog_need() -> None:
    slurm = {"qos": QOS["slurm"]["qos"], "prolog": 3, "hook_seconds": 20}
    settings = provision.slurm_settings(provision.Cluster("train", (), slurm=slurm))
    assert {name: value for name, value in settings.items() if isinstance(value, str)} == {
        "BatchStartTimeout": "70",
        "PreemptMode": "REQUEUE",
        "PreemptType": "preempt/qos",
        "PriorityType": "priority/multifactor",
        "PriorityWeightQOS": "1000",
    }


def test_a_weight_of_slurm_conf_or_of_the_user_stays() -> None:
    weight = {"PriorityWeightQOS": "1000"}
    assert "PriorityWeightQOS=1000" in slurm_conf.included("", weight)
    assert "1000" not in slurm_conf.included("PriorityWeightQOS=5\n", weight)
    assert "1000" not in slurm_conf.included("", weight, "priorityweightqos = 7\n")


def test_own_lines_are_last_and_found_again() -> None:
    text = slurm_conf.included("", {"PreemptType": "preempt/qos"}, "MessageTimeout=60\n")
    assert text.endswith("\nMessageTimeout=60\n")
    assert slurm_conf.own_in(text) == "MessageTimeout=60\n"
    assert slurm_conf.own_in(slurm_conf.included("", {})) == ""


def test_gres_conf_gets_an_include_only_for_lines_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=train\n")
    assert sorted(slurm_conf.files_with({}, {}, tmp_path)) == ["cdk-hyperpod.conf", "slurm.conf"]
    with_gres = slurm_conf.files_with({}, {"gres": "AutoDetect=off\n"}, tmp_path)
    assert with_gres["gres.conf"].endswith("\nInclude cdk-hyperpod-gres.conf\n")
    assert "AutoDetect=off" in with_gres["cdk-hyperpod-gres.conf"]
    (tmp_path / "cdk-hyperpod-gres.conf").write_text("AutoDetect=off\n")
    assert "AutoDetect" not in slurm_conf.files_with({}, {}, tmp_path)["cdk-hyperpod-gres.conf"], "it left the file"


def test_a_file_names_its_plug_in_in_slurm_conf(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("JobSubmitPlugins=all_partitions\n")
    files = slurm_conf.files_with({}, {"job_submit": "-- lua\n", "job_container": "BasePath=/opt/jobs\n"}, tmp_path)
    assert "JobContainerType=job_container/tmpfs\nJobSubmitPlugins=all_partitions,lua\n" in files["cdk-hyperpod.conf"]
    assert files["job_submit.lua"] == "-- lua\n", "Lua's messages have the numbers of the user's lines"
    assert files["job_container.conf"].endswith("Include cdk-hyperpod-job_container.conf\n")
    assert "Job" not in slurm_conf.files_with({}, {}, tmp_path)["cdk-hyperpod.conf"]


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ("BasePath=/opt/jobs\n", ["/opt/jobs"]),
        ("basepath = /opt/jobs Shared=true # BasePath=/not/this\n", ["/opt/jobs"]),
        ("AutoBasePath=true BasePath=/opt/jobs\n", []),
        ("BasePath=/opt/jobs\nAutoBasePath=False\n", ["/opt/jobs"]),
        ("NodeName=ip-10-1-0-1 BasePath=/other\nBasePath=none\n", []),
        ("BasePath=/opt/%h\n", []),
        ("", []),
    ],
)
def test_folders_that_job_container_conf_needs_on_a_node(conf: str, expected: list[str]) -> None:
    assert slurm_trial.folders_of_jobs({"cdk-hyperpod-job_container.conf": conf}) == expected


def test_a_node_without_the_folder_refuses_the_lines(tmp_path: Path) -> None:
    script = slurm_trial.files_script({"cdk-hyperpod-job_container.conf": f"BasePath={tmp_path}/a;b\n"})
    done = subprocess.run(["bash", "-s"], check=False, input=script, text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (
        slurm_trial.REFUSED,
        f"BasePath={tmp_path}/a;b: there is no such folder\n",
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (({}, {}), ({}, {}), set()),
        (({}, {}), ({"PrologFlags": ["Contain"]}, {}), {"slurm-reconfigure"}),
        (({}, {}), ({"PreemptType": "preempt/qos"}, {}), {"slurm-reconfigure", "slurmctld-restart"}),
        (({}, {}), ({}, {"slurm": "MessageTimeout=60\n"}), {"slurm-reconfigure", "slurmctld-restart"}),
        (({}, {}), ({}, {"gres": "AutoDetect=off\n"}), {"slurm-reconfigure", "slurmctld-restart"}),
        (({}, {"job_submit": "a"}), ({}, {"job_submit": "b"}), {"slurm-reconfigure", "slurmctld-restart"}),
    ],
)
def test_a_changed_setting_requires_a_reconfigure_or_a_restart(
    tmp_path: Path, old: Any, new: Any, expected: set[str]
) -> None:
    (tmp_path / "slurm.conf").write_text(slurm_conf.with_include("ClusterName=train\n"))
    before, after = slurm_conf.files_with(*old, tmp_path), slurm_conf.files_with(*new, tmp_path)
    assert slurm_conf.needs({name: before.get(name, "") for name in after}, after) == expected


@pytest.mark.parametrize(
    ("outcome", "hooks_after", "pending_after"),
    [("passed", "new", None), ("failed", "old", None), ("untried", "old", "new")],
)
def test_programs_take_the_place_of_others_only_after_a_trial(
    outcome: str, hooks_after: str, pending_after: str | None
) -> None:
    content = {"settings": {}, "hooks": {"folder": "old"}, "pending": {"folder": "new"}}
    after = slurm_conf.after_trial(content, outcome)
    assert (after["hooks"]["folder"], after.get("pending", {}).get("folder")) == (hooks_after, pending_after)


def test_slurm_conf_names_a_pattern_that_a_node_without_the_programs_does_not_have() -> None:
    wanted = {"prolog": True, "seconds": 9}
    assert hooks.lines_for("abc", wanted, one_value=False) == {
        "Prolog": "/usr/local/lib/cdk-hyperpod/hooks/abc/prolog/*"
    }
    assert hooks.lines_for("abc", wanted, one_value=True)["Prolog"].endswith("/abc/prolog-after/*")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "slurmctld: error: unrecognized key: Nonsense\nslurmctld: fatal: Unable to process configuration file\n",
            "error: unrecognized key: Nonsense; fatal: Unable to process configuration file",
        ),
        (
            """error: job_submit/lua: /etc/job_submit.lua:1: <name> expected
error: Couldn't load specified plugin name for job_submit/lua: Plugin init() callback failed
error: cannot create job_submit context for job_submit/lua
fatal: failed
""",
            "error: job_submit/lua: /etc/job_submit.lua:1: <name> expected; fatal: failed",
        ),
        ("[2026-11-26T23:48:05.650] fatal: no \x1b[31mports\n", "fatal: no ?[31mports"),
        ("prolog 10-a failed with exit code 3\nsrun: error: task 0: Exited with exit code 98\n", "prolog 10-a failed with exit code 3"),
        ("", "no output"),
    ],
)  # fmt: skip
def test_the_reason_is_what_the_daemon_says_before_it_ends(said: str, reason: str) -> None:
    assert slurm_trial.reason_in(said) == reason


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        ("a|p5|idle|gpu:8\nb|p5|alloc|\nlogin|dev|idle|\n", ["a"]),
        ("a|p5|idle*|\n", []),
        ("c|t|idle|(null)\na|p|idle|\nb|p|idle|\n", ["a", "b"]),
        ("slurm_load_partitions: Unable to contact slurm controller\n", []),
    ],
)
def test_trials_run_on_idle_compute_nodes(monkeypatch: pytest.MonkeyPatch, shown: str, names: list[str]) -> None:
    monkeypatch.setenv("PROVISION_DELAY_S", "0")
    monkeypatch.setattr(slurm_trial, "run", lambda *_, **__: subprocess.CompletedProcess((), 0, shown))
    monkeypatch.setattr(slurm_trial.closed, "is_closed", lambda: False)
    assert [node.name for node in slurm_trial.idle_nodes(2)] == names


def test_a_trial_of_slurmctld_runs_no_program_and_leaves_the_cluster_s_state_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVISION_ROOT", str(tmp_path))
    etc = tmp_path / "opt/slurm/etc"
    etc.mkdir(parents=True)
    (etc / "slurm.conf").write_text("StateSaveLocation=/var/spool\nSuspendTime=60\n")
    (etc / "slurmdbd.conf").write_text("StoragePass=secret\n")
    programs = "SuspendProgram=/a\nresumeprogram = /b\nSlurmctldPrimaryOnProg=/c\nMailProg=/d\nPrologSlurmctld=/e\n"
    folder = tmp_path / "trial"
    slurm_trial._lay_copy(folder, {"cdk-hyperpod.conf": programs})
    # A copy without jobs runs it never, and slurmctld may refuse it.
    assert (folder / "etc/cdk-hyperpod.conf").read_text() == "PrologSlurmctld=/e\n"
    assert (folder / "etc/slurm.conf").read_text().splitlines()[:2] == [
        "SuspendTime=60",
        f"StateSaveLocation={folder}/state",
    ]
    assert not (folder / "etc/slurmdbd.conf").exists()


def test_processes_that_a_trial_of_slurmctld_started_end_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job_submit.lua may call os.execute when it is loaded."""
    (tmp_path / "etc").mkdir()
    unshare = tmp_path / "unshare"
    lock = tmp_path / "lock"
    unshare.write_text(f"#!/bin/bash\nexec 9>{lock}; flock 9; sleep 600 &\necho {slurm_trial.STARTED}; wait\n")
    unshare.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert slurm_trial._start(tmp_path) is None
    subprocess.run(["flock", "--timeout=30", lock, "true"], check=True)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("PrologSlurmctld=/opt/there", None),
        ("EpilogSlurmctld=/opt/th*", None),
        ("epilogslurmctld = /opt/not", "EpilogSlurmctld=/opt/not: there is no such program on the controller"),
        ("PrologSlurmctld=/opt/plain", "PrologSlurmctld=/opt/plain: there is no such program on the controller, or it may not be executed"),
        ("JobCompLoc=/var/absent/jobs.log", "JobCompLoc=/var/absent/jobs.log: there is no such folder on the controller"),
        ("JobCompLoc=http://127.0.0.1:9200", None),
        ("MessageTimeout=33", None),
    ],
)  # fmt: skip
def test_programs_that_slurm_conf_names_must_exist_on_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, why: str | None
) -> None:
    monkeypatch.setenv("PROVISION_ROOT", str(tmp_path))
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/there").touch(0o755)
    (tmp_path / "opt/plain").touch(0o644)
    found = slurm_trial.missing(slurm_conf.values_of(line))
    assert found is None if why is None else found is not None and found.startswith(why)


def test_a_trial_resumes_the_node_that_it_drained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROVISION_DELAY_S", "0")
    ran: list[str] = []
    reason = "Prolog error [slurm@2026-11-28T07:39:11]"

    def run(*command: str, **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(" ".join(command))
        return subprocess.CompletedProcess(command, 0, f"NodeName=a State=IDLE+DRAIN Reason={reason}\n")

    monkeypatch.setattr(slurm_trial, "run", run)
    slurm_trial.resume(slurm_trial.IdleNode("a", "p5", ""))
    assert ran[-1] == "scontrol update nodename=a state=resume"
    assert "the trial drained the node a (Prolog error" in capsys.readouterr().err
    ran.clear()
    reason = "Action:Replace [root@2026-11-28T07:39:11]"
    slurm_trial.resume(slurm_trial.IdleNode("a", "p5", ""))
    assert not any("update" in each for each in ran), "another party drained it meanwhile"


def test_a_trial_has_all_gpus_of_the_node() -> None:
    assert slurm_trial.IdleNode("a", "p5", "gpu:h100:8(S:0-1)").gres_option == ["--gres=gpu:h100:8"]
    assert slurm_trial.IdleNode("a", "p5", "(null)").gres_option == []


@pytest.mark.parametrize(
    ("codes", "expected"),
    [((0,), "passed"), ((98, 0), "passed"), ((98, 98), "failed"), ((99, 99), "untried"), ((1, 1), "untried"), ((98, 1), "failed"), ((), "untried")],
)  # fmt: skip
def test_one_bad_node_refuses_nothing(monkeypatch: pytest.MonkeyPatch, codes: tuple[int, ...], expected: str) -> None:
    nodes = [slurm_trial.IdleNode(str(number), "p5", "") for number, _ in enumerate(codes)]
    monkeypatch.setattr(slurm_trial, "idle_nodes", lambda most: nodes[:most])
    monkeypatch.setattr(slurm_trial, "on_a_node", lambda node, *_: (codes[int(node.name)], "why"))
    monkeypatch.setattr(slurm_trial, "resume", lambda _: None)
    assert slurm_trial.try_on_nodes("", 1, 2)[0] == expected


# -- the runner


class Hooks:
    """The programs of a cluster, installed as on a node."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.scripts = root / "scripts"
        self.log = root / "log"
        for kind in hooks.KINDS:
            (self.scripts / "slurm" / f"{kind}.d").mkdir(parents=True)
        (self.scripts / "run_hooks.py").write_text((LIFECYCLE / "run_hooks.py").read_text())
        monkeypatch.setenv("PROVISION_ROOT", str(root))

    def add(self, name: str, body: str) -> None:
        (self.scripts / "slurm" / name).write_text(f"#!/bin/bash\necho {name.partition('/')[2]} >>{self.log}\n{body}\n")

    def run(self, kind: str, seconds: float = 5, **env: str) -> subprocess.CompletedProcess[str]:
        wanted = {"prolog": 1, "epilog": 1, "hook_seconds": seconds}
        folder = self.root / hooks.HOOKS.lstrip("/") / hooks.install(self.scripts, wanted)
        environment = {"CDK_HYPERPOD_TRIAL": "1", **env}  # slurmd gives no PATH
        return subprocess.run(
            [folder / kind / "run"], env=environment, capture_output=True, text=True, check=False, timeout=60
        )

    @property
    def ran(self) -> list[str]:
        return self.log.read_text().split()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hooks:
    return Hooks(tmp_path, monkeypatch)


def test_programs_run_in_the_order_of_their_names_and_a_prolog_ends_at_the_first_failure(node: Hooks) -> None:
    for kind in hooks.KINDS:
        node.add(f"{kind}.d/20-b", "exit 3")
        node.add(f"{kind}.d/10-a", "")
        node.add(f"{kind}.d/30-c", "")
    done = node.run("prolog")
    assert (done.returncode, done.stderr) == (1, "prolog 20-b failed with exit code 3\n")
    assert node.run("epilog").returncode == 1
    assert node.ran == ["10-a", "20-b", "10-a", "20-b", "30-c"]


@pytest.mark.parametrize(
    ("body", "how"),
    [
        ("sleep 60", "did not end within {} s"),
        ("trap '' TERM; echo why; while :; do :; done", "did not end within {} s: why"),
        ("kill -9 $$", "was ended by signal 9"),
        ("printf 'a\\n\\033[2Jno GPU'; exit 4", "failed with exit code 4: ?[2Jno GPU"),
    ],
)
def test_a_program_that_hangs_loops_or_fails_is_named(
    node: Hooks, monkeypatch: pytest.MonkeyPatch, body: str, how: str
) -> None:
    runner = node.scripts / "run_hooks.py"
    runner.write_text(runner.read_text().replace("KILL_AFTER_S = 5", "KILL_AFTER_S = 0.5"))
    node.add("prolog.d/10-a", body)
    # Of a busy machine 0.3 s may be over before the program has begun.
    for seconds in (0.3, 3, 30) if "within" in how else (30,):
        done = node.run("prolog", seconds)
        if done.stderr == f"prolog 10-a {how.format(seconds)}\n":
            break
    assert (done.returncode, done.stderr) == (1, f"prolog 10-a {how.format(seconds)}\n")


def test_a_program_that_takes_too_long_ends_with_all_that_it_started(
    node: Hooks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    node.add("prolog.d/10-a", f"(trap '' TERM; exec 9>{lock}; flock 9; exec sleep 600) & wait")
    for seconds in (0.5, 5, 50):
        assert "did not end" in node.run("prolog", seconds).stderr
        if lock.exists():
            break
    assert lock.exists(), "it has begun"
    subprocess.run(["flock", "--timeout=30", lock, "true"], check=True)


def test_a_program_that_cannot_run_is_named(node: Hooks) -> None:
    (node.scripts / "slurm/prolog.d/10-a").write_text("#!/no/such/interpreter\n")
    assert node.run("prolog").stderr == "prolog 10-a cannot run: No such file or directory\n"


def test_output_without_end_and_a_process_that_is_left_running_hold_nothing_up(node: Hooks, tmp_path: Path) -> None:
    node.add("prolog.d/10-a", f"yes | head -c 30000000; sleep 600 & echo $! >{tmp_path}/pid; echo last; exit 1")
    done = node.run("prolog", 55)
    assert done.stderr == "prolog 10-a failed with exit code 1: last\n"
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # it has not been waited for


def test_the_prolog_of_slurm_conf_runs_first_where_ours_replaces_it(node: Hooks, tmp_path: Path) -> None:
    node.add("prolog.d/10-a", "")
    theirs = tmp_path / "theirs"
    theirs.write_text(f"#!/bin/bash\necho theirs >>{node.log}\n")
    theirs.chmod(0o755)
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"Prolog=/old\nprolog = {tmp_path}/their* # HyperPod's\nInclude cdk-hyperpod.conf\n")
    assert node.run("prolog-after", SLURM_CONF=str(conf)).returncode == 0
    assert node.ran == ["theirs", "10-a"]
    assert node.run("prolog", SLURM_CONF=str(conf)).returncode == 0
    assert node.ran[2:] == ["10-a"]


@pytest.mark.parametrize(
    ("shown", "drains"),
    [("State=IDLE+DRAIN Reason=Action:Replace [root@now]", False), ("State=MIXED+DRAIN Reason=cdk-hyperpod:d:1", False), ("State=IDLE Reason=State=DRAIN", True), ("", True)],
)  # fmt: skip
def test_a_failure_drains_the_node_with_the_program_s_name_and_a_drained_one_keeps_its_reason(
    node: Hooks, tmp_path: Path, shown: str, drains: bool
) -> None:
    node.add("prolog.d/10 a", "echo GPU 3 is lost; exit 4")
    scontrol = tmp_path / "bin/scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(
        f"#!/bin/bash\n[ $1 = update ] || {{ echo 'NodeName=ip-10-0-0-1 {shown}'; exit; }}\nprintf '%s\\n' \"$@\" >{tmp_path}/told\n"
    )
    scontrol.chmod(0o755)
    node.run(
        "prolog", CDK_HYPERPOD_TRIAL="", SLURMD_NODENAME="ip-10-0-0-1", PATH=f"{tmp_path}/bin:{os.environ['PATH']}"
    )
    assert (tmp_path / "told").exists() == drains
    assert not drains or (tmp_path / "told").read_text().splitlines() == [
        "update",
        "nodename=ip-10-0-0-1",
        "state=drain",
        "reason=Prolog error: prolog 10 a failed with exit code 4: GPU 3 is lost",
    ]


@pytest.mark.parametrize(
    ("uid", "name", "ran"),
    [("0", "cdk-hyperpod-backup:i-1:r:t@Prolog error", []), ("0", "cdk-hyperpod-trial", []), ("0", "mine", ["10-a"]), ("7", "cdk-hyperpod-backup:i-1:r:t", ["10-a"])],
)  # fmt: skip
def test_the_programs_do_not_run_around_root_s_jobs_of_the_library(
    node: Hooks, tmp_path: Path, uid: str, name: str, ran: list[str]
) -> None:
    node.add("prolog.d/10-a", "")
    squeue = tmp_path / "bin/squeue"
    squeue.parent.mkdir()
    squeue.write_text(f"#!/bin/bash\necho '{name}'\n")
    squeue.chmod(0o755)
    node.log.touch()
    node.run("prolog", CDK_HYPERPOD_TRIAL="", SLURM_JOB_UID=uid, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert node.ran == ran


def test_the_folder_has_the_same_name_on_nodes_with_another_python(
    node: Hooks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurm.conf names it for all nodes, and a node without a folder of this name runs none of the programs."""
    node.add("prolog.d/10-a", "")
    wanted = {"prolog": 1, "hook_seconds": 5}
    first = hooks.install(node.scripts, wanted)
    monkeypatch.setenv("PROVISION_ROOT", str(tmp_path / "other"))
    monkeypatch.setattr("sys.executable", "/opt/conda/bin/python3")
    assert hooks.install(node.scripts, wanted) == first


def test_other_programs_are_another_folder_and_the_same_ones_are_written_once(node: Hooks) -> None:
    node.add("prolog.d/10-a", "")
    wanted = {"prolog": 1, "hook_seconds": 5}
    first = hooks.install(node.scripts, wanted)
    folder = node.root / hooks.HOOKS.lstrip("/") / first
    written = (folder / "prolog/run").stat().st_mtime_ns
    assert hooks.install(node.scripts, wanted) == first
    assert (folder / "prolog/run").stat().st_mtime_ns == written
    assert hooks.install(node.scripts, {**wanted, "hook_seconds": 6}) != first
    assert (folder / "prolog.d/10-a").stat().st_mode & 0o777 == 0o755
    assert not (folder / "epilog").exists()


# -- the example


@pytest.mark.parametrize(
    ("gpus", "says", "code", "last"),
    [
        ("", "", 0, ""),
        ("0,1", "0, 0\n1, [N/A]", 0, ""),
        ("0,1", "0, 0\n1, 3", 1, "GPU 1 has 3 uncorrected memory errors since the driver started"),
        ("0,1", "0, 0", 1, "1 of 2 GPUs answer"),
        ("0", "FAIL", 1, "nvidia-smi fails: Unable to determine the device handle"),
    ],
)
def test_the_example_tests_the_gpus_of_the_job(tmp_path: Path, gpus: str, says: str, code: int, last: str) -> None:
    smi = tmp_path / "nvidia-smi"
    body = "echo Unable to determine the device handle; exit 15" if says == "FAIL" else f"printf '{says}\\n'"
    smi.write_text(f"#!/bin/bash\n{body}\n")
    smi.chmod(0o755)
    example = LIFECYCLE.parent / "examples/gpu_prolog/slurm/prolog.d/10-gpus"
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_GPUS": gpus}
    done = subprocess.run([example], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (code, last), done.stderr
