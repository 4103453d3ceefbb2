"""The user's backup: a Job of a CronJob on the node to delete, placed by the real scheduler and counted by the real
controller."""

from __future__ import annotations

import pytest

from cdk_hyperpod._lambda.hyperpod.drainer.api_client import Reply, Send
from helpers.drainer.rig import HOOK, NOW, Rig
from helpers.findings import codes


def drained(rig: Rig) -> str:
    """A node without pods, whose backup has begun."""
    rig.cron_job()
    node = rig.node()
    web = rig.pod(node, "web-1")
    assert rig.ask(rig.node_request(node))["nodes"][node]["state"] == "draining"
    assert rig.jobs() == []
    assert rig.ends(web)
    rig.end_pods()
    assert rig.ask(rig.node_request(node))["nodes"][node]["state"] == "backing-up"
    return node


def test_a_node_is_saved_when_its_pods_have_left_and_then_it_is_ready(rig: Rig) -> None:
    node = drained(rig)

    (job,) = rig.jobs()
    assert job["metadata"]["name"].startswith(f"drain-{node}-")
    assert job["metadata"]["labels"] == {"app": "save", "cdk-hyperpod.dev/drain-instance": node}
    assert job["metadata"]["annotations"]["cronjob.kubernetes.io/instantiate"] == "manual"
    assert job["metadata"]["ownerReferences"][0]["name"] == "save-node"
    assert job["spec"]["backoffLimit"] == 0
    # Placed on the cordoned node, which has a label of its own. The template's node selector is replaced.
    assert rig.job_pod()["spec"]["nodeName"] == f"hyperpod-{node}"

    answer = rig.ask(rig.node_request(node))
    assert answer["backup"] == HOOK
    told = answer["nodes"][node]
    assert (told["state"], told["message"]) == (
        "backing-up",
        f"Job ops/{job['metadata']['name']}: Pending",
    )
    # The drain does not wait for the backup's own pod as for a user's pod.
    assert (told["jobs"], answer["busy"]) == ([], {})

    rig.job_ends("Succeeded")
    told = rig.ask(rig.node_request(node))["nodes"][node]
    assert (told["state"], told["message"], told["saved"]) == ("ready", "is saved", True)

    # Its Job may be deleted before the next looks.
    rig.clear_jobs()
    assert rig.ask(rig.node_request(node))["nodes"][node]["saved"] is True
    assert rig.tell()["nodes"][node]["saved"] is True
    assert rig.jobs() == []


def test_a_backup_for_an_earlier_request_proves_nothing(rig: Rig) -> None:
    node = drained(rig)
    rig.job_ends("Succeeded")
    assert rig.ask(rig.node_request(node))["nodes"][node]["state"] == "ready"

    assert rig.ask(rig.node_request(node, request="later"))["nodes"][node]["state"] == "draining"
    assert rig.ask(rig.node_request(node, request="later"))["nodes"][node]["state"] == "backing-up"
    assert len(rig.jobs()) == 2


def test_a_backup_that_fails_says_so(rig: Rig) -> None:
    node = drained(rig)
    rig.job_ends("Failed")

    told = rig.ask(rig.node_request(node))["nodes"][node]

    assert (told["state"], codes(told["message"])) == ("backup-failed", ["node-backup-failed"])
    assert f"Job ops/drain-{node}-" in told["message"]
    assert "BackoffLimitExceeded" in told["message"]
    assert rig.held(node)
    rig.ask()
    assert rig.free(node)


