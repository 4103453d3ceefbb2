"""preflight says "passed" of nothing that HyperPod then refuses, and "not checked" of what it could not read.

The accounts are random, and the local AWS's HyperPod is the judge: what it accepts and refuses is compared with what was said.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from cdk_hyperpod.cli import aws
from cdk_hyperpod.cli.deployment.account_state import AccountState, LiveCluster, LiveGroup, LivePlan, NotRead
from cdk_hyperpod.cli.deployment.preflight import NOT_READ, lines, read_account_state
from cdk_hyperpod.cli.deployment.preflight_checks import (
    INTERFACES,
    PER_CLUSTER,
    TOTAL,
    TOTAL_SPOT,
    VOLUME_GB,
    exit_code,
    rows,
    usage_quota,
)
from cdk_hyperpod.cli.deployment.preflight_doors import is_walled
from cdk_hyperpod.cli.deployment.preflight_row import Row
from cdk_hyperpod.cli.main import main
from cdk_hyperpod.config.cluster import ClusterConfig, EbsVolume, InstanceGroup, NetworkConfig, Rolling, SubnetConfig
from cdk_hyperpod.config.eks import EksConfig, ExistingEksCluster
from cdk_hyperpod.config.lifecycle import LifecycleConfig
from cdk_hyperpod.config.monitoring import MonitoringConfig
from cdk_hyperpod.config.slurm import DrainAgentConfig, SlurmConfig
from cdk_hyperpod.config.storage import OpenZfsConfig, StorageConfig
from cdk_hyperpod.config.teams import Team
from cdk_hyperpod.facts.instance_types import catalogue
from cdk_hyperpod.facts.s3_actions import WRITES
from cdk_hyperpod_local.hyperpod import ApiError, HyperPod, Place, Plan, limits
from cdk_hyperpod_local.hyperpod.samples import ROLE, run_until_quiet
from helpers.validating import ROOT

ZONES = {"us-west-2a": "usw2-az1", "us-west-2b": "usw2-az2"}
SUBNETS = {"us-west-2a": "subnet-0123456789abcdef0", "us-west-2b": "subnet-0fedcba9876543210"}
TYPES = ("ml.p5.48xlarge", "ml.c5.9xlarge", "ml.trn1.32xlarge")
PLAN = "arn:aws:sagemaker:us-west-2:000000000000:training-plan/"
SECURITY = "sg-0123456789abcdef0"


CALLER = "arn:aws:sts::000000000000:assumed-role/deployer/session"
ASSETS = "cdk-hnb659fds-assets-000000000000-us-west-2"


def assets_policy(**changes: Any) -> str:
    """The policy of the page, with changes of its statement."""
    text = (ROOT / "docs/bootstrap/doors/assets-bucket.json").read_text("utf-8")
    policy = json.loads(text.replace("ACCOUNT", "000000000000").replace("REGION", "us-west-2"))
    policy["Statement"][0] |= changes
    return json.dumps(policy)


def test_the_quotas_have_one_name_here_and_in_the_local_aws() -> None:
    names = (PER_CLUSTER, TOTAL, TOTAL_SPOT, VOLUME_GB)
    assert names == (limits.PER_CLUSTER, limits.TOTAL, limits.TOTAL_SPOT, limits.VOLUME_GB)
    assert all(usage_quota("ml.a", spot=spot) == limits.usage_name("ml.a", spot=spot) for spot in (True, False))


# -- random accounts --------------------------------------------------------------------------------------------------


class Case:
    """A file, an account, and the request that a deployment of the file sends."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.model = HyperPod(seed=seed)
        self.config = ClusterConfig(
            name="train",
            region="us-west-2",
            network=NetworkConfig(
                vpc_id="vpc-0123456789abcdef0",
                subnets=tuple(SubnetConfig(subnet_id=SUBNETS[zone], availability_zone=zone) for zone in ZONES),
            ),
            instance_groups=(
                InstanceGroup(name="head", node_type="controller", instance_type="ml.m5.4xlarge", instance_count=1),
                *(self._group(f"g{number}") for number in range(random.randint(1, 3))),
            ),
        )
        for number in range(random.randint(0, 2)):
            others = [self._group(f"o{each}") for each in range(2)]
            self._make(f"other{number}", [self.config.instance_groups[0], *others])
        self.lives = random.random() < 0.4
        if self.lives:
            kept = [g for g in self.config.instance_groups[1:] if random.random() < 0.7]
            before = [replace(group, instance_count=random.randint(1, 6)) for group in kept]
            self._make("train", [self.config.instance_groups[0], *before])
            run_until_quiet(self.model)
        self._limit()
        self.denied = {
            name for name in ("service-quotas", "sagemaker", "ec2", "ssm") if random.random() < 0.04
        }  # fmt: skip

    def _group(self, name: str) -> InstanceGroup:
        random = self.random
        kind = random.choice(TYPES)
        return InstanceGroup(
            name=name,
            node_type="compute",
            partition="p",
            instance_type=kind,
            instance_count=random.randint(1, 8),
            spot=random.random() < 0.2,
            availability_zone=random.choice([None, *ZONES]),
            training_plan_arn=PLAN + random.choice("ab") if random.random() < 0.2 else None,
            ebs_volumes=(EbsVolume(volume_size_gib=random.choice([100, 900])),) if random.random() < 0.3 else (),
        )

    def _limit(self) -> None:
        """Limits near what is needed, so that about half of all accounts have room."""
        random, model = self.random, self.model
        slack = random.choice([0, 5, 60])
        used: Counter[str] = Counter()
        for cluster in ("other0", "other1", "train"):
            try:
                for group in model.cluster(cluster).groups.values():
                    used[group.instance_types[0]] += group.target
            except ApiError:
                continue
        needed = Counter(dict.fromkeys((*TYPES, "ml.m5.4xlarge"), 0))
        for wanted in self.config.instance_groups:
            needed[wanted.all_instance_types[0]] += wanted.instance_count
        for kind in needed:
            for spot in (True, False):
                if random.random() < 0.97:
                    model.set_named_quota(usage_quota(kind, spot=spot), max(0, used[kind] + needed[kind] + random.randint(-3, slack)))  # fmt: skip
        everything = sum(used.values()) + sum(needed.values())
        for name in (TOTAL, TOTAL_SPOT, PER_CLUSTER):
            model.set_named_quota(name, max(0, everything + random.randint(-3, slack)))
        model.set_named_quota(VOLUME_GB, random.choice([500, 1024, 1024]))
        now = model.clock.now()
        for letter in "ab":
            if random.random() < 0.9:
                zone = random.choice([*ZONES])
                model.set_plan(
                    Plan(
                        arn=PLAN + letter, instance_type=random.choice(TYPES), total=20, available=random.choice([4, 20]),
                        zone=zone, start=now - 3600, end=now + random.choice([3600, 30 * 86400]),
                        status=random.choice(["Active", "Active", "Scheduled", "Expired"]),
                    )
                )  # fmt: skip
        for zone, subnet in SUBNETS.items():
            offered = tuple(kind for kind in (*TYPES, "ml.m5.4xlarge") if random.random() < 0.97)
            addresses = {kind: catalogue()[kind].ip_addresses("slurm") for kind in needed}
            model.set_subnet(subnet, Place(zone=zone, free=random.choice([100, 2000]), offered=offered, addresses=addresses))  # fmt: skip

    def _specs(self, groups: list[InstanceGroup]) -> list[dict[str, Any]]:
        made = []
        for group in groups:
            spec: dict[str, Any] = {
                "InstanceGroupName": group.name,
                "InstanceCount": group.instance_count,
                "InstanceType": group.instance_type,
                "ExecutionRole": ROLE,
                "SlurmConfig": {"NodeType": str(group.node_type).capitalize()} | ({"PartitionNames": ["p"]} if group.partition else {}),
            }  # fmt: skip
            if group.spot:
                spec["CapacityRequirements"] = {"Spot": {}}
            if group.training_plan_arn:
                spec["TrainingPlanArn"] = group.training_plan_arn
            if group.availability_zone:
                spec["OverrideVpcConfig"] = {
                    "SecurityGroupIds": [SECURITY],
                    "Subnets": [SUBNETS[group.availability_zone]],
                }
            if group.ebs_volumes:
                spec["InstanceStorageConfigs"] = [{"EbsVolumeConfig": {"VolumeSizeInGB": group.ebs_volumes[0].volume_size_gib}}]  # fmt: skip
            made.append(spec)
        return made

    def _make(self, name: str, groups: list[InstanceGroup]) -> None:
        self.model.call(
            "CreateCluster",
            {
                "ClusterName": name,
                "InstanceGroups": self._specs(groups),
                "VpcConfig": {"SecurityGroupIds": [SECURITY], "Subnets": [SUBNETS["us-west-2a"]]},
                "Orchestrator": {"Slurm": {}},
                "NodeProvisioningMode": "Continuous",
            },
        )

    def deploy(self) -> str:
        """What HyperPod says to the deployment; empty: it accepts it."""
        try:
            if self.lives:
                specs = self._specs([*self.config.instance_groups])
                self.model.call("UpdateCluster", {"ClusterName": "train", "InstanceGroups": specs})
            else:
                self._make("train", [*self.config.instance_groups])
        except ApiError as error:
            return f"{error.code}: {error.message}"
        return ""

    def client(self, service: str) -> Any:
        if service == "sagemaker" and service not in self.denied:
            return self.model.client()
        return Fake(self, service)


