"""`cdk-hyperpod patch` on HyperPod's model: groups in order, drained first, and every way in which it stops."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.exceptions import ReadTimeoutError  # type: ignore[import-untyped]

from cdk_hyperpod.cli import tables
from cdk_hyperpod.cli.patch import model, patcher, run_record
from cdk_hyperpod.cli.patch.drains import nothing_drains
from cdk_hyperpod_local.hyperpod.samples import EKS_ARN, group
from cdk_hyperpod_local.hyperpod.samples import eks as eks_cluster
from helpers.cli.patching import OPERATOR, World
from helpers.drainer.lease import RunLease
from helpers.findings import codes
from unit.cli.conftest import FakeAws, Run, refused, write

Json = Any
STACK = {"StackName": "hyperpod-small-cluster", "StackStatus": "UPDATE_COMPLETE"}
DATABASE = {
    "endpoint": "db.us-west-2.rds.amazonaws.com",
    "secret_arn": "arn:aws:secretsmanager:us-west-2:111122223333:secret:a",
}


@pytest.fixture
def world(fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> World:
    """A Slurm cluster with two nodes that work, and an agent."""
    write(slurm__drain={})
    fake_aws.stack = STACK
    fake_aws.cluster(group("work", 2))
    return _began(World(fake_aws), monkeypatch)


@pytest.fixture
def eks(fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> World:
    """An EKS cluster with two nodes that work, and a drainer."""
    write_eks()
    fake_aws.stack = STACK
    fake_aws.model.call("CreateCluster", eks_cluster(group("work", 2, node_type=None), name="small"))
    found = _began(World(fake_aws, agent_alive=False), monkeypatch)
    fake_aws.drainer = found.drain_by_function
    return found


def write_eks(*, group: Json = None, drain: Json = None) -> None:
    """The file of the EKS cluster."""
    existing = {"name": EKS_ARN.split("/")[1], "security_group_id": "sg-0123456789abcdef0"}
    subnets = [
        {"subnet_id": f"subnet-0{number}23456789abcdef0", "availability_zone": f"us-west-2{zone}"}
        for number, zone in ((1, "a"), (2, "b"))
    ]
    file = {
        "name": "small",
        "region": "us-west-2",
        "orchestrator": "eks",
        "eks": {"dependencies_chart": "installed", "existing_cluster": existing},
        "network": {"vpc_id": "vpc-0123456789abcdef0", "subnets": subnets},
        "instance_groups": [{"name": "work", "instance_type": "ml.p5.48xlarge", "instance_count": 2, **(group or {})}],
    }
    if drain is not None:
        existing |= {"endpoint": "https://0A1B.gr7.us-west-2.eks.amazonaws.com", "certificate_authority": "LS0tLS1C"}
        file["scale_down"] = {"drain": drain}
    Path("cluster.yaml").write_text(yaml.safe_dump(file, sort_keys=False))


def _began(found: World, patch: pytest.MonkeyPatch) -> World:
    # As AWS documents it: under Slurm nobody knows whether a node runs the latest image.
    found.aws.model.behaviour = replace(found.aws.model.behaviour, image_versions="eks_since_2026")
    found.aws.quiet()
    found.aws.model.release_image("2.0.0")
    found.look()
    patch.setattr(patcher.Patcher, "wait", staticmethod(found.wait))
    return found


def sent(world: World) -> list[str]:
    """The groups for which UpdateClusterSoftware was accepted, in order."""
    calls = [
        call.params
        for call in world.aws.model.journal
        if call.operation == "UpdateClusterSoftware" and call.outcome == "ok"
    ]
    return [each["InstanceGroupName"] for call in calls for each in call["InstanceGroups"]]


def images(world: World, name: str) -> set[str]:
    return {node.image for node in world.aws.model.nodes("small", name)}


def content(world: World) -> Json:
    return json.loads(world.aws.asked[OPERATOR])


def typed(patch: pytest.MonkeyPatch, text: str) -> None:
    terminal = io.StringIO(text)
    patch.setattr(terminal, "isatty", lambda: True)
    patch.setattr("sys.stdin", terminal)


# -- the common case


def test_it_drains_patches_follows_and_releases(world: World, run: Run) -> None:
    one, _ = world.aws.nodes("work")
    world.jobs = {one: world.now + 3600}
    code, out, err = run("patch", "--yes")
    assert (code, err) == (0, ""), out
    assert (sent(world), world.killed, images(world, "work")) == (["work"], [], {"2.0.0"})
    assert "work       2" in out.splitlines()[1] and "latest" in out.splitlines()[1]
    assert "note: head is not patched" in out and out.endswith("patched: work\n")
    assert world.requests() == {} and "patch" not in content(world), "nothing is held, and the run is over"


def test_while_it_waits_it_makes_four_calls_a_minute_at_most(world: World, run: Run) -> None:
    world.jobs = dict.fromkeys(world.aws.nodes("work"), world.now + 5 * 3600)
    assert run("patch", "--yes")[0] == 0
    assert len(world.waits) > 200
    # At its beginning, and around its only action, it also lists, sends, and writes its record.
    looks = zip(world.calls_of_waits, [0.0, *world.waits], strict=False)
    busy = [(calls, waited) for calls, waited in looks if calls > 4 * waited / 60]
    assert len(busy) <= 3, busy
    assert sum(world.calls_of_waits) / (sum(world.waits) / 60) <= 4


def test_a_table_of_6758_nodes(fake_aws: FakeAws, run: Run) -> None:
    write(slurm__drain={})
    fake_aws.stack = STACK
    fake_aws.cluster(group("work", 6757))
    fake_aws.quiet()
    found = World(fake_aws, jobs=dict.fromkeys(fake_aws.nodes("work")[:9], 9e9))
    found.look()
    fake_aws.calls.clear()
    code, out, err = run("patch", "--dry-run")
    assert (code, err) == (0, "")
    assert len(fake_aws.calls) <= 68 + 4, fake_aws.calls
    assert "work    6757" in out and "9 nodes busy" in out
    assert max(map(len, out.splitlines()[:2])) <= 80


def test_the_hold_is_a_lease_that_is_renewed(world: World, run: Run) -> None:
    one, two = world.aws.nodes("work")
    world.jobs = {one: world.now + 3600}
    leases: list[float] = []

    def look(_: int) -> None:
        assert {*world.held} in ({one, two}, set())
        if not sent(world):
            leases.extend(request["expires"] - world.now for request in world.held.values())

    world.do = look
    assert run("patch", "--yes")[0] == 0
    assert min(leases) > 0 and max(leases) <= model.LEASE_S


def test_the_order_is_compute_login_controller(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write(slurm={"drain": {}, "accounting_database": DATABASE})
    code, out, err = run("patch", "--controller", "--yes")
    assert (code, err, sent(world)) == (0, "", ["work", "head"]), out


@pytest.mark.parametrize("queue", [1, None])
def test_a_controller_with_a_queue_needs_its_name_typed(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch, queue: int | None
) -> None:
    write(slurm={"drain": {}, "accounting_database": DATABASE})
    world.queue = queue
    world.look()
    code, out, err = run("patch", "head", "--controller", "--yes")
    assert code == 1 and "the queue: every job that runs or waits" in err and sent(world) == []
    assert err.endswith("Run it on a terminal\n")
    typed(monkeypatch, "small\n")
    assert run("patch", "head", "--controller")[0] == 1
    typed(monkeypatch, "head\n")
    code, out, _ = run("patch", "head", "--controller")
    assert (code, sent(world)) == (0, ["head"]), out


def test_a_job_that_came_meanwhile_stops_the_controllers_turn(world: World, run: Run) -> None:
    write(slurm={"drain": {}, "accounting_database": DATABASE})

    def submit(_: int) -> None:
        world.queue = 3

    world.do = submit
    code, _, err = run("patch", "--controller", "--yes")
    assert (code, sent(world)) == (4, ["work"])
    assert "the queue has 3 jobs" in err and "not patched: head" in err


def test_it_asks_for_the_clusters_name(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("patch")[::2] == (
        1,
        "nothing was changed: there is no terminal to confirm on\nTo go on without confirmation, add --yes\n",
    )
    typed(monkeypatch, "work\n")
    assert run("patch")[0] == 1
    assert sent(world) == [] and OPERATOR not in world.aws.asked
    typed(monkeypatch, "small\n")
    assert run("patch")[0] == 0


def test_json_is_a_document_a_line(world: World, run: Run) -> None:
    code, out, err = run("patch", "--yes", "--json")
    documents = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert documents[0]["kind"] == "table" and documents[-1]["kind"] == "end"
    assert documents[0]["groups"][0]["emptied_by"] == "agent"
    assert (documents[-1]["exit_code"], documents[-1]["patched"]) == (0, ["work"])


# -- others at the same time


def test_a_patch_does_not_release_nodes_held_by_an_operator(world: World, run: Run) -> None:
    one, two = world.aws.nodes("work")
    assert run("drain", one, "--hold", "24h")[0] == 0
    before = world.requests()[one]
    world.look()
    assert run("patch", "--yes")[0] == 0
    assert world.requests() == {one: before} and sent(world) == ["work"]
    assert two not in world.requests()


def test_a_second_patch_on_this_machine_is_refused(world: World, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "cache" / "cdk-hyperpod" / "patch-000000000000-us-west-2-small.json"
    path.parent.mkdir(parents=True)
    program = f"import fcntl,sys; f=open({str(path)!r},'w'); fcntl.flock(f,2); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdin is not None
        other.stdout.readline()
        code, _, err = run("patch", "--yes")
        other.stdin.close()
    assert code == 1 and "is running on this machine" in err and sent(world) == []
    assert run("patch", "--yes")[0] == 0


def test_a_second_patch_on_another_machine_is_refused(
    world: World, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.jobs = dict.fromkeys(world.aws.nodes("work"), world.now + 1800)
    seen: list[tuple[int, str]] = []

    def second(number: int) -> None:
        if number == 3:
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
            code, _, err = run("patch", "--yes")
            seen.append((code, err))

    world.do = second
    assert run("patch", "--yes")[0] == 0
    ((code, err),) = seen
    assert code == 1 and "another `cdk-hyperpod patch` of this cluster is running, by " in err
    assert sent(world) == ["work"]


def test_a_deployment_that_begins_stops_the_drain(world: World, run: Run) -> None:
    world.jobs = dict.fromkeys(world.aws.nodes("work"), world.now + 9e4)

    def deploy(number: int) -> None:
        if number == 3:
            world.aws.stack = {**STACK, "StackStatus": "UPDATE_IN_PROGRESS"}

    world.do = deploy
    code, _, err = run("patch", "--yes")
    assert (code, sent(world), world.requests()) == (4, [], {})
    assert "a deployment of stack hyperpod-small-cluster (UPDATE_IN_PROGRESS) has begun" in err


def test_a_deployment_that_begins_during_an_update_is_followed_by_no_other_group(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(slurm={"drain": {}, "accounting_database": DATABASE})

    def deploy(_: int) -> None:
        if sent(world):
            world.aws.stack = {**STACK, "StackStatus": "UPDATE_IN_PROGRESS"}

    world.do = deploy
    code, _, err = run("patch", "--controller", "--yes")
    assert (code, sent(world), images(world, "work")) == (4, ["work"], {"2.0.0"})
    assert "not patched: head" in err


def test_a_deployments_nodes_are_left_to_it(world: World, run: Run) -> None:
    world.do = lambda number: world.deploy() if number >= 2 else None
    world.jobs = dict.fromkeys(world.aws.nodes("work"), world.now + 9e4)
    code, _, err = run("patch", "--yes")
    assert (code, sent(world)) == (4, []) and "a deployment drains i-" in err


def test_a_node_that_hyperpod_replaces_meanwhile_is_drained_too(world: World, run: Run) -> None:
    one, two = world.aws.nodes("work")
    world.jobs = {one: world.now + 7200, two: world.now + 9e4}

    def repair(number: int) -> None:
        if number == 3:
            world.aws.model.call("BatchReplaceClusterNodes", {"ClusterName": "small", "NodeIds": [two]})
        for node in world.aws.nodes("work"):
            if node not in (one, two, "None"):
                world.jobs.setdefault(node, world.now + 3600)

    world.do = repair
    code, out, err = run("patch", "--yes")
    assert (code, err, world.killed, sent(world)) == (0, "", [], ["work"]), out
    assert len(world.jobs) == 3, "a job began on the new node, and was waited for"


def test_a_group_that_is_deleted_half_way(world: World, run: Run) -> None:
    world.jobs = dict.fromkeys(world.aws.nodes("work"), world.now + 9e4)

    def delete(number: int) -> None:
        if number == 2:
            world.aws.model.call("UpdateCluster", {"ClusterName": "small", "InstanceGroupsToDelete": ["work"]})

    world.do = delete
    code, _, err = run("patch", "work", "--yes")
    assert (code, world.requests()) == (4, {}) and err == "failed: work: the group was deleted meanwhile\n"
    world.aws.quiet()
    world.do = lambda _: None
    code, out, _ = run("patch", "work", "--yes")
    assert code == 0 and "note: work was deleted meanwhile" in out


def test_a_group_that_is_renamed_half_way(world: World, run: Run) -> None:
    """HyperPod renames none: one is deleted, and another one is created."""
    world.jobs = dict.fromkeys(world.aws.nodes("work"), world.now + 9e4)
    renaming = {"InstanceGroupsToDelete": ["work"], "InstanceGroups": [group("renamed", 2)]}

    def rename(number: int) -> None:
        if number == 2:
            world.aws.model.call("UpdateCluster", {"ClusterName": "small", **renaming})

    world.do = rename
    code, _, err = run("patch", "--yes")
    assert (code, world.requests(), sent(world)) == (4, {}, []) and "work: the group was deleted meanwhile" in err
    world.do = lambda _: None
    world.jobs = {}
    world.aws.quiet()
    world.look()
    code, out, _ = run("patch", "--yes")
    assert code == 0 and out.endswith("patched: renamed\n")


def test_a_group_that_is_scaled_to_zero_half_way_is_not_patched(world: World, run: Run) -> None:
    world.jobs = dict.fromkeys(world.aws.nodes("work"), world.now + 9e4)

    def scale(number: int) -> None:
        if number == 2:
            nodes = world.aws.nodes("work")
            world.aws.model.call("BatchDeleteClusterNodes", {"ClusterName": "small", "NodeIds": nodes})

    world.do = scale
    code, out, err = run("patch", "work", "--yes")
    assert (code, sent(world)) == (4, []) and "work: it has no nodes any more" in err and "patched" not in out


def test_a_conflict_is_waited_for(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter(range(3))
    real = world.aws.model.client().update_cluster_software

    def busy(_: object, **given: Json) -> Json:
        if next(left, None) is not None:
            raise refused("ConflictException", "another operation is in progress", "UpdateClusterSoftware")
        return real(**given)

    monkeypatch.setattr(type(world.aws.model.client()), "update_cluster_software", busy, raising=False)
    code, out, err = run("patch", "--yes")
    assert (code, err, sent(world)) == (0, "", ["work"])
    assert "HyperPod is busy, and the update is sent again" in out


def test_s3_may_fail_for_some_looks(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    world.jobs = dict.fromkeys(world.aws.nodes("work"), world.now + 1800)
    left = iter(range(4))
    real = world.aws.client

    class Slow:
        def __getattr__(self, name: str) -> Json:
            if name == "get_object" and world.waits and next(left, None) is not None:
                raise refused("SlowDown", "Reduce your request rate", "GetObject")
            return getattr(real("s3"), name)

    monkeypatch.setattr(
        "cdk_hyperpod.cli.live.clients", lambda *_: lambda service: Slow() if service == "s3" else real(service)
    )
    code, out, err = run("patch", "--yes")
    assert (code, err, sent(world), world.killed) == (0, "", ["work"], [])
    assert "a look failed and will be repeated: cannot read s3://" in out


def test_an_agent_that_dies_ends_it_after_ten_minutes(world: World, run: Run) -> None:
    world.jobs = dict.fromkeys(world.aws.nodes("work"), world.now + 9e4)

    def die(number: int) -> None:
        world.agent_alive = number < 3

    world.do = die
    code, _, err = run("patch", "--yes")
    assert (code, sent(world), world.requests()) == (4, [], {})
    assert "the drain agent has not written its status for" in err
    assert sum(world.waits) < 1500


def test_an_agent_that_comes_back_in_time_goes_on(world: World, run: Run) -> None:
    world.jobs = dict.fromkeys(world.aws.nodes("work"), world.now + 3600)

    def die(number: int) -> None:
        world.agent_alive = not 3 <= number < 9

    world.do = die
    assert run("patch", "--yes")[0] == 0


# -- time


def test_when_the_time_is_over_the_nodes_go_back_to_work(world: World, run: Run) -> None:
    one, two = world.aws.nodes("work")
    world.jobs = {one: world.now + 9e4}
    code, _, err = run("patch", "--yes", "--drain-for", "2h")
    assert (code, sent(world), world.requests()) == (4, [], {})
    assert f"the time of --drain-for is over; 1 node not ready: {one} draining: jobs: 4711 of alice" in err
    assert 7200 <= sum(world.waits) < 7400
    assert two not in err


def test_jobs_are_ended_only_if_they_may_be(world: World, run: Run) -> None:
    (one, _) = world.aws.nodes("work")
    world.jobs = {one: world.now + 9e4}
    assert run("patch", "--yes", "--force-after", "1h")[0] == 0
    assert (world.jobs, sent(world)) == ({}, ["work"])


def test_no_drain_ends_the_jobs_at_once(world: World, run: Run) -> None:
    world.jobs = dict.fromkeys(world.aws.nodes("work"), world.now + 9e4)
    code, out, _ = run("patch", "--yes", "--no-drain")
    assert (code, sorted(world.killed)) == (0, sorted(world.aws.nodes("work")))
    assert "1. work: HyperPod installs its latest image on all nodes at once. Jobs that run there end" in out
    assert not any(world.held)


# -- what fails


def test_a_script_that_fails_on_the_new_image_rolls_back(world: World, run: Run) -> None:
    write(slurm={"drain": {}, "accounting_database": DATABASE})
    world.aws.model.faults.failing_images.add("2.0.0")
    code, _, err = run("patch", "--controller", "--yes")
    assert (code, world.requests()) == (3, {})
    assert err.startswith("rolled back: work: HyperPod has put the old image back\n")
    assert "not patched: work, head" in err and sent(world) == ["work"], "the first failure stops it"
    assert "UpdateClusterSoftware" in err, "HyperPod's own events say why"


def test_after_a_failure_the_same_command_goes_on_with_what_is_left(world: World, run: Run) -> None:
    write(slurm={"drain": {}, "accounting_database": DATABASE})

    def submit(_: int) -> None:
        world.queue = 1 if sent(world) else 0

    world.do = submit
    assert run("patch", "--controller", "--yes")[0] == 4
    world.do = lambda _: None
    world.queue = 0
    world.look()
    code, out, err = run("patch", "--controller", "--yes")
    assert (code, err, sent(world)) == (0, "", ["work", "head"]), out
    assert "- (patched in this run)" in out


@pytest.mark.parametrize("state", ["backup-failed", "refused"])
def test_a_node_that_can_never_be_drained_ends_it(world: World, run: Run, state: str) -> None:
    backup = {"paths": ["/opt/dlami/nvme/work"], "to": "/fsx/backup"}
    write(slurm__drain={"backup": backup}, storage={"capacity_gib": 4800})
    one, _ = world.aws.nodes("work")
    world.saves, world.state_of = True, {one: state}
    world.look()
    code, _, err = run("patch", "--yes")
    assert (code, sent(world), world.requests()) == (4, [], {})
    assert f"work: {one}: {state}: why" in err


RIGHTS = [
    "sagemaker:describe_cluster",
    "sagemaker:list_cluster_nodes",
    "cloudformation:describe_stacks",
    "s3:get_object",
    "s3:put_object",
]


@pytest.mark.parametrize("right", RIGHTS)
def test_a_permission_that_is_missing_is_one_sentence_and_nothing_is_done(world: World, run: Run, right: str) -> None:
    world.aws.denied.add(right)
    code, _, err = run("patch", "--yes")
    assert code == 1 and err.count("your credentials lack the permission") == 1, err
    assert sent(world) == [] and OPERATOR not in world.aws.asked


def test_a_missing_update_permission_is_refused_before_the_drain_if_iam_can_be_simulated(
    world: World, run: Run
) -> None:
    world.aws.denied.add("sagemaker:update_cluster_software")
    check_refused(world, run, "--yes", code="patch-not-permitted")


def test_a_denied_update_releases_the_nodes(world: World, run: Run) -> None:
    world.aws.denied |= {"sagemaker:update_cluster_software", "iam:simulate_principal_policy"}
    code, out, err = run("patch", "--yes")
    assert (
        "note: whether you may call UpdateClusterSoftware is unknown: your credentials lack the permission iam:" in out
    )
    assert (code, world.requests()) == (4, {})
    assert err.count("your credentials lack the permission sagemaker:update_cluster_software") == 1


@pytest.mark.parametrize("right", RIGHTS)
def test_a_permission_lost_during_the_drain_ends_the_patch_without_an_update(
    world: World, run: Run, right: str
) -> None:
    world.jobs = dict.fromkeys(world.aws.nodes("work"), world.now + 9e4)

    def take(number: int) -> None:
        if number == 3:
            world.aws.denied.add(right)

    world.do = take
    code, _, err = run("patch", "--yes", "--drain-for", "1h")
    assert code == 4 and sent(world) == []
    assert "your credentials lack the permission" in err or "--drain-for is over" in err


# -- killed, and started again


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


class Killer:
    """Ends the process at its Nth call of AWS, before it has an effect or after."""

    def __init__(self, aws: FakeAws, patch: pytest.MonkeyPatch, at: int, *, after: bool) -> None:
        self.left, self.after, self.dead = at, after, False
        real = aws.client

        def client(service: str) -> Json:
            return _Mortal(self, real(service))

        patch.setattr("cdk_hyperpod.cli.live.clients", lambda *_: client)
        write_record = run_record.LocalRecord.write
        patch.setattr(
            run_record.LocalRecord, "write", lambda own, found: None if self.dead else write_record(own, found)
        )


class _Mortal:
    def __init__(self, killer: Killer, client: Json) -> None:
        self._killer, self._client = killer, client

    def __getattr__(self, name: str) -> Json:
        real = getattr(self._client, name)

        def call(**given: Json) -> Json:
            killer = self._killer
            if killer.dead:
                raise Killed
            killer.left -= 1
            if killer.left == 0:
                killer.dead = True
                if killer.after:
                    real(**given)
                raise Killed
            return real(**given)

        return call


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [5, 9, 13, 17, 21, 27, 33, 37, 41, 60])
def test_killed_at_any_call_the_same_command_goes_on(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch, at: int, after: bool
) -> None:
    world.jobs = {world.aws.nodes("work")[0]: world.now + 1200}
    with monkeypatch.context() as patch:
        killer = Killer(world.aws, patch, at, after=after)
        with pytest.raises(Killed):
            run("patch", "--yes")
        assert killer.dead
    world.wait(300)
    code, out, err = run("patch", "--yes")
    if code == 4 and "not confirmed: it is unknown whether HyperPod got the call" in err:
        # It was killed in the second of the call, so nobody knows whether what HyperPod shows is its answer.
        code, out, err = run("patch", "--yes")
    assert (code, err, world.killed) == (0, "", []), out
    assert images(world, "work") == {"2.0.0"} and world.requests() == {}
    assert len(world.aws.model.re_images) == 2, "each node once"


def test_another_machine_goes_on_when_the_lease_is_over(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(slurm={"drain": {}, "accounting_database": DATABASE})
    with monkeypatch.context() as patch:
        Killer(world.aws, patch, 60, after=True)
        with pytest.raises(Killed):
            run("patch", "--controller", "--yes")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    code, _, err = run("patch", "--controller", "--yes")
    assert code == 1 and "try again in" in err
    world.wait(model.LEASE_S)
    assert run("patch", "--controller", "--yes")[0] == 0
    assert sent(world) == ["work", "head"]


def test_a_process_that_slept_too_long_leaves_the_run_to_the_other_one(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world.jobs = dict.fromkeys(world.aws.nodes("work"), world.now + 3600)
    seen: list[int] = []

    def sleep(number: int) -> None:
        if number == 3:
            world.wait(model.LEASE_S)
            with monkeypatch.context() as patch:
                patch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
                seen.append(run("patch", "--yes")[0])

    world.do = sleep
    code, _, err = run("patch", "--yes")
    assert (code, seen, sent(world)) == (4, [0], ["work"])
    assert "another process has gone on with this patch" in err


def test_ctrl_c_releases_the_nodes_and_leaves_the_run(world: World, run: Run) -> None:
    world.jobs = dict.fromkeys(world.aws.nodes("work"), world.now + 1800)

    def interrupt(number: int) -> None:
        if number == 4:
            raise KeyboardInterrupt

    world.do = interrupt
    code, _, err = run("patch", "--yes")
    assert code == 130 and "no node is held. " in err
    assert world.requests() == {} and content(world)["patch"]["until"] <= world.now
    world.do = lambda _: None
    assert run("patch", "--yes")[0] == 0


def test_the_clock_of_force_after_begins_with_the_run_that_shows_it(world: World, run: Run) -> None:
    node = world.aws.nodes("work")[0]
    world.jobs = {node: world.now + 9e4}

    def interrupt(_: int) -> None:
        if sum(world.waits) > 3 * 3600:
            raise KeyboardInterrupt

    world.do = interrupt
    assert run("patch", "--yes")[0] == 130
    world.do = lambda _: None
    began = sum(world.waits)
    ended: list[float] = []

    def watch(_: int) -> None:
        if node not in world.jobs and not ended:
            ended.append(sum(world.waits) - began)

    world.do = watch
    code, out, _ = run("patch", "--yes", "--force-after", "2h")
    assert code == 0 and "jobs end after 2h" in out
    assert 7200 <= ended[0] < 7400


def test_the_nodes_are_held_as_long_as_the_printed_time_from_the_call_on(world: World, run: Run) -> None:
    def interrupt(_: int) -> None:
        if sent(world):
            raise KeyboardInterrupt

    world.do = interrupt
    code, out, err = run("patch", "--yes")
    until = {request["expires"] for request in world.requests().values()}
    shown = {datetime.fromtimestamp(each, UTC).strftime("until %Y-%m-%d %H:%M UTC") for each in until}
    assert code == 130 and len(shown) == 1 and min(until) > world.now + 23 * 3600
    assert shown.pop() in err and "If this command is lost, the nodes stay held until" in out


def test_nodes_of_an_unconfirmed_update_stay_held_and_the_next_run_sends_it_again(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: Json) -> Json:
        raise ReadTimeoutError(endpoint_url="https://sagemaker")

    with monkeypatch.context() as patched:
        patched.setattr(type(world.aws.model.client()), "update_cluster_software", lost, raising=False)
        code, out, err = run("patch", "--yes")
    assert (code, sent(world)) == (4, []) and "not confirmed" in err, out + err
    assert {*world.held} == {*world.aws.nodes("work")} and all(
        e["expires"] > world.now + 8e4 for e in world.held.values()
    )
    world.wait(1200)
    code, out, err = run("patch", "--yes")
    assert (code, sent(world), world.requests()) == (0, ["work"], {}), out + err


class Failing:
    """An S3 that refuses some writes."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch, when: Any) -> None:
        real = world.aws.client

        class S3:
            def __getattr__(self, name: str) -> Json:
                if name == "put_object" and when():
                    raise refused("ServiceUnavailable", "Reduce your request rate", "PutObject")
                return getattr(real("s3"), name)

        patch.setattr(
            "cdk_hyperpod.cli.live.clients", lambda *_: lambda service: S3() if service == "s3" else real(service)
        )


