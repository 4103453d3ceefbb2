"""What is wrong with `slurm.drain` is said about the file, and not on a node."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.judging import REMOVED, judge

STORAGE = {"capacity_gib": 4800}
OPEN = (
    "warning: slurm.drain.operators: is missing, so every principal with s3:PutObject on all buckets can drain nodes; "
    "name the roles of those who run `cdk-hyperpod drain`"
)
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
def test_what_can_work_is_taken(changes: dict[str, Any]) -> None:
    assert [line for line in judge(changes) if "drain" in line] == [OPEN]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (drain(to="/fsx"), "slurm.drain.backup.to: must be a folder such as /fsx/backup"),
        (drain(to="/"), "slurm.drain.backup.to: must be a folder such as"),
        (drain(to="backup"), "slurm.drain.backup.to: must be a folder such as"),
        (drain(to="/fsx/../etc"), "slurm.drain.backup.to: must be a folder such as"),
        (drain(to="/fsx/a\nb"), "slurm.drain.backup.to: "),
        (drain(to="/var/backup"), "slurm.drain.backup.to: /var/backup is on no storage of the file"),
        (drain(storage=REMOVED), "slurm.drain.backup.to: /fsx/backup is on no storage of the file"),
        (drain([]), "slurm.drain.backup.paths: 0 folders are named; name 1 to 20"),
        (drain(["/"]), "slurm.drain.backup.paths[0]: must be an absolute path"),
        (drain(["work"]), "slurm.drain.backup.paths[0]: must be an absolute path"),
        (drain(["/data/../fsx"]), "slurm.drain.backup.paths[0]: must be an absolute path"),
        (drain(["/data/.."]), "slurm.drain.backup.paths[0]: must be an absolute path"),
        (drain(["/a\nb"]), "slurm.drain.backup.paths[0]: must be printable text on one line"),
        (drain(["/fsx/work"]), "slurm.drain.backup.paths[0]: /fsx/work is on /fsx, which all nodes share"),
        *(
            (drain([folder]), f"slurm.drain.backup.paths[0]: {folder} is the node's system's, with its secrets")
            for folder in (
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
        (drain(["/fsx"]), "slurm.drain.backup.paths[0]: /fsx is on /fsx"),
        (drain(["/data", "/data"]), "slurm.drain.backup.paths: "),
        (
            {"slurm": {"drain": {"backup": {}}}},
            "slurm.drain.backup.paths: 0 folders are named; name 1 to 20, or a `hook`",
        ),
        ({"slurm": {"drain": {"backup": {"paths": ["/data"]}}}}, "slurm.drain.backup.to: is missing"),
        (hooked(paths=["/data"]), "slurm.drain.backup.paths: says what is copied, and slurm.drain.backup.hook"),
        (hooked(to="/fsx/backup"), "slurm.drain.backup.to: says what is copied, and slurm.drain.backup.hook"),
        (
            hooked(on_unsavable="skip"),
            "slurm.drain.backup.on_unsavable: is about files that are copied from slurm.drain.backup.paths",
        ),
        (hooked(on_unsavable="kill"), "slurm.drain.backup.on_unsavable: must be one of fail, skip"),
        (hooked(hook="save-node"), "slurm.drain.backup.hook: must be a program such as /fsx/admin/save-node"),
        (hooked(hook="/fsx/admin/save node; reboot"), "slurm.drain.backup.hook: must be a program such as"),
        (hooked(timeout_minutes=0), "slurm.drain.backup.timeout_minutes: "),
        (
            drain(scale_down={"drain": {"timeout_minutes": 31}}),
            "scale_down.drain.timeout_minutes: must be 1 to 30, got 31",
        ),
        (
            drain(scale_down={"drain": {"timeout_minutes": 0}}),
            "scale_down.drain.timeout_minutes: must be 1 to 30, got 0",
        ),
        (
            drain(scale_down={"drain": {"on_timeout": "kill"}}),
            "scale_down.drain.on_timeout: must be one of fail, force",
        ),
        (
            drain(scale_down={"drain": {"on_silent": "force"}}),
            "scale_down.drain.on_silent: must be one of fail, undrained",
        ),
        (
            {"scale_down": {"drain": {}}},
            "scale_down.drain: asks an agent on the controller, and without slurm.drain there is none",
        ),
        (drain(lifecycle={"mode": "bootstrap"}), "slurm.drain: the library's own scripts start the agent"),
        (drain(lifecycle={"steps": {"drain": False}}), "lifecycle.steps.drain: is false, so nothing starts the agent"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], says: str) -> None:
    found = judge(changes)
    assert [line for line in found if line.startswith(says)], found


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
    assert not [line for line in judge(changes) if "drain" in line]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            under_eks(EXISTING),
            (
                "eks.existing_cluster.endpoint: is missing, and scale_down.drain asks this EKS cluster's API; add what "
                "`aws eks describe-cluster --name shared --query cluster.endpoint --output text` prints"
            ),
        ),
        (under_eks(EXISTING), "eks.existing_cluster.certificate_authority: is missing, and scale_down.drain asks"),
        (under_eks({**REACHED, "endpoint": "http://a"}), "eks.existing_cluster.endpoint: must be an address"),
        (under_eks({**REACHED, "endpoint": "https://a/b"}), "eks.existing_cluster.endpoint: must be an address"),
        (
            under_eks({**REACHED, "certificate_authority": "a b"}),
            "eks.existing_cluster.certificate_authority: must be the certificate in base64, in one line",
        ),
        (under_eks(backup_cron_job="backup"), "scale_down.drain.backup_cron_job: must be NAMESPACE/NAME of a CronJob"),
        (under_eks(backup_cron_job="a/b/c"), "scale_down.drain.backup_cron_job: must be NAMESPACE/NAME of a CronJob"),
        (
            drain(scale_down={"drain": {"unmanaged_pods": "evict"}}),
            "scale_down.drain.unmanaged_pods: is about pods, and this cluster is under Slurm; remove it",
        ),
        (under_eks(backup_cron_job="A/b"), "scale_down.drain.backup_cron_job: must be NAMESPACE/NAME of a CronJob"),
        (
            drain(scale_down={"drain": {"backup_cron_job": "research/backup"}}),
            (
                "scale_down.drain.backup_cron_job: is a CronJob of Kubernetes, and this cluster is under Slurm; remove it; "
                "under Slurm, slurm.drain.backup says what is saved"
            ),
        ),
    ],
)
def test_what_nobody_could_reach_or_save_is_refused(changes: dict[str, Any], says: str) -> None:
    found = judge(changes)
    assert [line for line in found if line.startswith(says)], found


@pytest.mark.parametrize(
    ("operators", "says"),
    [
        (["arn:aws:iam::111122223333:role/ops", f"arn:aws:iam::111122223333:role/{SSO}"], None),
        ([], OPEN),
        (["arn:aws:iam::111122223333:role/*"], "slurm.drain.operators[0]: must be an IAM role's ARN"),
        (["arn:aws:iam::111122223333:root"], "slurm.drain.operators[0]: must be an IAM role's ARN"),
        (["arn:aws:sts::111122223333:assumed-role/ops/me"], "slurm.drain.operators[0]: must be an IAM role's ARN"),
        (
            ["arn:aws:iam::111122223333:role/ops"] * 2,
            "slurm.drain.operators: 'arn:aws:iam::111122223333:role/ops' is there twice",
        ),
        (
            [f"arn:aws:iam::111122223333:role/{number:03}" for number in range(101)],
            "slurm.drain.operators: there are 101 roles with 3,434 characters",
        ),
    ],
)
def test_operators(operators: list[str], says: str | None) -> None:
    found = [line for line in judge({"slurm": {"drain": {"operators": operators}}}) if "operators" in line]
    assert len(found) == (0 if says is None else 1), found
    assert says is None or found[0].startswith(says)
