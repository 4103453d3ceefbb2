"""Each alarm fires on its fault, and on nothing in a thousand days of scaling, patching and single replacements."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk.assertions import Template

from cdk_hyperpod import ClusterMonitoring, HyperPodCluster
from cdk_hyperpod_local.hyperpod import Fault, HyperPod, ManualClock, Plan
from cdk_hyperpod_local.hyperpod.samples import eks, group, run_until_quiet
from helpers.simulations.monitored import Watched

Json = Any
NAME, HOUR, DAY = "train", 3600.0, 86_400.0
P5 = "ml.p5.48xlarge"
PLAN = "arn:aws:sagemaker:us-west-2:000000000000:training-plan/p5-plan"
ON_METRICS = {"BelowMinimum", "NodesMissing", "TrainingPlanEnds", "ImageOutdated", "HeartbeatGone"}


@pytest.fixture(scope="module")
def alarms() -> dict[str, Json]:
    """The alarms on the function's metrics, with the default settings: name -> properties."""
    stack = Stack(App(), "Stack", env=Environment(account="000000000000", region="us-west-2"))
    arn = "arn:aws:sagemaker:us-west-2:000000000000:cluster/0123456789ab"
    known = HyperPodCluster.from_cluster_attributes(stack, "Known", cluster_name=NAME, cluster_arn=arn)
    ClusterMonitoring(stack, "Monitoring", cluster=known)
    found = Template.from_stack(stack).find_resources("AWS::CloudWatch::Alarm")
    names = {name: name.removeprefix("Monitoring")[:-8] for name in found}
    return {names[name]: each["Properties"] for name, each in found.items() if names[name] in ON_METRICS}


def watched(alarms: dict[str, Json], seed: int = 0, second: int = 0) -> Watched:
    """A cluster with a training plan, in service for a day. Its nodes come within a quarter of an hour.

    `second`: of the minute, in which the schedule begins.
    """
    clock = ManualClock()
    hyperpod = HyperPod(clock=clock, seed=seed)
    until = hyperpod.clock.now() + 10_000 * DAY
    hyperpod.set_plan(Plan(arn=PLAN, instance_type=P5, total=64, available=64, zone="usw2-az1", start=0, end=until))
    groups = (
        group("p5", 8, minimum=4, node_type=None, TrainingPlanArn=PLAN),
        group("c5", 4, node_type=None, instance_type="ml.c5.large"),
    )
    arn = hyperpod.call("CreateCluster", eks(*groups, NodeRecovery="Automatic"))["ClusterArn"]
    run_until_quiet(hyperpod)
    clock.advance((second - clock.now()) % 60)
    made = Watched(hyperpod, arn, alarms, seed)
    made.pass_time(DAY)
    assert set(made.states) == ON_METRICS and set(made.states.values()) == {"OK"} and not made.fired
    return made


def resize(name: str, count: int, minimum: int | None = None) -> Any:
    more: Json = {"TrainingPlanArn": PLAN} if name == "p5" else {"instance_type": "ml.c5.large"}
    wanted = group(name, count, minimum=minimum, node_type=None, **more)
    return lambda hyperpod: hyperpod.call("UpdateCluster", {"ClusterName": NAME, "InstanceGroups": [wanted]})


def nodes(hyperpod: HyperPod, name: str) -> list[str]:
    return [node.instance_id for node in hyperpod.nodes(NAME, name) if node.instance_id and node.status == "Running"]


def scale(hyperpod: HyperPod, random: Random) -> None:
    name, most = random.choice([("p5", 40), ("c5", 100)])
    resize(name, random.randint(5, most), random.randint(0, 4) if name == "p5" else None)(hyperpod)


def delete(hyperpod: HyperPod, random: Random) -> None:
    name = random.choice(["p5", "c5"])
    found, minimum = nodes(hyperpod, name), hyperpod.cluster(NAME).groups[name].minimum
    chosen = random.sample(found, min(len(found) // 3, 20, max(len(found) - minimum, 0)))
    if chosen:
        hyperpod.call("BatchDeleteClusterNodes", {"ClusterName": NAME, "NodeIds": chosen})


def patch(hyperpod: HyperPod, random: Random) -> None:
    major, minor, _ = hyperpod._state.image.split(".")
    hyperpod.release_image(f"{major}.{int(minor) + 1}.0")
    if random.random() < 0.5:
        hyperpod.call("UpdateClusterSoftware", {"ClusterName": NAME})


def replace(hyperpod: HyperPod, random: Random) -> None:
    found = nodes(hyperpod, "p5")
    if found:
        hyperpod.report_fault(random.choice(found), Fault())


DAILY = (scale, scale, delete, patch, replace, replace)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.ci) for seed in range(2, 10))])
def test_nothing_fires_in_a_hundred_days_of_normal_work(alarms: dict[str, Json], seed: int) -> None:
    life, random = watched(alarms, seed), Random(seed)
    life.calls.clear()
    began, ended = life.clock.now(), len(life.hyperpod.terminations)
    while life.clock.now() < began + 100 * DAY:
        life.do(lambda hyperpod: random.choice(DAILY)(hyperpod, random))
        life.pass_time(random.uniform(0.5 * HOUR, 20 * HOUR))
    assert life.fired == []
    assert len(life.hyperpod.terminations) - ended > 100, "much has happened"
    days = (life.clock.now() - began) / DAY
    assert 280 <= life.calls["DescribeCluster"] / days <= 288
    assert life.calls["DescribeTrainingPlan"] / days <= 24