class Fake:
    """The services beside SageMaker, by the facts of the model."""

    def __init__(self, case: Case, service: str) -> None:
        self._case = case
        self._service = service

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**_: Any) -> Any:
            if self._service in self._case.denied:
                raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, operation)
            return self._answer(operation)

        return call

    def _answer(self, operation: str) -> Any:
        model = self._case.model
        places: Mapping[str, Place] = model._state.subnets
        match operation:
            case "get_caller_identity":
                return {"Account": "000000000000", "Arn": CALLER}
            case "get_bucket_policy":
                return {"Policy": assets_policy()}
            case "get_role":
                return {"Role": {"Arn": "arn:aws:iam::000000000000:role/ops/deployer"}}
            case "simulate_principal_policy":
                return {"EvaluationResults": [{"EvalDecision": "implicitDeny"}]}
            case "list_service_quotas" | "list_aws_default_service_quotas":
                more = {} if operation == "list_service_quotas" else {INTERFACES: 5000}
                return {"Quotas": [{"QuotaName": name, "Value": float(value)} for name, value in {**model.quotas, **more}.items()]}  # fmt: skip
            case "describe_network_interfaces":
                return {"NetworkInterfaces": [{}] * 10}
            case "describe_availability_zones":
                return {"AvailabilityZones": [{"ZoneName": name, "ZoneId": number} for name, number in ZONES.items()]}
            case "describe_instance_type_offerings":
                return {"InstanceTypeOfferings": [
                    {"InstanceType": kind.removeprefix("ml."), "Location": place.zone}
                    for place in places.values() for kind in place.offered
                ]}  # fmt: skip
            case "describe_subnets":
                return {"Subnets": [{"AvailableIpAddressCount": min(place.free for place in places.values())}]}
            case "get_parameter":
                return {"Parameter": {"Value": "27"}}
        raise AssertionError(operation)


