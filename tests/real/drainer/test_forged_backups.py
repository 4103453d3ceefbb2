"""A member of the team in whose namespace the backup's Jobs are, on the real API server, cannot make the drainer accept a
forged backup.

The library's own namespace gives no team any permission. Here the CronJob is in a wrong namespace, and a member attacks
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cdk_hyperpod.config.teams import Team
from cdk_hyperpod.kubernetes.drainer import BACKUP_NAMESPACE
from cdk_hyperpod.kubernetes.teams import group_name, team_manifests
from helpers.drainer.rig import NOW, Rig
from helpers.findings import codes
from helpers.kubernetes.apiserver.client import Client, await_answer

JOBS = "/apis/batch/v1/namespaces/ops/jobs"
RIGHTS = ("Role", "RoleBinding")


@pytest.fixture
def member(rig: Rig) -> Iterator[Client]:
    """A member of a team with the namespace `ops`."""
    rights = [each for each in team_manifests(Team(name="ops"), task_governance=False) if each["kind"] in RIGHTS]
    rig.namespace("ops")
    rig.admin.apply_all(rights)
    yield rig.admin.as_member("mallory", group_name("ops"))
    for each in rights:
        rig.admin.delete(each)


def forge(rig: Rig, member: Client, **spec: Any) -> str:
    """Delete the drainer's Job, and create one with its name. Returns the new uid."""
    (job,) = rig.jobs()
    path = f"{JOBS}/{job['metadata']['name']}"
    rig.must(member.request("DELETE", path, {"propagationPolicy": "Background"}))
    await_answer(lambda: rig.admin.get(path), lambda answer: answer.status == 404, "the Job's end")
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
    labels = {name: job["metadata"]["labels"][name] for name in ("app", "cdk-hyperpod.dev/drain-instance")}
    metadata = {name: job["metadata"][name] for name in kept} | {"labels": labels}
    pod = {"restartPolicy": "Never", "containers": [{"name": "none", "image": "none"}]}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}, **spec}}
    answer = member.create(body)
    rig.must(answer)
    await_answer(
        lambda: rig.admin.get(path),
        lambda found: bool(found.body["status"].get("conditions")) == ("completions" in spec),
        "what becomes of the forged Job",
    )
    return str(answer.body["metadata"]["uid"])


def begun(rig: Rig) -> str:
    """A node without pods, whose backup has begun."""
    rig.cron_job()
    node = rig.node()
    rig.ask(rig.node_request(node))
    assert rig.ask(rig.node_request(node))["nodes"][node]["state"] == "backing-up"
    return node


def saves_again(rig: Rig, node: str) -> str:
    """Look until the drainer has created another Job, after the pods of the one before have ended.

    Returns its message then.
    """
    told: dict[str, Any] = {}

    def begins() -> bool:
        rig.end_pods()
        told.update(rig.ask(rig.node_request(node))["nodes"][node])
        assert told["saved"] is False
        return bool(told["state"] == "backing-up")

    rig.until(begins, "another backup")
    return str(told["message"])


def test_a_job_of_the_same_name_that_completes_by_itself_saves_nothing(rig: Rig, member: Client) -> None:
    node = begun(rig)
    forged = forge(rig, member, completions=0)

    assert "which is not in the mark" in saves_again(rig, node)
    # Another one is created to replace it, and that one counts.
    (job,) = rig.jobs()
    assert job["metadata"]["uid"] != forged
    rig.job_ends("Succeeded")
    assert rig.ask(rig.node_request(node))["nodes"][node]["saved"] is True


def test_as_often_as_it_is_forged_the_node_is_not_saved(rig: Rig, member: Client) -> None:
    node = begun(rig)
    for _ in range(3):
        forge(rig, member, completions=0)
        saves_again(rig, node)
    rig.now = NOW + 1500
    assert rig.ask(rig.node_request(node))["nodes"][node]["state"] == "timed-out"
    assert rig.free(node)


def test_a_cron_job_whose_jobs_complete_without_a_pod_saves_nothing(rig: Rig) -> None:
    rig.cron_job(completions=0)
    node = rig.node()
    rig.ask(rig.node_request(node))
    rig.ask(rig.node_request(node))
    rig.until(rig.ended_already, "the Job's end")

    told = rig.ask(rig.node_request(node))["nodes"][node]

    assert (told["state"], told["saved"]) == ("backup-failed", False)
    assert codes(told["message"]) == ["node-backup-failed"]
    assert "no pod of it succeeded" in told["message"]


def test_a_member_may_not_write_what_counts(rig: Rig, member: Client) -> None:
    assert not member.may("patch", "jobs.batch/status", "ops")
    assert not member.may("update", "jobs.batch/status", "ops")
    assert not member.may("patch", "nodes")


@pytest.mark.parametrize("resource", ["jobs.batch", "cronjobs.batch", "pods", "pods/exec", "secrets", "events"])
def test_no_team_may_do_anything_in_the_librarys_own_namespace(rig: Rig, member: Client, resource: str) -> None:
    """The member of another team: their Role is in their own namespace."""
    rig.namespace(BACKUP_NAMESPACE)
    verbs = ("get", "list", "create", "update", "patch", "delete")
    assert not [verb for verb in verbs if member.may(verb, resource, BACKUP_NAMESPACE)]