def test_a_backup_that_cannot_start_says_why_until_the_deadline(rig: Rig) -> None:
    node = drained(rig)
    pod = rig.job_pod()
    image = {"name": "save", "ready": False, "restartCount": 0, "image": "none", "imageID": ""}
    waiting = {**image, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    rig.must(rig.admin.patch_status(pod, {"containerStatuses": [waiting]}))

    assert rig.ask(rig.node_request(node))["nodes"][node]["message"].endswith(": ImagePullBackOff")

    rig.now = NOW + 1500
    assert rig.ask(rig.node_request(node))["nodes"][node]["state"] == "timed-out"
    assert rig.free(node)
    assert rig.jobs() == []


def test_without_the_backup_cron_job_no_pod_is_evicted(rig: Rig) -> None:
    rig.backup = HOOK
    node = rig.node()
    web = rig.pod(node, "web-1")

    told = rig.ask(rig.node_request(node))["nodes"][node]

    assert (told["state"], codes(told["message"])) == ("backup-failed", ["backup-impossible"])
    assert f"CronJob {HOOK}" in told["message"]
    assert rig.free(node)
    assert not rig.ends(web)


def test_a_backup_job_that_the_api_server_would_refuse_evicts_no_pod(rig: Rig) -> None:
    rig.cron_job()
    rig.quota({"count/jobs.batch": "0"})
    node = rig.node()
    web = rig.pod(node, "web-1")

    told = rig.ask(rig.node_request(node))["nodes"][node]

    assert (told["state"], codes(told["message"])) == ("backup-failed", ["backup-impossible"])
    assert "exceeded quota" in told["message"]
    assert rig.free(node)
    assert not rig.ends(web)
    assert rig.jobs() == []


@pytest.mark.parametrize("on_timeout", ["fail", "force"])
def test_a_backup_without_a_pod_says_what_its_job_says_and_so_does_a_timeout(rig: Rig, on_timeout: str) -> None:
    """Whether its pod will be admitted cannot be checked before by a caller who may not create pods."""
    rig.cron_job()
    rig.quota({"pods": "0"})
    node = rig.node()
    node_request = {"on_timeout": on_timeout}
    rig.ask(rig.node_request(node, **node_request))
    rig.ask(rig.node_request(node, **node_request))

    def said() -> str:
        return str(rig.ask(rig.node_request(node, **node_request))["nodes"][node]["message"])

    rig.until(lambda: "FailedCreate" in said(), "the Job's event")
    (job,) = rig.jobs()
    cause = f"Job ops/{job['metadata']['name']}: has no pod; FailedCreate: Error creating: pods "
    assert said().startswith(cause)
    assert "exceeded quota: tight" in said()

    rig.now = NOW + 1500
    assert "exceeded quota: tight" in said()
    if on_timeout == "fail":
        assert rig.free(node)
        # The guard may call once more after its Job was deleted.
        assert rig.jobs() == []
        assert said().startswith("was released at its deadline; Job ops/drain-")
        assert "exceeded quota: tight" in said()


def test_under_force_a_pod_that_never_ends_does_not_keep_the_backup(rig: Rig) -> None:
    """Otherwise a deleted pod with a finalizer or a grace period of ten years would block the drain forever."""
    rig.cron_job()
    node = rig.node()
    rig.pod(node, "kept", terminationGracePeriodSeconds=10 * 365 * 24 * 3600)
    rig.ask(rig.node_request(node, on_timeout="force"))
    assert rig.ask(rig.node_request(node, on_timeout="force"))["nodes"][node]["state"] == "draining"

    rig.now = NOW + 1500
    assert rig.ask(rig.node_request(node, on_timeout="force"))["nodes"][node]["state"] == "backing-up"
    rig.job_ends("Succeeded")
    told = rig.ask(rig.node_request(node, on_timeout="force"))["nodes"][node]
    # It is backed up, and the guard waits with a node on which pods run until the time is over.
    assert (told["state"], told["saved"], told["running"]) == ("ready", True, 1)


def test_a_backup_job_is_deleted_when_its_drain_request_ends(rig: Rig) -> None:
    node = drained(rig)
    assert len(rig.jobs()) == 1

    rig.ask()

    assert rig.jobs() == []
    assert rig.free(node)


def test_a_node_that_was_uncordoned_is_backed_up_again(rig: Rig) -> None:
    """Later data is in no backup: the existing one is older."""
    node = drained(rig)
    rig.job_ends("Succeeded")
    rig.patch(f"/api/v1/nodes/hyperpod-{node}", {"spec": {"unschedulable": None}})
    rig.now += 30

    assert rig.ask(rig.node_request(node))["nodes"][node]["state"] == "draining"
    told = rig.ask(rig.node_request(node))["nodes"][node]
    assert (told["state"], told["saved"]) == ("backing-up", False)
    assert len(rig.jobs()) == 2


def test_a_rollback_is_not_saved(rig: Rig) -> None:
    rig.cron_job()
    node = rig.node()
    rig.ask(rig.node_request(node, backup=False))

    told = rig.ask(rig.node_request(node, backup=False))["nodes"][node]

    assert (told["state"], told["saved"]) == ("ready", False)
    assert rig.jobs() == []


def test_under_force_a_node_is_saved_with_what_is_left_on_it(rig: Rig) -> None:
    rig.cron_job()
    node = rig.node()
    web = rig.pod(node, "web-1", labels={"app": "web"})
    rig.budget("web", {"app": "web"}, least=1)
    rig.ask(rig.node_request(node, on_timeout="force"))
    rig.now = NOW + 1500

    assert rig.ask(rig.node_request(node, on_timeout="force"))["nodes"][node]["state"] == "backing-up"
    rig.job_ends("Succeeded")
    told = rig.ask(rig.node_request(node, on_timeout="force"))["nodes"][node]

    assert (told["state"], told["saved"]) == ("ready", True)
    assert not rig.ends(web)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_backup_hook_without_permissions_does_not_keep_nodes_from_being_released(rig: Rig, wanted: bool) -> None:
    """Its namespace was deleted, for example, and the Role with it."""
    node, other = rig.node(), rig.node()
    rig.ask(rig.node_request(node))
    rig.backup = "elsewhere/save-node"

    answer = rig.ask(*([rig.node_request(other)] if wanted else []))

    assert rig.free(node)
    assert answer["problem"] == ""
    if wanted:
        told = answer["nodes"][other]
        assert told["state"] == "backup-failed"
        assert 'cannot list resource "jobs" in API group "batch" in the namespace "elsewhere"' in told["message"]
        assert rig.free(other)


def test_the_pod_of_a_backup_whose_job_cannot_be_read_is_neither_evicted_nor_counted(rig: Rig) -> None:
    """At the deadline the Role in the backup's namespace is deleted. The backup's own pod is not examined."""
    node = drained(rig)
    rig.job_pod()
    sent: list[str] = []

    def without_jobs(send: Send) -> Send:
        def sends(method: str, path: str, body: bytes | None, kind: str) -> Reply:
            sent.append(path)
            return send(method, path.replace("/namespaces/ops/jobs", "/namespaces/elsewhere/jobs"), body, kind)

        return sends

    rig.wrap, rig.now = without_jobs, NOW + 1500
    answer = rig.ask(rig.node_request(node))
    told = answer["nodes"][node]

    assert (told["state"], told["jobs"], answer["busy"]) == ("timed-out", [], {})
    assert not any("/eviction" in path for path in sent)