@pytest.mark.parametrize("seeds", [range(500), pytest.param(range(500, 2000), marks=pytest.mark.ci)], ids=str)
def test_nothing_passes_that_hyperpod_then_refuses(seeds: range) -> None:
    said: Counter[tuple[int, bool]] = Counter()
    for seed in seeds:
        case = Case(seed)
        state = replace(
            read_account_state(case.config, case.client), now=datetime.fromtimestamp(case.model.clock.now(), UTC)
        )
        found = rows(case.config, state)
        refused = case.deploy()
        code = exit_code(found)
        assert not (code == 0 and refused), (seed, refused, [row.check for row in found])
        said[code, bool(refused)] += 1

    assert said[0, False] > len(seeds) / 20, "some accounts have room, and are told so"
    assert said[1, True] > len(seeds) / 5, "many have none"
    assert said[1, False] < len(seeds) / 4, "few that have room are told that they have none"


# -- single answers ---------------------------------------------------------------------------------------------------

CONFIG = Case(1).config
NOW = datetime(2026, 11, 22, tzinfo=UTC)


def one(group: InstanceGroup, **state: Any) -> dict[str, Row]:
    config = replace(CONFIG, instance_groups=(group,))
    return {row.check: row for row in rows(config, AccountState(now=NOW, **state), days=2)}


P5 = InstanceGroup(name="p5", instance_type="ml.p5.48xlarge", instance_count=4)
USAGE = "ml.p5.48xlarge for cluster usage"


@pytest.mark.parametrize(
    ("group", "quotas", "verdict", "remedy"),
    [
        pytest.param(P5, {USAGE: 4.0}, "passed", "", id="just enough"),
        pytest.param(P5, {USAGE: 3.0}, "impossible", f'request 4 in Service Quotas: SageMaker, "{USAGE}"', id="one short"),
        pytest.param(P5, {}, "not checked", f'Service Quotas lists no quota "{USAGE}" here', id="not listed"),
        pytest.param(P5, NotRead(why="no right"), "not checked", "no right", id="not read"),
        pytest.param(replace(P5, training_plan_arn=PLAN + "a"), {USAGE: 3.0}, "not checked", "AWS does not document whether nodes of a training plan (p5) count here", id="a training plan's"),
        pytest.param(replace(P5, instance_type=None, instance_types=("ml.p5.48xlarge", "ml.p5e.48xlarge")), {USAGE: 3.0}, "not checked", "p5 may get other types", id="several types"),
    ],
)  # fmt: skip
def test_a_quota_of_a_type(group: InstanceGroup, quotas: Any, verdict: str, remedy: str) -> None:
    row = one(group, quotas=quotas)[USAGE]

    assert (row.verdict, row.remedy[: len(remedy)]) == (verdict, remedy)


def plan(**changes: Any) -> LivePlan:
    values: dict[str, Any] = {
        "status": "Active", "instance_type": "ml.p5.48xlarge", "available": 4, "zones": frozenset({"usw2-az1"}),
        "end": NOW + timedelta(days=3),
    }  # fmt: skip
    return LivePlan(**{**values, **changes})


