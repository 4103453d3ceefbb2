"""What is wrong with `slurm.drain` is said about the file, and not on a node."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.validating import REMOVED, validate

STORAGE = {"capacity_gib": 4800}
OPEN = ("drain-operators-missing", "slurm.drain.operators")
SSO = "aws-reserved/sso.amazonaws.com/us-west-2/AWSReservedSSO_Operators_0123456789abcdef"


def drain(paths: Any = ("/opt/dlami/nvme/work",), to: Any = "/fsx/backup", **more: Any) -> dict[str, Any]:
    found = {"slurm": {"drain": {"backup": {"paths": list(paths), "to": to}}}, "storage": STORAGE, **more}
    return {name: value for name, value in found.items() if value is not REMOVED}


def hooked(**more: Any) -> dict[str, Any]:
    return {"slurm": {"drain": {"backup": {"hook": "/fsx/admin/save-node", **more}}}}


@pytest.mark.parametrize(
    "changes",
    [
        drain(),
        hooked(),
        hooked(timeout_minutes=1440, on_failure="continue"),
        {"slurm": {"drain": {}}},
        drain(["/data", "/scratch"]),
        {
            "slurm": {"drain": {"backup": {"paths": ["/data"], "to": "/fsx/b", "on_unsavable": "skip"}}},
            "storage": STORAGE,
        },
        drain(["/data"], "/fsx/a/b/c"),
        drain(["/var/lib/docker", "/tmp", "/home", "/etcetera"]),
    ],
)
def test_drain_agent_settings_that_can_work_are_accepted(changes: dict[str, Any]) -> None:
    assert [line for line in validate(changes) if "drain" in line[1]] == [OPEN]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (drain(to="/fsx"), ("value-malformed", "slurm.drain.backup.to")),
        (drain(to="/"), ("value-malformed", "slurm.drain.backup.to")),
        (drain(to="backup"), ("value-malformed", "slurm.drain.backup.to")),
        (drain(to="/fsx/../etc"), ("value-malformed", "slurm.drain.backup.to")),
        (drain(to="/fsx/a\nb"), ("text-not-printable", "slurm.drain.backup.to")),
        (drain(to="/var/backup"), ("backup-target-not-on-storage", "slurm.drain.backup.to")),
        (drain(storage=REMOVED), ("backup-target-without-storage", "slurm.drain.backup.to")),
        (drain([]), ("backup-paths-wrong-number", "slurm.drain.backup.paths")),
        (drain(["/"]), ("value-malformed", "slurm.drain.backup.paths[0]")),
        (drain(["work"]), ("value-malformed", "slurm.drain.backup.paths[0]")),
        (drain(["/data/../fsx"]), ("value-malformed", "slurm.drain.backup.paths[0]")),
        (drain(["/data/.."]), ("value-malformed", "slurm.drain.backup.paths[0]")),
        (drain(["/a\nb"]), ("text-not-printable", "slurm.drain.backup.paths[0]")),
        (drain(["/fsx/work"]), ("backup-of-shared-folder", "slurm.drain.backup.paths[0]")),
        *(
            (drain([folder]), ("backup-of-system-folder", "slurm.drain.backup.paths[0]"))
            for folder in (
                "/var/lib",
                "/var/log",
                "/var/log/slurm",
                "/etc",
                "/etc/munge",
                "/root",
                "/usr/lib",
                "/proc",
                "/run/user",
                "/opt/ml/config",
                "/opt/slurm",
                "/opt",
                "/var",
            )
        ),
        (drain(["/fsx"]), ("backup-of-shared-folder", "slurm.drain.backup.paths[0]")),
        (drain(["/data", "/data"]), ("value-duplicated", "slurm.drain.backup.paths")),
        (
            {"slurm": {"drain": {"backup": {}}}},
            ("backup-paths-wrong-number", "slurm.drain.backup.paths"),
        ),
        ({"slurm": {"drain": {"backup": {"paths": ["/data"]}}}}, ("backup-target-missing", "slurm.drain.backup.to")),
        (hooked(paths=["/data"]), ("backup-hook-with-folders", "slurm.drain.backup.paths")),
        (hooked(to="/fsx/backup"), ("backup-hook-with-folders", "slurm.drain.backup.to")),
        (
            hooked(on_unsavable="skip"),
            ("backup-hook-with-on-unsavable", "slurm.drain.backup.on_unsavable"),
        ),
        (hooked(on_unsavable="kill"), ("value-not-a-choice", "slurm.drain.backup.on_unsavable")),
        (hooked(hook="save-node"), ("value-malformed", "slurm.drain.backup.hook")),
        (hooked(hook="/fsx/admin/save node; reboot"), ("value-malformed", "slurm.drain.backup.hook")),
        (hooked(timeout_minutes=0), ("value-out-of-range", "slurm.drain.backup.timeout_minutes")),
        (
            drain(scale_down={"drain": {"timeout_minutes": 31}}),
            ("value-out-of-range", "scale_down.drain.timeout_minutes"),
        ),
        (
            drain(scale_down={"drain": {"timeout_minutes": 0}}),
            ("value-out-of-range", "scale_down.drain.timeout_minutes"),
        ),
        (
            drain(scale_down={"drain": {"on_timeout": "kill"}}),
            ("value-not-a-choice", "scale_down.drain.on_timeout"),
        ),
        (
            drain(scale_down={"drain": {"on_silent": "force"}}),
            ("value-not-a-choice", "scale_down.drain.on_silent"),
        ),
        (
            {"scale_down": {"drain": {}}},
            ("drain-without-agent", "scale_down.drain"),
        ),
        (drain(lifecycle={"mode": "bootstrap"}), ("drain-agent-without-scripts", "slurm.drain")),
        (drain(lifecycle={"steps": {"drain": False}}), ("drain-agent-without-step", "lifecycle.steps.drain")),
    ],
)
def test_drain_agent_settings_that_cannot_work_are_refused(changes: dict[str, Any], says: tuple[str, str]) -> None:
    assert says in validate(changes)


@pytest.mark.parametrize(
    "other",
    [
        ({"slurm": {"drain": {"backup": {"paths": ["/etc"]}}}}, ("backup-target-missing", "slurm.drain.backup.to")),
        (drain(["/etc"], "/fsx"), ("value-malformed", "slurm.drain.backup.to")),
        (drain(["/etc"], storage={"capacity_gib": "large"}), ("value-of-wrong-type", "storage.capacity_gib")),
        (drain(["/etc"], storage="fsx"), ("value-not-settings", "storage")),
    ],
    ids=["no target", "an invalid target", "an invalid storage", "no storage"],
)
def test_folders_are_judged_whatever_else_is_wrong(other: tuple[dict[str, Any], tuple[str, str]]) -> None:
    changes, finding = other
    assert {finding, ("backup-of-system-folder", "slurm.drain.backup.paths[0]")} <= {*validate(changes)}


EXISTING = {"name": "shared", "security_group_id": "sg-0123456789abcdef0"}


def under_eks(existing: Any = REMOVED, **drained: Any) -> dict[str, Any]:
    eks = {"dependencies_chart": "installed", "existing_cluster": existing}
    return {
        "orchestrator": "eks",
        "eks": {name: value for name, value in eks.items() if value is not REMOVED},
        "instance_groups": [{"name": "p5", "instance_type": "ml.p5.48xlarge", "instance_count": 2}],
        "scale_down": {"drain": drained},
    }


REACHED = {**EXISTING, "endpoint": "https://0A1B.gr7.us-west-2.eks.amazonaws.com", "certificate_authority": "LS0tLS1C"}


@pytest.mark.parametrize(
    "changes",
    [
        under_eks(),
        under_eks(backup_cron_job="hyperpod-backup/save", on_timeout="force", on_silent="undrained"),
        under_eks(REACHED),
    ],
)
def test_under_eks_a_function_drains(changes: dict[str, Any]) -> None:
    assert not [path for _, path in validate(changes) if "drain" in path]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            under_eks(EXISTING),
            ("existing-cluster-address-missing", "eks.existing_cluster.endpoint"),
        ),
        (under_eks(EXISTING), ("existing-cluster-address-missing", "eks.existing_cluster.certificate_authority")),
        (under_eks({**REACHED, "endpoint": "http://a"}), ("value-malformed", "eks.existing_cluster.endpoint")),
        (under_eks({**REACHED, "endpoint": "https://a/b"}), ("value-malformed", "eks.existing_cluster.endpoint")),
        (
            under_eks({**REACHED, "certificate_authority": "a b"}),
            ("value-malformed", "eks.existing_cluster.certificate_authority"),
        ),
        (under_eks(backup_cron_job="backup"), ("value-malformed", "scale_down.drain.backup_cron_job")),
        (under_eks(backup_cron_job="a/b/c"), ("value-malformed", "scale_down.drain.backup_cron_job")),
        (
            drain(scale_down={"drain": {"unmanaged_pods": "evict"}}),
            ("drain-pods-under-slurm", "scale_down.drain.unmanaged_pods"),
        ),
        (under_eks(backup_cron_job="A/b"), ("value-malformed", "scale_down.drain.backup_cron_job")),
        (
            drain(scale_down={"drain": {"backup_cron_job": "research/backup"}}),
            ("drain-cron-job-under-slurm", "scale_down.drain.backup_cron_job"),
        ),
    ],
)
def test_eks_drain_settings_without_a_reachable_api_or_backup_are_refused(
    changes: dict[str, Any], says: tuple[str, str]
) -> None:
    assert says in validate(changes)


@pytest.mark.parametrize(
    ("operators", "says"),
    [
        (["arn:aws:iam::111122223333:role/ops", f"arn:aws:iam::111122223333:role/{SSO}"], None),
        ([], OPEN),
        (["arn:aws:iam::111122223333:role/*"], ("value-malformed", "slurm.drain.operators[0]")),
        (["arn:aws:iam::111122223333:root"], ("value-malformed", "slurm.drain.operators[0]")),
        (["arn:aws:sts::111122223333:assumed-role/ops/me"], ("value-malformed", "slurm.drain.operators[0]")),
        (
            ["arn:aws:iam::111122223333:role/ops"] * 2,
            ("value-duplicated", "slurm.drain.operators"),
        ),
        (
            [f"arn:aws:iam::111122223333:role/{number:03}" for number in range(101)],
            ("writers-too-many", "slurm.drain.operators"),
        ),
    ],
)
def test_operators_of_drain_requests_are_validated(operators: list[str], says: tuple[str, str] | None) -> None:
    found = [line for line in validate({"slurm": {"drain": {"operators": operators}}}) if "operators" in line[1]]
    assert found == ([] if says is None else [says])
