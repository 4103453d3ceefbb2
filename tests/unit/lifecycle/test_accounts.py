"""Step accounting: what sacctmgr is told, from what the database says; and our lines in slurm.conf."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from helpers.lifecycle.programs import load

accounting = load("steps/40_accounting.py")
slurm_conf = load("slurm_conf.py")
WANTED: dict[str, Any] = {
    "accounts": [
        {
            "name": "research",
            "users": ["alice"],
            "grp_nodes": 2,
            "grp_gpus": 16,
            "max_wall_minutes": 1500,
            "fairshare": 5,
        },
        {"name": "ops", "users": ["bob", "alice"]},
    ]
}
SHOWN = """\
root||1|||||||normal|
root|root|1|||||||normal|
research||5|||gres/gpu=16,node=2|||1-01:00:00|normal|
research|alice|1|||||||normal|
ops||1|||||||normal|
ops|alice|1|||||||normal|
ops|bob|1|||||||normal|
"""


def told(wanted: Any, shown: str, ours: set[str]) -> list[str]:
    found = accounting.parse_associations(shown)
    descriptions = {name: accounting.MARK if name in ours else "another's" for name in found}
    return list(accounting.commands_for(accounting.parse(wanted), found, descriptions, "train"))


def test_accounts_and_users_of_a_new_cluster_are_created() -> None:
    assert told(WANTED, "root||1|||||||normal|\nroot|root|1|||||||normal|", set()) == [
        "add account name=research cluster=train description=cdk-hyperpod organization=cdk-hyperpod",
        "modify account where name=research cluster=train set Fairshare=5 GrpTRES=gres/gpu=16,node=2 MaxWall=1-01:00:00",
        "add user name=alice account=research cluster=train",
        "add account name=ops cluster=train description=cdk-hyperpod organization=cdk-hyperpod",
        "add user name=alice account=ops cluster=train",
        "add user name=bob account=ops cluster=train",
    ]


def test_a_correct_accounting_database_gets_no_command() -> None:
    assert told(WANTED, SHOWN, {"research", "ops"}) == []


def test_limits_that_go_and_users_who_move() -> None:
    wanted = {"accounts": [{"name": "research", "users": []}, {"name": "ops", "users": ["alice"], "max_jobs": 3}]}
    assert told(wanted, SHOWN, {"research", "ops"}) == [
        "modify account where name=research cluster=train set Fairshare=1 GrpTRES=gres/gpu=-1,node=-1 MaxWall=-1",
        "modify account where name=ops cluster=train set MaxJobs=3",
        "modify user where name=alice cluster=train set defaultaccount=ops",
        "remove user where name=alice account=research cluster=train",
        "remove user where name=bob account=ops cluster=train",
    ]


def test_an_existing_account_that_is_not_ours_is_refused() -> None:
    with pytest.raises(accounting.StepError, match="Slurm has an account research already, which is not ours"):
        told(WANTED, SHOWN, set())


def test_an_account_that_left_the_file_loses_its_users() -> None:
    wanted = {"accounts": [WANTED["accounts"][0]]}
    assert told(wanted, SHOWN, {"research", "ops"}) == [
        "modify user where name=alice cluster=train set defaultaccount=research",
        "remove user where name=alice account=ops cluster=train",
        "remove user where name=bob account=ops cluster=train",
    ]


def test_a_user_who_leaves_several_accounts_leaves_them_at_once() -> None:
    """Slurm keeps the default account of a user who has another."""
    assert told({}, SHOWN, {"research", "ops"}) == [
        "remove user where name=alice account=ops,research cluster=train",
        "remove user where name=bob account=ops cluster=train",
    ]


def test_an_account_that_left_the_file_keeps_no_qos() -> None:
    shown = "root||1|||||||normal|\nresearch||1|||||||high,low|low\n"
    assert told({}, shown, {"research"}) == [
        "modify account where name=research cluster=train set DefaultQOS=-1 QosLevel="
    ]


def test_new_accounts_are_in_one_file_and_the_first_account_is_a_new_users_default() -> None:
    found = accounting.parse_associations(
        "root||1|||||||normal|\nroot|root|1|||||||normal|\nops||1|||||||normal|\nops|bob|1|||||||normal|"
    )
    assert accounting.load_file(accounting.parse(WANTED), found, "train").splitlines() == [
        "Cluster - 'train'",
        "Parent - 'root'",
        "Account - 'research':Description='cdk-hyperpod':Organization='cdk-hyperpod':Fairshare='5':GrpTRES='gres/gpu=16,node=2':MaxWall='1-01:00:00'",
        "Parent - 'research'",
        "User - 'alice':DefaultAccount='research'",
        "Parent - 'ops'",
        "User - 'alice'",
    ]
    assert accounting.load_file({}, found, "train") == ""


def test_a_job_that_named_no_qos_gets_the_first_one_of_its_account() -> None:
    wanted = {
        "research": accounting.Account("research", limits={"DefaultQOS": "low"}),
        "ops": accounting.Account("ops"),
    }
    jobs = "7|InvalidQOS|normal|research\n8|InvalidQOS|high|research\n9|InvalidQOS|normal|ops\n10|Priority|normal|research\n"
    assert list(accounting.jobs_without_qos(jobs, wanted)) == [("7", "low")]


def test_accounts_of_another_cluster_on_the_same_database_are_left_to_it() -> None:
    """Both are ours by their description: what this cluster has no association with is the other's."""
    found = accounting.parse_associations("root||1|||||||normal|\nroot|root|1|||||||normal|")
    marks = {"research": accounting.MARK, "theirs": "somebody else's"}
    assert list(accounting.commands_for({}, found, marks, "train")) == []
    with pytest.raises(accounting.StepError, match="Slurm has an account theirs already, which is not ours"):
        list(accounting.commands_for({"theirs": accounting.Account("theirs")}, found, marks, "train"))