@pytest.mark.parametrize(
    ("found", "verdict", "remedy"),
    [
        pytest.param(plan(), "passed", "", id="it fits"),
        pytest.param(None, "impossible", "there is no such plan", id="none"),
        pytest.param(plan(status="Expired"), "impossible", "the plan is Expired", id="expired"),
        pytest.param(plan(status="Scheduled"), "not checked", "the plan is Scheduled", id="later"),
        pytest.param(plan(end=NOW + timedelta(days=1)), "impossible", "the plan ends 2026-11-23 00:00 UTC", id="too short"),
        pytest.param(plan(instance_type="ml.trn1.32xlarge"), "impossible", "the plan is for ml.trn1.32xlarge", id="type"),
        pytest.param(plan(available=3), "impossible", "only 3 instances of the plan are available", id="count"),
        pytest.param(plan(zones=frozenset({"usw2-az2"})), "impossible", "the plan is in usw2-az2, and the group in us-west-2a", id="zone"),
        pytest.param(NotRead(why="no right"), "not checked", "no right", id="not read"),
    ],
)  # fmt: skip
def test_preflight_checks_a_training_plan(found: Any, verdict: str, remedy: str) -> None:
    group = replace(P5, training_plan_arn=PLAN + "a")
    row = one(group, zones=ZONES, plans={PLAN + "a": found})["training plan of p5"]

    assert (row.verdict, row.remedy[: len(remedy)]) == (verdict, remedy)


def test_all_problems_of_a_training_plan_are_named() -> None:
    group = replace(P5, training_plan_arn=PLAN + "a", instance_count=6)
    found = plan(end=NOW + timedelta(days=1), zones=frozenset({"usw2-az2"}), status="Scheduled")
    row = one(group, zones=ZONES, plans={PLAN + "a": found})["training plan of p5"]

    assert row.verdict == "impossible"
    assert row.remedy.split(". ") == [
        "the plan ends 2026-11-23 00:00 UTC, which is less than --days from now",
        "Only 4 instances of the plan are available",
        "Lower the count",
        "The plan is in usw2-az2, and the group in us-west-2a",
    ]


@pytest.mark.parametrize(
    ("live", "count", "quota", "shown"),
    [
        pytest.param(6, 6, 4.0, ("0", "4", "9", "passed"), id="nothing is added, although the quota is lower"),
        pytest.param(6, 4, 4.0, ("0", "4", "9", "passed"), id="fewer"),
        pytest.param(4, 6, 9.0, ("2", "9", "7", "passed"), id="more, and just enough"),
        pytest.param(4, 6, 8.0, ("2", "8", "7", "impossible"), id="more, and one short"),
    ],
)
def test_a_quota_counts_what_the_file_adds_to_what_all_clusters_use(
    live: int, count: int, quota: float, shown: tuple[str, ...]
) -> None:
    """Three nodes of the type are of another cluster and of a group that the file does not have."""
    own = tuple(
        LiveGroup(name=name, instance_type="ml.p5.48xlarge", count=nodes) for name, nodes in (("p5", live), ("old", 1))
    )
    other = LiveGroup(name="p5", instance_type="ml.p5.48xlarge", count=2)
    clusters = [LiveCluster(name=CONFIG.name, groups=own), LiveCluster(name="other", groups=(other,))]
    row = one(replace(P5, instance_count=count), quotas={USAGE: quota}, clusters=clusters)[USAGE]

    assert (row.needed, row.allowed, row.in_use, row.verdict) == shown
    assert ("request 9 in" in row.remedy) == (row.verdict == "impossible")


class Named:
    """IAM and FSx of an account in which there is a role ci, and one file system."""

    def __init__(self, system: Mapping[str, Any]) -> None:
        self.system = system

    def get_role(self, RoleName: str) -> Any:
        if RoleName != "ci":
            raise ClientError({"Error": {"Code": "NoSuchEntity", "Message": "no"}}, "GetRole")
        return {"Role": {"RoleName": RoleName, "Arn": "arn:aws:iam::000000000000:role/ci"}}

    def describe_file_systems(self, FileSystemIds: list[str]) -> Any:
        assert FileSystemIds == [SYSTEM]
        if not self.system:
            raise ClientError({"Error": {"Code": "FileSystemNotFound", "Message": "no"}}, "DescribeFileSystems")
        return {"FileSystems": [self.system]}


SYSTEM = "fs-0123456789abcdef0"
VPC = str(CONFIG.network.vpc_id)
LUSTRE = {"Lifecycle": "AVAILABLE", "VpcId": VPC, "LustreConfiguration": {"MountName": "abcd"}}


def of_named(config: ClusterConfig, system: Mapping[str, Any]) -> dict[str, Row]:
    case = Case(1)
    case.denied = set()
    services = {"iam": Named(system), "fsx": Named(system)}
    state = read_account_state(config, lambda service: services.get(service) or case.client(service))
    return {row.check: row for row in rows(config, state)}


@pytest.mark.parametrize(
    "named",
    [
        lambda arn: replace(CONFIG, lifecycle=LifecycleConfig(writers=(arn,))),
        lambda arn: replace(CONFIG, slurm=SlurmConfig(drain=DrainAgentConfig(operators=(arn,)))),
    ],
    ids=["writers", "operators"],
)
def test_a_role_is_looked_for_in_its_own_account_by_its_whole_arn(named: Callable[[str], ClusterConfig]) -> None:
    """GetRole takes a name: the same name in another account, or with another path, is another role."""
    own, other = "arn:aws:iam::000000000000:role/", "arn:aws:iam::999999999999:role/"
    found = {
        arn: next(row for check, row in of_named(named(arn), LUSTRE).items() if check.startswith("role "))
        for arn in (f"{own}ci", f"{own}ops/ci", f"{own}none", f"{other}ci", f"{other}none")
    }
    assert [row.verdict for row in found.values()] == [
        "passed",
        "impossible",
        "impossible",
        "not checked",
        "not checked",
    ]
    row = found[f"{other}ci"]
    assert (row.check, row.remedy[:38]) == (
        "role ci of 999999999999",
        "it is in another account than your cre",
    )