def test_a_group_below_its_minimum(alarms: dict[str, Json]) -> None:
    life = watched(alarms)
    life.do(lambda hyperpod: hyperpod.set_capacity(P5, 0))
    life.do(lambda hyperpod: hyperpod.call("BatchDeleteClusterNodes", {"ClusterName": NAME, "NodeIds": nodes(hyperpod, "p5")[:6]}))  # fmt: skip
    began = life.clock.now()
    life.do(resize("p5", 8, 4))
    life.pass_time(2 * HOUR)
    ((at, name),) = life.fired
    assert name == "BelowMinimum"
    assert 0.5 * HOUR < at - began < 1.2 * HOUR, "thirty minutes after the nodes have gone"


@pytest.mark.parametrize("second", [0, 50])
def test_nodes_that_do_not_come(alarms: dict[str, Json], second: int) -> None:
    """A run that is late may be in the next minute, and CloudWatch's periods begin with each minute."""
    life = watched(alarms, second=second)
    life.do(lambda hyperpod: hyperpod.set_capacity(P5, 8))
    began = life.clock.now()
    life.do(resize("p5", 9))
    life.pass_time(DAY)
    ((at, name),) = life.fired
    assert name == "NodesMissing" and 3 * HOUR - 60 <= at - began <= 3.3 * HOUR
    life.do(lambda hyperpod: hyperpod.set_capacity(P5, None))
    life.pass_time(HOUR)
    assert life.states["NodesMissing"] == "OK"


def test_a_training_plan_that_ends(alarms: dict[str, Json]) -> None:
    life = watched(alarms)
    end = life.clock.now() + 9 * DAY
    life.do(lambda hyperpod: hyperpod.set_plan(Plan(arn=PLAN, instance_type=P5, total=64, available=64, zone="z", start=0, end=end)))  # fmt: skip
    life.pass_time(3 * DAY)
    ((at, name),) = life.fired
    assert name == "TrainingPlanEnds"
    assert end - at == pytest.approx(7 * DAY, abs=2 * HOUR)


@pytest.mark.parametrize("status", ["SecurityUpdateRequired", "EndOfLife"])
def test_an_image_that_is_outdated(alarms: dict[str, Json], status: str) -> None:
    life = watched(alarms)
    life.do(lambda hyperpod: hyperpod.release_image("1.5.0"))
    life.pass_time(DAY)
    assert life.fired == [], "every release would ring"
    life.do(lambda hyperpod: hyperpod.release_image("1.5.1", older=status))
    life.pass_time(2 * HOUR)
    assert [name for _, name in life.fired] == ["ImageOutdated"]
    life.do(lambda hyperpod: hyperpod.call("UpdateClusterSoftware", {"ClusterName": NAME}))
    life.pass_time(3 * HOUR)
    assert life.states["ImageOutdated"] == "OK"


def test_silence_of_the_schedule(alarms: dict[str, Json]) -> None:
    life = watched(alarms)
    life.silent = True
    began = life.clock.now()
    life.pass_time(DAY)
    ((at, name),) = life.fired
    assert name == "HeartbeatGone" and at - began <= 30 * 60
    life.silent = False
    life.pass_time(HOUR)
    assert life.states["HeartbeatGone"] == "OK" and len(life.fired) == 1


def test_a_deleted_cluster_rings_for_nothing(alarms: dict[str, Json]) -> None:
    life = watched(alarms)
    life.do(lambda hyperpod: hyperpod.call("DeleteCluster", {"ClusterName": NAME}))
    life.pass_time(2 * DAY)
    assert life.fired == []


def test_another_cluster_rings_for_itself(alarms: dict[str, Json]) -> None:
    life = watched(alarms)
    other = ("HyperPod/Clusters", "MissingNodes", frozenset({("ClusterName", "other")}))
    for _ in range(100):
        life.put(other, 5)
        life.pass_time(300)
    assert life.fired == []