def says(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(accounting, "run", lambda *_, **__: subprocess.CompletedProcess((), 1, text))


def test_a_user_with_jobs_stays_until_they_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    says(monkeypatch, " Error with request: Job(s) active, cancel job(s) before remove\n  JobID = 7\n")
    accounting.sacctmgr("remove user where name=bob account=ops cluster=train")
    said = capsys.readouterr().err
    assert " WARNING " in said and "name=bob account=ops" in said
    says(monkeypatch, "Access denied")
    with pytest.raises(accounting.StepError, match="Access denied"):
        accounting.sacctmgr("remove user where name=bob account=ops cluster=train")


CONF = "ClusterName=a\nPrologFlags=Alloc,NoHold # HyperPod's\nPartitionName=dev Nodes=ALL\n"
SETTINGS = {"PrologFlags": ["Contain"], "PropagateResourceLimitsExcept": ["MEMLOCK"]}


def test_list_values_of_slurm_conf_are_kept() -> None:
    lines = slurm_conf.included(CONF, SETTINGS).splitlines()[1:]
    assert lines == ["PrologFlags=Alloc,NoHold,Contain", "PropagateResourceLimitsExcept=MEMLOCK"]
    assert slurm_conf.included("PropagateResourceLimits=NONE\nprologflags=contain\n", SETTINGS).splitlines()[1:] == [
        "PrologFlags=contain"
    ]


def test_the_include_is_the_last_line_once() -> None:
    once = slurm_conf.with_include(CONF)
    assert once.endswith("\nInclude cdk-hyperpod.conf\n")
    assert slurm_conf.with_include(once) == once


class Conf:
    """A controller's slurm.conf, and what Slurm was told."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = root / "opt/slurm/etc"
        self.folder.mkdir(parents=True)
        self.rewrite()
        self.told: list[str] = []
        monkeypatch.setenv("PROVISION_ROOT", str(root))
        for how in ("must_run", "ask_slurm"):
            monkeypatch.setattr(slurm_conf, "_await_end", lambda: None)
            monkeypatch.setattr(slurm_conf, how, lambda *command: self.told.append(" ".join(command)))

    def rewrite(self) -> None:
        (self.folder / "slurm.conf").write_text(CONF)


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Conf:
    return Conf(tmp_path, monkeypatch)


def test_our_lines_come_back_after_a_rewrite_and_our_own_writing_ends_there(conf: Conf) -> None:
    slurm_conf.keep(SETTINGS, 0)
    assert conf.told == ["scontrol reconfigure"]
    files = {file.name: file.read_text() for file in conf.folder.iterdir()}
    slurm_conf.keep(SETTINGS, 1)
    assert conf.told == ["scontrol reconfigure"], "what our writing sets off ends at once"
    conf.rewrite()
    slurm_conf.keep(SETTINGS, 2)
    assert conf.told == ["scontrol reconfigure"] * 2
    assert {file.name: file.read_text() for file in conf.folder.iterdir()} == files


def test_a_setting_that_is_read_at_start_restarts_slurmctld_and_reconfigures_the_nodes(conf: Conf) -> None:
    slurm_conf.keep({**SETTINGS, "AccountingStorageEnforce": ["associations"]}, 0)
    assert conf.told == ["systemctl restart slurmctld.service", "scontrol reconfigure"]


def test_the_include_line_is_given_up_if_another_program_keeps_removing_it(conf: Conf) -> None:
    for second in range(5):
        conf.rewrite()
        slurm_conf.keep(SETTINGS, second)
    conf.rewrite()
    with pytest.raises(slurm_conf.StepError, match=r"somebody takes our line out of /opt/slurm/etc/slurm\.conf again"):
        slurm_conf.keep(SETTINGS, 5)
    slurm_conf.keep(SETTINGS, 700)
    assert "Include" in (conf.folder / "slurm.conf").read_text()


def test_a_program_killed_between_its_two_files_is_mended(conf: Conf) -> None:
    (conf.folder / "cdk-hyperpod.conf").write_text(slurm_conf.included(CONF, SETTINGS))
    slurm_conf.keep(SETTINGS, 0)
    assert conf.told == ["scontrol reconfigure"]


@pytest.mark.parametrize("failing", ["systemctl restart slurmctld.service", "scontrol reconfigure"])
def test_a_slurm_command_that_failed_is_repeated_by_the_next_run(
    conf: Conf, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    settings = {**SETTINGS, "AccountingStorageEnforce": ["associations"]}

    def tell(*command: str) -> None:
        if " ".join(command) == failing:
            raise slurm_conf.StepError("it does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(slurm_conf, "must_run", tell)
        patch.setattr(slurm_conf, "ask_slurm", tell)
        with pytest.raises(slurm_conf.StepError, match=r"^our lines are in .*, but it does not answer; look at"):
            slurm_conf.keep(settings, 0)
    slurm_conf.keep(settings, 1)
    assert conf.told[-1] == "scontrol reconfigure"
    assert ("systemctl restart slurmctld.service" in conf.told) == failing.startswith("systemctl")
    conf.told.clear()
    slurm_conf.keep(settings, 2)
    assert conf.told == []


def test_a_slurmdbd_conf_that_others_may_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """slurmdbd ends at it, and sacctmgr says only that nobody answers."""
    database = load("database.py")
    monkeypatch.setenv("PROVISION_ROOT", str(tmp_path))
    monkeypatch.setenv("PROVISION_ATTEMPTS", "1")
    config = "ClusterName = train\nAccountingStorageType = accounting_storage/slurmdbd\n"
    monkeypatch.setattr(database, "ask_slurm", lambda *command: config)
    refused = subprocess.CompletedProcess((), 1, "sacctmgr: error: Connection refused")
    monkeypatch.setattr(database, "run", lambda *command, **_: refused)
    file = tmp_path / "opt/slurm/etc/slurmdbd.conf"
    file.parent.mkdir(parents=True)
    file.touch(mode=0o600)
    with pytest.raises(database.StepError, match=r"Connection refused.*look at `systemctl status slurmdbd`"):
        database.wait_for_database()
    file.chmod(0o644)
    mend = "has mode 644, at which slurmdbd ends: `chmod 600 /opt/slurm/etc/slurmdbd.conf`, and start slurmdbd"
    with pytest.raises(database.StepError, match=mend):
        database.wait_for_database()