@pytest.mark.parametrize(
    ("system", "verdict", "remedy"),
    [
        pytest.param(LUSTRE, "passed", "", id="as the file has it"),
        pytest.param({**LUSTRE, "Lifecycle": "UPDATING"}, "passed", "", id="while it grows"),
        pytest.param({**LUSTRE, "Lifecycle": "FAILED"}, "impossible", "it is FAILED", id="failed"),
        pytest.param({**LUSTRE, "Lifecycle": "CREATING"}, "impossible", "it is CREATING", id="not yet"),
        pytest.param({**LUSTRE, "LustreConfiguration": {"MountName": "x"}}, "impossible", "its mount name is x", id="mount name"),
        pytest.param({**LUSTRE, "VpcId": "vpc-1"}, "not checked", f"it is in vpc-1 and the nodes are in {VPC}", id="another VPC"),
        pytest.param({**LUSTRE, "VpcId": None}, "not checked", "FSx does not report", id="VPC unknown"),
        pytest.param({}, "impossible", "it does not exist", id="none"),
    ],
)  # fmt: skip
def test_preflight_checks_an_existing_file_system(system: Mapping[str, Any], verdict: str, remedy: str) -> None:
    config = replace(CONFIG, storage=StorageConfig(file_system_id=SYSTEM, mount_name="abcd"))
    row = of_named(config, system)[f"file system {SYSTEM}"]
    assert (row.verdict, row.remedy[: len(remedy)]) == (verdict, remedy)


class Alarms:
    """CloudWatch of an account with two alarms, one of which is composite."""

    def __init__(self, denied: bool) -> None:
        self.denied = denied

    def describe_alarms(self, AlarmNames: list[str], AlarmTypes: list[str]) -> Any:
        if self.denied:
            error = {"Code": "AccessDenied", "Message": "no right"}
            raise ClientError({"Error": error}, "DescribeAlarms")
        assert AlarmTypes == ["MetricAlarm", "CompositeAlarm"]
        kinds = {"nccl-errors": "MetricAlarms", "everything": "CompositeAlarms"}
        return {kinds[name]: [{"AlarmName": name}] for name in AlarmNames if name in kinds}


@pytest.mark.parametrize(
    ("denied", "verdicts"),
    [(False, ["passed", "impossible", "passed"]), (True, ["not checked"] * 3)],
    ids=["readable", "denied"],
)
def test_each_rollback_alarm_must_exist(denied: bool, verdicts: list[str]) -> None:
    rolling = Rolling(batch_nodes=1, rollback_alarms=("nccl-errors", "everything", "gone"))
    config = replace(
        CONFIG,
        orchestrator="eks",
        instance_groups=(replace(P5, rolling=rolling), replace(P5, name="b", rolling=rolling)),
    )
    case = Case(1)
    case.denied = set()
    state = read_account_state(
        config, lambda service: Alarms(denied) if service == "cloudwatch" else case.client(service)
    )
    found = {row.check: row.verdict for row in rows(config, state) if row.check.startswith("alarm")}
    assert found == dict(zip(["alarm everything", "alarm gone", "alarm nccl-errors"], verdicts, strict=True))