def test_a_renewal_that_failed_is_tried_again_at_the_next_look(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.jobs = dict.fromkeys(world.aws.nodes("work"), world.now + 3600)
    Failing(world, monkeypatch, lambda: 200 < sum(world.waits) < 500)
    held: list[int] = []
    world.do = lambda _: held.append(len(world.held))
    assert run("patch", "--yes")[0] == 0
    assert set(held[:30]) == {2}, "the lease outlives the failure"


def test_the_release_is_tried_again(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter(range(3))
    Failing(
        world, monkeypatch, lambda: images(world, "work") == {"2.0.0"} and world.held and next(left, None) is not None
    )
    code, out, err = run("patch", "--yes")
    assert (code, err, world.requests()) == (0, "", {}), out
    assert out.endswith("patched: work\n")


def _answers(world: World, patch: pytest.MonkeyPatch, error: Exception) -> list[float]:
    """How often UpdateClusterSoftware was called. Each call ends in the error."""
    calls: list[float] = []

    def fail(*_: object, **__: Json) -> Json:
        calls.append(world.now)
        assert len(calls) < 9, "it sends without end"
        raise error

    patch.setattr(type(world.aws.model.client()), "update_cluster_software", fail, raising=False)
    return calls


def test_it_says_how_long_nodes_are_held_that_it_cannot_release_after_a_refusal(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _answers(world, monkeypatch, refused("ValidationException", "no such AMI", "UpdateClusterSoftware"))
    Failing(world, monkeypatch, lambda: bool(calls))
    _, _, err = run("patch", "--yes")
    until = max(request["expires"] for request in world.held.values())
    assert f"stay held until {datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M} UTC" in err


def test_a_record_that_cannot_be_written_before_the_call_is_no_call(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(range(1))
    Failing(
        world,
        monkeypatch,
        lambda: any(each["expires"] > world.now + 8e4 for each in world.requests().values()) and not next(left, 1),
    )
    code, out, err = run("patch", "--yes")
    assert (code, err, sent(world)) == (0, "", ["work"]) and "a look failed" in out


def test_an_unknown_image_ends_the_patch_and_releases_the_nodes(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group is there: it is the image."""
    calls = _answers(world, monkeypatch, refused("ResourceNotFound", "no such image", "UpdateClusterSoftware"))
    code, _, err = run("patch", "--yes")
    assert (code, len(calls), world.requests()) == (4, 1, {}) and "no such image" in err


@pytest.mark.parametrize("error", ["lost", "throttled"])
def test_an_update_that_gets_no_answer_is_sent_three_times(
    eks: World, run: Run, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    write_eks(drain={})
    throttled = refused("ThrottlingException", "Rate exceeded", "UpdateClusterSoftware")
    calls = _answers(
        eks, monkeypatch, throttled if error == "throttled" else ReadTimeoutError(endpoint_url="https://s")
    )
    code, out, err = run("patch", "--yes")
    assert (code, len(calls)) == (4, 3), out + err
    assert "not confirmed: HyperPod shows no sign of 3 calls; the old image is on" in err
    assert "HyperPod has accepted" not in out
    assert {*eks.held} == {*eks.aws.nodes("work")} and all(
        each["expires"] > calls[2] + 8e4 for each in eks.held.values()
    )


def test_twelve_minutes_of_throttling_end_nothing(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = world.aws.model.client().describe_cluster

    def throttled(_: object, **given: Json) -> Json:
        if 300 < sum(world.waits) < 1020:
            raise refused("ThrottlingException", "Rate exceeded", "DescribeCluster")
        return real(**given)

    monkeypatch.setattr(type(world.aws.model.client()), "describe_cluster", throttled, raising=False)
    code, out, err = run("patch", "--yes")
    assert (code, err, sent(world), world.killed) == (0, "", ["work"], []), out


def test_a_resume_does_without_a_group_that_was_deleted_meanwhile(world: World, run: Run) -> None:
    assert run("patch", "work", "gone", "--yes")[0] == 1, "a name that never was a group"
    world.jobs = dict.fromkeys(world.aws.nodes("work"), world.now + 1800)
    world.aws.model.call("UpdateCluster", {"ClusterName": "small", "InstanceGroups": [group("more", 1)]})
    world.aws.quiet()
    world.look()

    def interrupt(number: int) -> None:
        if number == 4:
            raise KeyboardInterrupt

    world.do = interrupt
    assert run("patch", "work", "more", "--yes")[0] == 130
    world.do = lambda _: None
    world.aws.model.call("UpdateCluster", {"ClusterName": "small", "InstanceGroupsToDelete": ["more"]})
    world.aws.quiet()
    world.look()
    code, out, _ = run("patch", "work", "more", "--yes")
    assert (code, sent(world)) == (0, ["work"]) and "note: more was deleted meanwhile" in out


@pytest.mark.parametrize("cluster", ["world", "eks"])
def test_while_hyperpod_updates_ctrl_c_releases_no_node(cluster: str, run: Run, request: pytest.FixtureRequest) -> None:
    """New jobs would start there, and end with the old image."""
    world: World = request.getfixturevalue(cluster)
    nodes = set(world.aws.nodes("work"))

    def interrupt(_: int) -> None:
        if sent(world):
            raise KeyboardInterrupt

    world.do = interrupt
    code, _, err = run("patch", "--yes")
    assert code == 130 and "the nodes stay held" in err and "no node is held" not in err
    assert {*world.held} == nodes
    world.do = lambda _: None
    world.wait(3600)
    code, out, err = run("patch", "--yes")
    assert (code, err, sent(world)) == (0, "", ["work"]), out
    world.look()
    assert world.held == {}


@pytest.mark.parametrize("cluster", ["world", "eks"])
def test_drain_release_ends_the_hold_of_a_patch_at_once(cluster: str, run: Run, request: pytest.FixtureRequest) -> None:
    world: World = request.getfixturevalue(cluster)
    if cluster == "eks":
        write_eks(drain={})

    def interrupt(_: int) -> None:
        if sent(world):
            raise KeyboardInterrupt

    world.do = interrupt
    assert run("patch", "--yes")[0] == 130 and len(world.held) == 2
    world.do = lambda _: None
    code, out, err = run("drain", "--release")
    assert (code, out) == (0, "released: no node is held for a patch\n"), err
    assert "work: HyperPod replaces images there" in err
    world.look()
    assert world.held == {} and world.requests() == {}


def test_a_group_that_a_killed_run_updates_has_to_be_named(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        killer = Killer(world.aws, patch, 99, after=True)

        def kill(_: int) -> None:
            killer.dead = bool(sent(world))

        world.do = kill
        with pytest.raises(Killed):
            run("patch", "--yes")
    world.do = lambda _: None
    world.wait(120)
    code, _, err = run("patch", "head", "--controller", "--no-drain", "--yes")
    assert code == 1 and "patch-unfinished" in codes(err) and len(world.requests()) == 2
    code, _, err = run("patch", "head", "--controller", "--no-drain", "--image-id", "default", "--yes")
    assert code == 1 and "patch-unfinished" in codes(err) and len(world.requests()) == 2, "another image is another run"
    assert run("patch", "work", "--yes")[0] == 0 and world.requests() == {}


def test_a_group_with_an_unfinished_update_is_patched_first(world: World, run: Run) -> None:
    """Else its nodes would be released for the other group's turn."""
    world.aws.model.call("UpdateCluster", {"ClusterName": "small", "InstanceGroups": [group("zeta", 2)]})
    world.aws.quiet()
    world.aws.model.release_image("2.1.0")
    world.look()
    zeta = set(world.aws.nodes("zeta"))

    def interrupt(_: int) -> None:
        if sent(world):
            raise KeyboardInterrupt

    world.do = interrupt
    assert run("patch", "zeta", "--yes")[0] == 130
    held: list[bool] = []

    def watch(_: int) -> None:
        if any(node.status == "SystemUpdating" for node in world.aws.model.nodes("small", "zeta")):
            held.append(zeta <= {*world.held})

    world.do = watch
    code, out, err = run("patch", "--yes")
    assert (code, err, sent(world)) == (0, "", ["zeta", "work"]), out
    assert len(held) > 5 and all(held)


def test_another_image_of_the_file_is_not_what_an_earlier_run_installs(world: World, run: Run) -> None:
    def interrupt(_: int) -> None:
        if sent(world):
            raise KeyboardInterrupt

    world.do = interrupt
    assert run("patch", "work", "--yes")[0] == 130
    world.do = lambda _: None
    world.wait(120)
    file = yaml.safe_load(Path("cluster.yaml").read_text())
    next(each for each in file["instance_groups"] if each["name"] == "work")["image_id"] = "ami-0123456789abcdef0"
    Path("cluster.yaml").write_text(yaml.safe_dump(file))
    code, _, err = run("patch", "work", "--yes")
    assert code == 1 and codes(err) == ["patch-other-update"] and len(world.requests()) == 2


def test_a_group_that_is_not_drained_is_held_by_no_run(world: World, run: Run) -> None:
    def interrupt(number: int) -> None:
        if number == 3:
            assert any(node.status == "SystemUpdating" for node in world.aws.model.nodes("small", "work"))
            raise KeyboardInterrupt

    world.do = interrupt
    assert run("patch", "work", "--no-drain", "--drain-for", "1h", "--yes")[0] == 130
    assert content(world)["patch"]["groups"]["work"]["until"] is None


def test_a_deployment_during_an_update_leaves_the_nodes_held(world: World, run: Run) -> None:
    nodes = set(world.aws.nodes("work"))
    held: list[set[str]] = []

    def deploy(_: int) -> None:
        if sent(world):
            world.aws.stack = {**STACK, "StackStatus": "UPDATE_IN_PROGRESS"}
            held.append({*world.requests()})

    world.do = deploy
    assert run("patch", "--yes")[0] == 0
    assert len(held) > 12 and all(each == nodes for each in held[:-1])


# -- refusals before anything is changed


def check_refused(world: World, run: Run, *words: str, code: str) -> str:
    status, _, err = run("patch", *words)
    assert status == 1 and codes(err) == [code], err
    assert sent(world) == [] and "patch" not in json.loads(world.aws.asked.get(OPERATOR, b"{}"))
    return err


def test_patch_refuses_an_unknown_group(world: World, run: Run) -> None:
    assert "its groups are head, work" in check_refused(world, run, "p5", "--yes", code="patch-group-unknown")
    assert run("patch", "p5", "--yes")[1] == "", "no table of nothing"


def test_a_controller_without_the_option(world: World, run: Run) -> None:
    check_refused(world, run, "head", "--yes", code="patch-controller-not-confirmed")


def test_a_release_under_slurm(world: World, run: Run) -> None:
    status, _, err = run("patch", "--release", "1.3.0", "--dry-run")
    assert status == 1 and "patch-release-under-slurm" in codes(err)


def test_a_deployment_under_way(world: World, run: Run) -> None:
    world.aws.stack = {**STACK, "StackStatus": "UPDATE_IN_PROGRESS"}
    check_refused(world, run, "--yes", code="patch-stack-in-progress")


def test_a_guard_that_holds_nodes(world: World, run: Run) -> None:
    world.deploy()
    check_refused(world, run, "--yes", code="patch-guard-at-work")


def test_patch_refuses_a_silent_agent_unless_no_drain_is_given(world: World, run: Run) -> None:
    world.aws.model.clock.advance(600)  # type: ignore[attr-defined]
    err = check_refused(world, run, "--yes", code="patch-drain-agent-silent")
    assert "has not written its status for 10 minutes" in err
    assert run("patch", "--yes", "--no-drain")[0] == 0


def test_a_file_without_an_agent(world: World, run: Run) -> None:
    write()
    check_refused(world, run, "--yes", code="patch-without-drain-agent")
    assert run("patch", "--yes", "--no-drain")[0] == 0


def test_an_agent_that_would_save_nothing(world: World, run: Run) -> None:
    write(slurm__drain={"backup": {"paths": ["/opt/dlami/nvme/work"], "to": "/fsx/b"}}, storage={"capacity_gib": 4800})
    check_refused(world, run, "--yes", code="patch-drain-agent-saves-nothing")


def test_patch_refuses_a_group_in_deep_health_checks(world: World, run: Run) -> None:
    world.aws.model.change_node(world.aws.nodes("work")[0], status="DeepHealthCheckInProgress")
    check_refused(world, run, "--yes", code="patch-deep-health-check")


def test_a_group_below_its_minimum(
    fake_aws: FakeAws, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(slurm__drain={}, instance_groups__1__min_instance_count=2)
    fake_aws.stack = STACK
    fake_aws.model.set_capacity("ml.p5.48xlarge", 1)
    fake_aws.model.behaviour = replace(fake_aws.model.behaviour, image_versions="eks_since_2026")
    fake_aws.cluster(group("work", 2, minimum=2))
    fake_aws.model.clock.advance(1800)  # type: ignore[attr-defined]
    found = World(fake_aws)
    found.look()
    check_refused(found, run, "--yes", code="patch-below-minimum")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--release", "1.3.0", "--image-id", "default"], "--release: cannot be combined with --image-id"),
        (["--release", "1.3"], "--release: must be a release such as 1.3.0, got '1.3'"),
        (["--image-id", "image"], "--image-id: must be an AMI such as"),
        (["--drain-for", "25h"], "--drain-for: must be minutes or hours such as 90m or 12h, at most 24h, got '25h'"),
        (["--drain-for", "1h", "--force-after", "2h"], "--force-after: is 2h, which is later than the end"),
        (["--force-after", "2h", "--no-drain"], "--force-after: cannot be combined with --no-drain"),
        (["--json"], "--json: needs --yes or --dry-run"),
    ],
)
def test_patch_refuses_options_that_contradict_each_other(run: Run, words: list[str], says: str) -> None:
    code, out, err = run("patch", *words)
    assert (code, out) == (2, "") and says in err


# -- EKS


def test_the_drainer_empties_the_nodes_and_releases_them(eks: World, run: Run) -> None:
    eks.jobs = dict.fromkeys(eks.aws.nodes("work"), eks.now + 3600)
    code, out, err = run("patch", "--yes")
    assert (code, err, sent(eks), eks.killed, eks.held) == (0, "", ["work"], [], {}), out
    assert "1. work: the drainer empties the nodes (at most 24h)" in out
    code, out, _ = run("patch", "--yes")
    assert (code, sent(eks)) == (0, ["work"]) and "- (up to date)" in out and "nothing to patch" in out


def test_leases_are_of_the_drainers_clock(eks: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's clock is an hour slow, or time passes faster for AWS, as on the local AWS."""
    monkeypatch.setattr(tables, "now", lambda: datetime.fromtimestamp(eks.now - 3600, UTC))
    eks.jobs = dict.fromkeys(eks.aws.nodes("work"), eks.now + 600)
    code, out, err = run("patch", "--yes")
    assert (code, err, sent(eks), eks.killed, eks.held) == (0, "", ["work"], [], {}), out


def test_without_a_drainer_it_says_how_to_drain_by_hand(eks: World, run: Run) -> None:
    eks.aws.drainer = None
    err = check_refused(eks, run, "--yes", code="patch-without-drainer")
    assert all(f" hyperpod-{node} " in err for node in eks.aws.nodes("work")) and "`kubectl drain hyperpod-i-" in err


def test_with_rolling_hyperpod_evicts(eks: World, run: Run) -> None:
    rolling = {"batch_nodes": 1, "wait_seconds": 60, "rollback_alarms": ["nccl-errors"]}
    write_eks(group={"rolling": rolling})
    eks.aws.drainer = None
    err = check_refused(eks, run, "--yes", code="patch-alarm-unknown")
    assert "CloudWatch has no alarm nccl-errors" in err
    eks.aws.alarms.add("nccl-errors")
    eks.aws.model.outside.alarms["nccl-errors"] = "OK"
    code, out, err = run("patch", "--yes")
    assert (code, err) == (0, ""), out
    (call,) = [call for call in eks.aws.model.journal if call.operation == "UpdateClusterSoftware"]
    assert call.params["DeploymentConfig"]["AutoRollbackConfiguration"] == [{"AlarmName": "nccl-errors"}]


def test_nodes_that_hyperpod_skips_are_named(eks: World, run: Run) -> None:
    write_eks(group={"rolling": {"batch_nodes": 1}})
    one, _ = eks.aws.nodes("work")
    eks.aws.model.outside.protected.add(one)
    code, _, err = run("patch", "--yes")
    assert code == 4 and f"on the old image: {one}\n" in err


@pytest.mark.parametrize(
    ("architecture", "says"),
    [
        (None, "EC2 has no image ami-0123456789abcdef0 for your account in us-west-2; name"),
        ("arm64", "ami-0123456789abcdef0 is built for arm64, and the group's instance type needs x86_64; name"),
    ],
)
def test_an_ami_that_the_nodes_cannot_run_is_found_before_the_drain(
    world: World, run: Run, architecture: str | None, says: str
) -> None:
    world.aws.architecture = architecture
    code, _, err = run("patch", "--image-id", "ami-0123456789abcdef0", "--yes")
    assert (code, codes(err), world.requests()) == (1, ["patch-image-wrong"], {}) and says in err
    world.aws.denied.add("ec2:describe_images")
    code, out, _ = run("patch", "--image-id", "ami-0123456789abcdef0", "--dry-run")
    assert code == 0 and "note: whether the AMI fits the instance types is unknown: your credentials lack" in out


def test_an_older_release_needs_the_groups_name(eks: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = run("patch", "--release", "1.0.0", "--yes")
    assert code == 1 and "and 1.0.0 is older. Its fixes are lost." in err and sent(eks) == []
    typed(monkeypatch, "work\n")
    assert run("patch", "--release", "1.0.0")[0] == 0
    assert images(eks, "work") == {"1.0.0"}


def test_an_ami_of_your_own_must_be_named(eks: World, run: Run) -> None:
    assert run("patch", "--image-id", "ami-0123456789abcdef0", "--yes")[0] == 0
    assert images(eks, "work") == {"ami-0123456789abcdef0"}
    status, _, err = run("patch", "--yes")
    assert status in (1, 4) and "image-id" in err, err
    assert run("patch", "--image-id", "default", "--yes")[0] == 0
    assert images(eks, "work") == {"2.0.0"}


@pytest.mark.parametrize("right", ["lambda:invoke", "cloudwatch:describe_alarms"])
def test_a_permission_that_is_missing_under_eks(eks: World, run: Run, right: str) -> None:
    if right.startswith("cloudwatch"):
        write_eks(group={"rolling": {"batch_nodes": 1, "rollback_alarms": ["nccl-errors"]}})
    eks.aws.denied.add(right)
    code, _, err = run("patch", "--yes")
    assert (code, sent(eks), eks.held) == (1, [], {})
    assert err.count("your credentials lack the permission") == 1


def test_a_permission_for_events_shows_only_why_it_failed(eks: World, run: Run) -> None:
    eks.aws.denied.add("sagemaker:list_cluster_events")
    eks.aws.model.faults.failing_images.add("2.0.0")
    code, _, err = run("patch", "--yes")
    assert code == 3 and "HyperPod's events were not read: your credentials lack the permission" in err


def test_an_alarm_rolls_back(eks: World, run: Run) -> None:
    write_eks(group={"rolling": {"batch_nodes": 1, "wait_seconds": 600, "rollback_alarms": ["nccl-errors"]}})
    eks.aws.alarms.add("nccl-errors")
    eks.aws.model.outside.alarms["nccl-errors"] = "OK"

    def ring(_: int) -> None:
        if "2.0.0" in images(eks, "work"):
            eks.aws.model.outside.alarms["nccl-errors"] = "ALARM"

    eks.do = ring
    code, _, err = run("patch", "--yes")
    assert (code, images(eks, "work")) == (3, {"1.4.0"}), err
    assert "not patched: work" in err


def test_after_a_kill_nodes_are_released_though_nothing_is_left_to_patch(
    eks: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_eks(drain={})
    with monkeypatch.context() as patch:
        killer = Killer(eks.aws, patch, 60, after=True)

        def kill(_: int) -> None:
            if sent(eks):
                killer.dead = True

        eks.do = kill
        with pytest.raises(Killed):
            run("patch", "--yes")
    eks.do = lambda _: None
    eks.aws.model.clock.advance(3600)  # type: ignore[attr-defined]
    assert len(eks.held) == 2
    code, out, err = run("patch", "--yes")
    assert (code, err, sent(eks)) == (0, "", ["work"]) and "patched: work" in out
    assert eks.held == {}


def test_another_patchs_nodes_are_left_to_it(eks: World, run: Run) -> None:
    node = eks.aws.nodes("work")[0]
    eks.drainer.hold(node, eks.now + 500)
    check_refused(eks, run, "--yes", code="patch-already-running")


def test_a_drainer_that_fails_ends_it(eks: World, run: Run) -> None:
    eks.jobs = dict.fromkeys(eks.aws.nodes("work"), eks.now + 9e4)

    def fail(event: Json) -> Json:
        return {"schema": 1, "problem": "GET /api/v1/nodes: timed out", "nodes": {}, "busy": []}

    def break_it(number: int) -> None:
        if number == 3:
            eks.aws.drainer = fail

    eks.do = break_it
    code, _, err = run("patch", "--yes")
    assert (code, sent(eks)) == (4, []) and "the drainer does not answer: GET /api/v1/nodes: timed out" in err
    assert "the nodes were not released" in err


def test_a_deployment_under_eks_keeps_its_own_nodes(eks: World, run: Run) -> None:
    eks.jobs = dict.fromkeys(eks.aws.nodes("work"), eks.now + 9e4)
    node = eks.aws.nodes("work")[1]

    def deploy(number: int) -> None:
        if number == 3:
            eks.aws.stack = {**STACK, "StackStatus": "UPDATE_IN_PROGRESS"}
            eks.drainer.hold(node, request="20261127T000000")

    eks.do = deploy
    code, _, err = run("patch", "--yes")
    assert (code, eks.drainer.held) == (4, {node: "20261127T000000"}) and "a deployment of stack" in err, err


def test_the_update_is_not_sent_unless_the_nodes_are_held_as_long_as_it_may_take(
    eks: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_eks(drain={})
    drainer, left = eks.drain_by_function, iter(range(1))
    update = eks.aws.model.client().update_cluster_software
    held: list[float] = []

    def fail(event: Json) -> Json:
        nodes = event["requests"]["operator"]["nodes"] if event.get("requests") else ()
        if any(each["expires"] > eks.now + 8e4 for each in nodes) and next(left, None) is not None:
            raise refused("TooManyRequestsException", "Rate exceeded", "Invoke")
        return drainer(event)

    def watch(_: object, **given: Json) -> Json:
        held.extend(each["expires"] - eks.now for each in eks.held.values())
        return update(**given)

    eks.aws.drainer = fail
    monkeypatch.setattr(type(eks.aws.model.client()), "update_cluster_software", watch, raising=False)
    code, out, _ = run("patch", "--yes")
    assert code == 0 and "the update was not sent: the drainer does not answer" in out
    assert len(held) == 2 and min(held) > 8e4


def test_of_two_operators_at_the_prompt_under_eks_one_patches(
    eks: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen a cluster without a run. A colleague confirms first."""
    theirs = {"id": "b", "owner": "b", "by": "bob@two", "wanted": "", "until": eks.now + 600, "typed": [], "groups": {}}

    def confirm(_: object, __: object) -> bool:
        eks.drainer.lease = RunLease(json.dumps(theirs), version=2)
        return False

    monkeypatch.setattr(import_module("cdk_hyperpod.cli.patch.patch")._Command, "_confirm", confirm)
    code, _, err = run("patch", "--yes")
    assert code == 1 and "another `cdk-hyperpod patch` of this cluster is running, by bob@two" in err, err
    assert (sent(eks), eks.held, json.loads(str(eks.drainer.lease.record))) == ([], {}, theirs)


def test_a_run_that_another_operator_has_gone_on_with_ends_and_holds_nothing(eks: World, run: Run) -> None:
    eks.jobs = dict.fromkeys(eks.aws.nodes("work"), eks.now + 9e4)

    def claim(number: int) -> None:
        if number == 3:
            theirs = {**json.loads(str(eks.drainer.lease.record)), "owner": "b"}
            eks.drainer.lease = RunLease(json.dumps(theirs), eks.drainer.lease.version + 1)
            for member in eks.drainer.kubernetes.members.values():
                member.annotations.clear()

    eks.do = claim
    code, _, err = run("patch", "--yes")
    assert code == 4 and "another process has gone on with this patch" in err, err
    assert (sent(eks), eks.drainer.held, json.loads(str(eks.drainer.lease.record))["owner"]) == ([], {}, "b")


def test_a_drainer_that_cannot_keep_a_run_is_deployed_first(eks: World, run: Run) -> None:
    drain = eks.drain_by_function
    eks.aws.drainer = lambda event: {name: each for name, each in drain(event).items() if name != "run_version"}
    code, _, err = run("patch", "--yes")
    assert code == 1 and "the deployed drainer cannot keep the run" in err and "Deploy the file" in err, err
    assert (sent(eks), eks.held) == ([], {})


# -- clocks


def test_without_a_drain_times_are_of_hyperpods_clock() -> None:
    """By a slow clock an update of this morning would prove that the nodes were patched just now."""
    date = "Sat, 28 Nov 2026 09:00:00 GMT"
    drains = nothing_drains({"ResponseMetadata": {"HTTPHeaders": {"date": date}}})
    assert abs(drains.now() - datetime(2026, 11, 28, 9, tzinfo=UTC).timestamp()) < 60


def test_a_dead_run_of_another_machine_is_judged_by_s3s_clock(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine whose clock is three hours slow waited three hours for a lease of ten minutes."""
    world.do = lambda number: (_ for _ in ()).throw(KeyboardInterrupt) if sent(world) else None
    assert run("patch", "--yes")[0] == 130
    world.do = lambda _: None
    world.wait(1200)
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd() / "another"))
    now = tables.now
    monkeypatch.setattr(tables, "now", lambda: now() - timedelta(hours=3))
    code, _, err = run("patch", "--yes")
    assert (code, sent(world)) == (0, ["work"]), err