@pytest.mark.parametrize(
    ("clusters", "verdict", "remedy"),
    [
        pytest.param((), None, "", id="a new cluster"),
        pytest.param((LiveCluster(name="other", groups=(), created=NOW - timedelta(days=900)),), None, "", id="another cluster"),
        pytest.param((LiveCluster(name="train", groups=(), created=datetime(2025, 12, 31, tzinfo=UTC)),), "impossible", "it was created on 2025-12-31", id="old"),
        pytest.param((LiveCluster(name="train", groups=(), created=datetime(2026, 1, 1, tzinfo=UTC)),), "passed", "", id="new enough"),
        pytest.param((LiveCluster(name="train", groups=()),), "not checked", "HyperPod does not report", id="unknown"),
        pytest.param(NotRead(why="no right"), "not checked", "no right", id="not read"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "setting", [{"auto_patch": "when_idle"}, {"image_release_version": "1.3.0"}], ids=["auto", "release"]
)
def test_releases_need_a_cluster_of_2026(
    clusters: Any, verdict: str | None, remedy: str, setting: dict[str, Any]
) -> None:
    found = one(replace(P5, **setting), clusters=clusters)
    row = found.get("cluster created in 2026 or later")
    assert (None if row is None else row.verdict) == verdict
    assert row is None or row.remedy.startswith(remedy)
    unused = one(replace(P5, auto_patch="none"), clusters=clusters)
    assert "cluster created in 2026 or later" not in unused


TOPIC = "arn:aws:sns:us-west-2:000000000000:oncall"
OWN_KEY = "arn:aws:kms:us-west-2:000000000000:key/0-1"


class Topics:
    """SNS and KMS of an account with one topic, whose key has an alias."""

    def __init__(self, key: str | None, key_policy: str | None) -> None:
        self.key, self.key_policy = key, key_policy

    def get_topic_attributes(self, TopicArn: str) -> Any:
        assert TopicArn == TOPIC
        if self.key is None:
            raise ClientError({"Error": {"Code": "NotFound", "Message": "no"}}, "GetTopicAttributes")
        return {
            "Attributes": {"Policy": policy_of("sns:Publish"), **({"KmsMasterKeyId": self.key} if self.key else {})}
        }

    def describe_key(self, KeyId: str) -> Any:
        assert KeyId == self.key
        return {"KeyMetadata": {"Arn": OWN_KEY}}

    def get_key_policy(self, KeyId: str, PolicyName: str) -> Any:
        # As KMS does, which refuses an alias here.
        assert (KeyId, PolicyName) == (OWN_KEY, "default")
        if self.key_policy is None:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no right"}}, "GetKeyPolicy")
        return {"Policy": self.key_policy}


def policy_of(*actions: str) -> str:
    principal = {"Service": "cloudwatch.amazonaws.com", "AWS": f"arn:aws:iam::{TOPIC.split(':')[4]}:root"}
    return json.dumps({"Statement": [{"Effect": "Allow", "Principal": principal, "Action": actions, "Resource": "*"}]})


@pytest.mark.parametrize(
    ("key", "key_policy", "verdict", "remedy"),
    [
        pytest.param("", None, "passed", "", id="not encrypted"),
        pytest.param("alias/oncall", policy_of("kms:*"), "passed", "", id="its own key"),
        pytest.param("alias/oncall", policy_of("kms:Encrypt"), "impossible", 'add this statement to it: {"Effect": "Allow"', id="its key refuses"),
        pytest.param("alias/aws/sns", None, "impossible", "encrypt it with a key of your own", id="AWS's key"),
        pytest.param("alias/oncall", None, "not checked", "lack the permission GetKeyPolicy", id="unread"),
        pytest.param(None, None, "impossible", "it does not exist", id="none"),
    ],
)  # fmt: skip
def test_a_topic_that_alarms_have_to_reach(key: str | None, key_policy: str | None, verdict: str, remedy: str) -> None:
    case = Case(1)
    case.denied = set()
    topics = Topics(key, key_policy)
    config = replace(CONFIG, monitoring=MonitoringConfig(topic_arn=TOPIC))
    state = read_account_state(config, lambda service: topics if service in ("sns", "kms") else case.client(service))
    row = {row.check: row for row in rows(config, state)}["topic oncall"]

    assert row.verdict == verdict
    assert remedy in row.remedy


def test_a_topic_of_another_account_is_open() -> None:
    config = replace(CONFIG, monitoring=MonitoringConfig(topic_arn=TOPIC))
    case = Case(1)
    case.denied = set()
    topics = Topics("", None)
    state = read_account_state(config, lambda service: topics if service == "sns" else case.client(service))
    row = {row.check: row for row in rows(config, replace(state, account="999999999999"))}["topic oncall"]
    assert (row.verdict, row.remedy) == ("open", "it is in account 000000000000, whose people read the messages")


# -- doors ------------------------------------------------------------------------------------------------------------

EVERYBODY = {"ArnNotLike": {"aws:PrincipalArn": "arn:aws:iam::000000000000:role/*"}}


@pytest.mark.parametrize(
    ("changes", "closed"),
    [
        pytest.param({}, True, id="of the page"),
        pytest.param({"Action": "s3:*"}, True, id="everything"),
        pytest.param({"Principal": {"AWS": "*"}, "Resource": [f"arn:aws:s3:::{ASSETS}/*"]}, True, id="in other words"),
        pytest.param({"Action": ["s3:PutObject"]}, False, id="deletes"),
        pytest.param({"Effect": "Allow"}, False, id="allows"),
        pytest.param({"Principal": {"AWS": "000000000000"}}, False, id="some"),
        pytest.param({"Resource": f"arn:aws:s3:::{ASSETS}/a/*"}, False, id="a part"),
        pytest.param({"Condition": EVERYBODY}, False, id="everybody excepted"),
        pytest.param({"Condition": {"Bool": {"aws:SecureTransport": "false"}}}, False, id="CDK's own"),
        pytest.param({"Condition": {}}, False, id="nobody"),
    ],
)
def test_an_assets_bucket_policy_that_denies_other_writers_is_recognized(changes: dict[str, Any], closed: bool) -> None:
    assert is_walled(ASSETS, assets_policy(**changes)) is closed


@pytest.mark.parametrize("policy", [None, "", "no", "[]", "null", '{"Statement": "x"}', '{"Statement": [1]}'])
def test_an_invalid_bucket_policy_denies_no_writer(policy: str | None) -> None:
    assert not is_walled(ASSETS, policy)


def test_an_asset_is_written_as_any_object_is() -> None:
    """By another bucket's replication rule, too: CDK's bucket is versioned."""
    assert set(json.loads(assets_policy())["Statement"][0]["Action"]) == {*WRITES}
    assert not is_walled(ASSETS, assets_policy(Action=[each for each in WRITES if "Replicate" not in each]))


class Iam:
    """IAM of an account with three roles, one of which may invoke, and a caller by a role with a path."""

    def __init__(self, denied: bool) -> None:
        self.denied = denied
        self.asked: list[Any] = []

    def get_role(self, RoleName: str) -> Any:
        path = "ops/" if RoleName == "deployer" else ""
        return {"Role": {"Arn": f"arn:aws:iam::000000000000:role/{path}{RoleName}"}}

    def simulate_principal_policy(self, **asked: Any) -> Any:
        if self.denied:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "SimulatePrincipalPolicy")
        self.asked.append(asked)
        decision = "allowed" if asked["PolicySourceArn"].endswith("/members") else "explicitDeny"
        return {"EvaluationResults": [{"EvalDecision": decision}]}


@pytest.mark.parametrize("denied", [False, True])
def test_which_roles_may_invoke_the_kubectl_function(denied: bool) -> None:
    own, other = "arn:aws:iam::000000000000:role/", "arn:aws:iam::999999999999:role/"
    team = Team(name="research", role_arns=(f"{own}members", f"{other}members"))
    config = replace(
        CONFIG,
        orchestrator="eks",
        eks=EksConfig(dependencies_chart="installed", admin_role_arns=(f"{own}admin",)),
        teams=(team,),
    )
    case = Case(1)
    case.denied = set()
    iam = Iam(denied)
    state = read_account_state(config, lambda service: iam if service == "iam" else case.client(service))
    found = {row.check: row for row in rows(config, state) if row.check.startswith("kubectl function")}
    expected = {"deployer": "passed", "admin": "passed", "members": "open"}
    assert {check: row.verdict for check, row in found.items()} == {
        f"kubectl function: {name}": "not checked" if denied else verdict for name, verdict in expected.items()
    }
    if not denied:
        assert iam.asked[0] == {
            "PolicySourceArn": f"{own}ops/deployer",
            "ActionNames": ["lambda:InvokeFunction"],
            "ResourceArns": ["arn:aws:lambda:us-west-2:000000000000:function:hyperpod-train-eks-Handler"],
        }
        assert exit_code(list(found.values())) == 0
        assert "Open:" in [*lines(tuple(found.values()))]


def test_a_file_system_of_openzfs_and_one_beside_a_vpc_of_the_files_own() -> None:
    zfs = StorageConfig(capacity_gib=1200, openzfs=OpenZfsConfig(file_system_id=SYSTEM))
    there = {"Lifecycle": "AVAILABLE", "VpcId": VPC}
    assert of_named(replace(CONFIG, storage=zfs), there)[f"file system {SYSTEM}"].verdict == "passed"
    config = replace(CONFIG, storage=zfs, network=NetworkConfig(availability_zones=("us-west-2a",)))
    row = of_named(config, there)[f"file system {SYSTEM}"]
    assert row.verdict == "not checked" and "in a VPC of the file's own" in row.remedy


EKS = {
    "status": "ACTIVE",
    "version": "1.34",
    "resourcesVpcConfig": {"vpcId": VPC},
    "accessConfig": {"authenticationMode": "API"},
}


class Eks:
    """EKS of an account that has one cluster, or none."""

    def __init__(self, cluster: Mapping[str, Any]) -> None:
        self.cluster = cluster

    def describe_cluster(self, name: str) -> Any:
        assert name == "shared"
        if not self.cluster:
            raise ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": "no"}}, "DescribeCluster")
        return {"cluster": self.cluster}


@pytest.mark.parametrize(
    ("cluster", "verdict", "remedy"),
    [
        pytest.param(EKS, "passed", "", id="as the file has it"),
        pytest.param({**EKS, "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"}}, "passed", "", id="both modes"),
        pytest.param({**EKS, "version": "1.29"}, "impossible", "its Kubernetes version is 1.29, and HyperPod supports 1.30 to 1.35 (2026-11-26). Upgrade it", id="old version"),
        pytest.param({**EKS, "version": "1.37"}, "not checked", "its Kubernetes version is 1.37, and HyperPod supported 1.30 to 1.35 on 2026-11-26. Make sure that it supports 1.37 today", id="new version"),
        pytest.param({**EKS, "version": "1.32"}, "not checked", "its Kubernetes version is 1.32, and the kubectl of this release supports 1.34 to 1.36. Upgrade it, or expect that a deployment may fail", id="version for another kubectl"),
        pytest.param({**EKS, "version": "a\x1b[31m"}, "not checked", "EKS does not report its Kubernetes version", id="no version"),
        pytest.param({**EKS, "accessConfig": {"authenticationMode": "CONFIG_MAP"}}, "impossible", "its authentication mode is CONFIG_MAP, which allows no access entries. Change it by `aws eks update-cluster-config --region us-west-2 --name shared --access-config authenticationMode=API_AND_CONFIG_MAP`", id="no access entries"),
        pytest.param({**EKS, "accessConfig": {}}, "not checked", "EKS does not report its authentication mode", id="mode unknown"),
        pytest.param({**EKS, "status": "UPDATING"}, "passed", "", id="while it is updated"),
        pytest.param({**EKS, "status": "FAILED"}, "impossible", "it is FAILED", id="failed"),
        pytest.param({**EKS, "resourcesVpcConfig": {"vpcId": "vpc-1"}}, "impossible", "it is in vpc-1. Write that in network.vpc_id", id="another VPC"),
        pytest.param({**EKS, "resourcesVpcConfig": {}}, "not checked", "EKS does not report its VPC", id="VPC unknown"),
        pytest.param({}, "impossible", "it does not exist", id="none"),
    ],
)  # fmt: skip
def test_preflight_checks_an_existing_eks_cluster(cluster: Mapping[str, Any], verdict: str, remedy: str) -> None:
    there = ExistingEksCluster(name="shared", security_group_id=SECURITY)
    config = replace(CONFIG, orchestrator="eks", eks=EksConfig(dependencies_chart="installed", existing_cluster=there))
    case = Case(1)
    case.denied = set()
    state = read_account_state(config, lambda service: Eks(cluster) if service == "eks" else case.client(service))
    row = {row.check: row for row in rows(config, state)}["EKS cluster shared"]
    assert (row.verdict, row.remedy[: len(remedy)]) == (verdict, remedy)


def test_days_that_are_no_number_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for days in ("nan", "inf", "-1"):
        assert main(["preflight", "--config", str(ROOT / "cluster.yaml"), "--days", days]) == 2
        err = capsys.readouterr().err
        assert "--days" in err and "fault" not in err


def test_the_table_has_80_columns_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Any
) -> None:
    case = Case(3)
    case.denied = {"ec2"}
    monkeypatch.setattr(aws, "clients", lambda *_: case.client)
    (tmp_path / "cluster.yaml").write_text((ROOT / "cluster.yaml").read_text("utf-8"), "utf-8")

    status = main(["preflight", "--config", str(tmp_path / "cluster.yaml")])
    out = capsys.readouterr().out
    assert status in (1, 2)
    assert all(len(line) <= 80 for line in out.splitlines()), out
    assert "Not checked:" in out
    assert " ".join(out.split()).count("lack the permission describe_instance_type_offerings") == 1, (
        "once for all the checks that it leaves open"
    )

    assert main(["preflight", "--config", str(tmp_path / "cluster.yaml"), "--json"]) == status
    told = json.loads(capsys.readouterr().out)
    assert (told["command"], told["schema"], told["exit_code"]) == ("preflight", 1, status)
    assert told["made_up_by"] is None and "made up" not in out
    assert {check["verdict"] for check in told["checks"]} <= {"passed", "impossible", "not checked"}


def test_offers_of_the_local_aws_are_made_up(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(aws, "clients", lambda *_: Case(3).client)
    command = ["preflight", "--config", str(ROOT / "cluster.yaml"), "--endpoint-url", "https://127.0.0.1:4566"]
    main(command)
    out = capsys.readouterr().out
    assert "The local AWS on https://127.0.0.1:4566 has answered. Its offers are made up" in " ".join(out.split())
    assert all(len(line) <= 80 for line in out.splitlines()), out
    main([*command, "--json"])
    assert json.loads(capsys.readouterr().out)["made_up_by"] == "https://127.0.0.1:4566"


def test_another_account_than_the_files_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Any
) -> None:
    monkeypatch.setattr(aws, "clients", lambda *_: Case(1).client)
    text = (ROOT / "cluster.yaml").read_text("utf-8")
    (tmp_path / "cluster.yaml").write_text(f'{text}\naccount: "111122223333"\n', "utf-8")

    assert main(["preflight", "--config", str(tmp_path / "cluster.yaml")]) == NOT_READ
    assert "account: the file says 111122223333, but your credentials are of 000000000000" in capsys.readouterr().err


def test_preflight_with_expired_credentials_reports_that_nothing_was_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ["--config", str(ROOT / "cluster.yaml")]

    def expired(_: str) -> Any:
        raise ClientError({"Error": {"Code": "ExpiredToken", "Message": "no"}}, "GetCallerIdentity")

    monkeypatch.setattr(aws, "clients", lambda *_: expired)
    assert main(["preflight", *config]) == NOT_READ
    assert capsys.readouterr().err.startswith("your AWS credentials have expired. ")
    assert main(["preflight", "--config", "nowhere.yaml"]) == 1, "a file that is wrong is impossible"


def test_an_empty_preflight_table_has_only_its_heading() -> None:
    assert [*lines(())] == ["check  needed  allowed  in use  verdict"]
