"""Rules of EKS and its teams: each refuses one thing, in full words, and is silent about what lies next to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from helpers.findings import Found, found
from helpers.validating import REMOVED, SMALL, Changes, changed, findings_of

EKS: Mapping[str, Any] = yaml.safe_load("""
name: small
region: us-west-2
orchestrator: eks
network:
  availability_zones: [us-west-2c, us-west-2a]
eks: {dependencies_chart: installed}
instance_groups:
- {name: system, instance_type: ml.m5.xlarge, instance_count: 2, min_instance_count: 1}
- {name: work, instance_type: ml.p5.48xlarge, instance_count: 8}
""")
ADMIN = "arn:aws:iam::111122223333:role/admin"
PLAN = "arn:aws:sagemaker:us-west-2:111122223333:training-plan/large"
LARGE = {"instance_groups.0.instance_type": "ml.m5.4xlarge"}
ROLE = "arn:aws:iam::111122223333:role/pods"
TEAM = {"name": "research", "quota": {"ml.p5.48xlarge": 8}}
SUBNET = {"subnet_id": "subnet-0123456789abcdef0", "availability_zone": "us-west-2c"}
OTHER_SUBNET = {"subnet_id": "subnet-0123456789abcdef1", "availability_zone": "us-west-2a"}
OLD_VPC = {
    "network": {
        "vpc_id": "vpc-0123456789abcdef0",
        "subnets": [SUBNET, OTHER_SUBNET],
        "endpoint_security_group_id": "sg-0123456789abcdef0",
    }
}
OLD_EKS = {**OLD_VPC, "eks.existing_cluster": {"name": "old", "security_group_id": "sg-0123456789abcdef0"}}
IN_AZ3 = {
    **OLD_VPC["network"],
    "subnets": [{**SUBNET, "availability_zone": "use1-az1"}, {**OTHER_SUBNET, "availability_zone": "use1-az3"}],
}
SCALED = {"eks.autoscaling": {"instance_groups": ["work"]}, "instance_groups.1.instance_count": 0}
NO_GOVERNANCE = {"eks.add_ons": {"task_governance": {"enabled": False}}}
CHART_FIRST = ("chart-on-a-new-cluster", "eks.dependencies_chart")  # fmt: skip
ALSO_FIXED = {"name": "spare", "instance_type": "ml.g6.xlarge", "instance_count": 4}


def validate_whole(changes: Changes, base: Mapping[str, Any] = EKS) -> Found:
    return found(findings_of(yaml.safe_dump(changed(changes, base), sort_keys=False, allow_unicode=True)))


def validate(changes: Changes, base: Mapping[str, Any] = EKS) -> Found:
    """Without the warnings that the small cluster itself gets."""
    of_the_base = ("chart-on-a-new-cluster", "group-few-pod-addresses")
    return [each for each in validate_whole(changes, base) if each[0] not in of_the_base]


@pytest.mark.parametrize(
    ("bad", "expected", "good"),
    [
        # The orchestrator, and what only the other one has
        pytest.param({"eks": REMOVED}, [("eks-missing", "eks")], {}, id="no EKS"),
        pytest.param({"instance_groups.1.node_type": "compute"}, [("setting-for-slurm-only", "instance_groups[work].node_type")], {}, id="node type"),
        pytest.param({"instance_groups.1.partition": "p5"}, [("setting-for-slurm-only", "instance_groups[work].partition")], {}, id="partition"),
        pytest.param({"instance_groups.1.labels": {f"k{n}": "v" for n in range(51)}}, [("labels-too-many", "instance_groups[work].labels")], {"instance_groups.1.labels": {f"k{n}": "v" for n in range(50)}}, id="labels"),
        pytest.param({"instance_groups.1.labels": {"x y": "z z"}}, [("label-key-invalid", "instance_groups[work].labels.x y"), ("label-value-invalid", "instance_groups[work].labels.x y")], {"instance_groups.1.labels": {"example.com/x_y": "z.z"}}, id="label"),
        pytest.param({"instance_groups.1.labels": {"Example.com/pool": ""}}, [("label-key-invalid", "instance_groups[work].labels.Example.com/pool"), ("label-value-invalid", "instance_groups[work].labels.Example.com/pool")], {"instance_groups.1.labels": {f"{'a' * 253}/{'b' * 63}": "c" * 63}}, id="label's domain, empty value"),
        pytest.param({"instance_groups.1.labels": {"/pool": "c" * 64}}, [("label-key-invalid", "instance_groups[work].labels./pool"), ("label-value-invalid", "instance_groups[work].labels./pool")], {"instance_groups.1.labels": {"pool": "c"}}, id="label without its domain, long value"),
        pytest.param({"instance_groups.1.taints": [{"key": "a b", "effect": "no_schedule", "value": "!!"}]}, [("label-key-invalid", "instance_groups[work].taints[0]"), ("label-value-invalid", "instance_groups[work].taints[0]")], {"instance_groups.1.taints": [{"key": "nvidia.com/gpu", "effect": "no_schedule"}]}, id="taint"),
        pytest.param({"instance_groups.1.taints": [{"key": "a", "effect": "no_schedule", "value": value} for value in "bc"]}, [("taint-duplicated", "instance_groups[work].taints")], {"instance_groups.1.taints": [{"key": "a", "effect": effect} for effect in ("no_schedule", "no_execute")]}, id="taint twice"),
        pytest.param({"eks.nodes": 3}, [("setting-unknown", "eks.nodes")], {}, id="unknown key"),
        pytest.param({"eks.add_ons": {"coredms": {}}}, [("setting-misspelled", "eks.add_ons.coredms")], {"eks.add_ons": {"coredns": {"version": "v1.13.1-eksbuild.1"}}}, id="unknown add-on"),
        # Zones
        pytest.param({"network.availability_zones": ["us-west-2c"]}, [("second-zone", "network.availability_zones")], {}, id="one zone"),
        pytest.param({"region": "us-west-1", "network.availability_zones": ["us-west-1a"]}, [("zones-too-few", "network.availability_zones")], {}, id="one zone where the letters of the others are not known"),
        pytest.param({"network": {}}, [("zones-too-few", "network.availability_zones")], {}, id="no zone"),
        pytest.param({"region": "us-east-1", "network.availability_zones": ["use1-az3"]}, [("zone-without-eks", "network.availability_zones")], {"region": "us-east-1", "network.availability_zones": ["use1-az1", "use1-az2", "use1-az3"]}, id="a zone without EKS"),
        pytest.param({"region": "us-east-1", "network.availability_zones": ["use1-az1", "use1-az3"]}, [("zone-without-eks", "network.availability_zones")], {"region": "us-east-1", "network.availability_zones": ["use1-az1", "use1-az2"], "instance_groups.1.availability_zone": "use1-az3"}, id="second zone without EKS"),
        pytest.param({"region": "us-east-1", "network": IN_AZ3}, [("zone-without-eks", "network.subnets")], {"region": "us-east-1", "network": IN_AZ3, "eks.existing_cluster": OLD_EKS["eks.existing_cluster"]}, id="subnet in a zone without EKS"),
        pytest.param({"instance_groups.0.min_instance_count": 0}, [("groups-without-minimum", "instance_groups")], {}, id="no minimum"),
        pytest.param({"instance_groups.0.min_instance_count": 0, "instance_groups.1.min_instance_count": 1, "instance_groups.1.taints": [{"key": "a", "effect": "no_schedule"}]}, [("groups-without-minimum", "instance_groups")], {"instance_groups.1.min_instance_count": 1, "instance_groups.1.taints": [{"key": "a", "effect": "no_schedule"}]}, id="a minimum on a tainted group alone"),
        pytest.param({"instance_groups.0.instance_count": 0, "instance_groups.0.min_instance_count": 0, "instance_groups.1.min_instance_count": 1, "instance_groups.1.taints": [{"key": "a", "effect": "no_execute"}]}, [("groups-without-minimum", "instance_groups")], {}, id="an untainted group without nodes"),
        pytest.param({**SCALED, "instance_groups.0.taints": [{"key": "a", "effect": "no_schedule"}]}, [("groups-without-minimum", "instance_groups")], SCALED, id="an untainted group of the autoscaler alone"),
        pytest.param({"node_provisioning_mode": "standard", "instance_groups.0.min_instance_count": 0, "instance_groups.0.instance_count": 0, "instance_groups.1.taints": [{"key": "a", "effect": "no_schedule"}]}, [("groups-without-open-node", "instance_groups")], {"node_provisioning_mode": "standard", "instance_groups.0.min_instance_count": 0}, id="no open node under standard provisioning"),
        pytest.param({f"instance_groups.{n}.taints": [{"key": "a", "effect": effect}] for n, effect in enumerate(("no_schedule", "no_execute"))}, [("groups-all-tainted", "instance_groups")], {"instance_groups.0.taints": [{"key": "a", "effect": "prefer_no_schedule"}], "instance_groups.1.taints": [{"key": "a", "effect": "no_schedule"}]}, id="taints everywhere"),
        pytest.param({"instance_groups.1.spot": True, "tiered_storage": {}}, [("elastic-training-on-spot-groups", "eks.add_ons.training_operator"), ("elastic-training-with-tiered-checkpointing", "eks.add_ons.training_operator")], {"instance_groups.1.spot": True, "tiered_storage": {}, "eks.add_ons": {"training_operator": {"enabled": False}}}, id="elastic training on spot"),
        pytest.param({**OLD_EKS, "teams": [{**TEAM, "pod_role_arn": ROLE}]}, [("pod-role-without-agent", "teams[research].pod_role_arn")], {"teams": [{**TEAM, "pod_role_arn": ROLE}]}, id="no pod identity agent"),
        pytest.param({**OLD_EKS, "network": {**OLD_VPC["network"], "subnets": [SUBNET]}}, [("subnets-in-one-zone", "network.subnets")], OLD_EKS, id="one subnet"),
        # The cluster
        pytest.param({"eks.kubernetes_version": "1.29"}, [("kubernetes-version-outside", "eks.kubernetes_version"), ("kubernetes-version-and-kubectl", "eks.kubernetes_version")], {"eks.kubernetes_version": "1.35"}, id="old version"),
        pytest.param({"eks.kubernetes_version": "1.36"}, [("kubernetes-version-outside", "eks.kubernetes_version")], {"eks.kubernetes_version": "1.34"}, id="new version"),
        pytest.param({"eks.kubernetes_version": "1.33"}, [("kubernetes-version-and-kubectl", "eks.kubernetes_version")], {}, id="version for another kubectl"),
        pytest.param({"eks.kubernetes_version": "latest"}, [("value-malformed", "eks.kubernetes_version")], {}, id="no version"),
        pytest.param({"eks.kubernetes_version": 1.34}, [("value-of-wrong-type", "eks.kubernetes_version")], {"eks.kubernetes_version": "1.34"}, id="version without quotes"),
        pytest.param({"eks.kubernetes_version": 1.30}, [("value-of-wrong-type", "eks.kubernetes_version")], {}, id="version that YAML shortens"),
        pytest.param({"eks.kubernetes_version": 2}, [("value-of-wrong-type", "eks.kubernetes_version")], {}, id="version that is a whole number"),
        pytest.param({"eks.public_access_cidrs": ["anywhere"]}, [("value-malformed", "eks.public_access_cidrs[0]")], {"eks.public_access_cidrs": ["203.0.113.0/24"]}, id="range"),
        pytest.param({"eks.public_access_cidrs": ["203.0.113.0/24", "999.1.1.1/99"]}, [("cidr-invalid", "eks.public_access_cidrs[1]")], {"eks.public_access_cidrs": ["203.0.113.5/32"]}, id="range that is none"),
        pytest.param({"eks.public_access_cidrs": ["203.0.113.5/24"]}, [("cidr-with-host-bits", "eks.public_access_cidrs[0]")], {"eks.public_access_cidrs": ["203.0.113.0/24"]}, id="address with a range's length"),
        pytest.param({"eks.public_access_cidrs": ["10.0.0.0/8", "192.168.7.9/24", "127.0.0.1/32"]}, [("public-access-private-range", "eks.public_access_cidrs[0]"), ("public-access-private-range", "eks.public_access_cidrs[1]"), ("public-access-private-range", "eks.public_access_cidrs[2]")], {"eks.public_access_cidrs": ["11.0.0.0/16"]}, id="private ranges"),
        pytest.param({"eks.public_access_cidrs": ["0.0.0.0/0"]}, [("public-access-for-everyone", "eks.public_access_cidrs")], {"eks.public_access_cidrs": []}, id="the whole internet"),
        pytest.param({"eks.public_access_cidrs": ["0.0.0.0/1", "128.0.0.0/1"]}, [("public-access-for-everyone", "eks.public_access_cidrs")], {"eks.public_access_cidrs": []}, id="the whole internet in halves"),
        pytest.param({"eks.public_access_cidrs": ["11.0.0.0/17", "11.0.128.0/17", "203.0.113.5/32"]}, [("public-access-wide", "eks.public_access_cidrs")], {"eks.public_access_cidrs": ["11.0.0.0/17", "11.0.128.0/17", "11.0.7.0/24"]}, id="more than a /16, ranges that overlap counted once"),
        pytest.param({"eks.public_access_cidrs": ["203.0.113.0/24"] * 2}, [("value-duplicated", "eks.public_access_cidrs")], {"eks.public_access_cidrs": ["203.0.113.0/24"]}, id="range twice"),
        pytest.param({"eks.admin_role_arns": [ADMIN, ADMIN]}, [("value-duplicated", "eks.admin_role_arns")], {"eks.admin_role_arns": [ADMIN, f"{ADMIN}2"]}, id="administrator twice"),
        pytest.param({"eks.existing_cluster": OLD_EKS["eks.existing_cluster"]}, [("existing-cluster-without-vpc", "eks.existing_cluster")], OLD_EKS, id="existing cluster, new VPC"),
        pytest.param({**OLD_EKS, "eks.kubernetes_version": "1.35"}, [("existing-cluster-setting", "eks.kubernetes_version")], OLD_EKS, id="version of an existing cluster"),
        pytest.param({"eks.add_ons": {"vpc_cni": {"enabled": False}}}, [("add-on-required", "eks.add_ons.vpc_cni.enabled")], {**OLD_EKS, "eks.add_ons": {"vpc_cni": {"enabled": False}}}, id="no VPC CNI"),
        pytest.param({"eks.add_ons": {"observability": {"version": "v1.2.0"}}}, [("add-on-off", "eks.add_ons.observability.version")], {"eks.add_ons": {"observability": {"version": "v1.2.0", "enabled": True}}}, id="version of an add-on that is off"),
        pytest.param({"eks.add_ons": {"training_operator": {"version": "latest"}}}, [("value-malformed", "eks.add_ons.training_operator.version")], {"eks.add_ons": {"training_operator": {"version": "v1.3.0-eksbuild.1"}}}, id="add-on version"),
        # The chart, as far as the file alone tells
        pytest.param({"eks.dependencies_chart_digest": f"sha256:{'0' * 64}"}, [("installed-chart-setting", "eks.dependencies_chart_digest")], {}, id="digest of an installed chart"),
        pytest.param({"eks.image_registry": "registry.example.com/mirror"}, [("installed-chart-setting", "eks.image_registry")], {}, id="registry of an installed chart"),
        # Autoscaling
        pytest.param({**SCALED, "eks.autoscaling": {"instance_groups": []}}, [("autoscaled-groups-wrong-number", "eks.autoscaling.instance_groups")], SCALED, id="no autoscaled group"),
        pytest.param({**SCALED, "eks.autoscaling": {"instance_groups": ["gone"]}}, [("autoscaled-group-unknown", "eks.autoscaling.instance_groups[0]")], SCALED, id="unknown autoscaled group"),
        pytest.param({**SCALED, "eks.autoscaling": {"instance_groups": ["work", "work"]}, "instance_groups.1.instance_count": 3, "instance_groups.1.min_instance_count": 3}, [("value-duplicated", "eks.autoscaling.instance_groups"), ("autoscaled-minimum", "instance_groups[work].min_instance_count")], SCALED, id="autoscaled group twice"),
        pytest.param({**SCALED, "eks.autoscaling": {"instance_groups": ["work"], "limits": {"cpu": "abc", "memory": "-1"}}}, [("quantity-invalid", "eks.autoscaling.limits.cpu"), ("quantity-invalid", "eks.autoscaling.limits.memory")], {**SCALED, "eks.autoscaling": {"instance_groups": ["work"], "limits": {"cpu": "1536", "memory": "5120Gi"}}}, id="limits that are no quantities"),
        pytest.param({**SCALED, "eks.autoscaling": {"instance_groups": ["work"], "limits": {"gpu": "8", "requests.cpu": "8", "zebras": "8"}}}, [("limit-key-unknown", "eks.autoscaling.limits.gpu"), ("limit-key-unknown", "eks.autoscaling.limits.requests.cpu"), ("limit-key-unknown", "eks.autoscaling.limits.zebras")], {**SCALED, "eks.autoscaling": {"instance_groups": ["work"], "limits": {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32", "nodes": "4"}}}, id="limits of what no node has"),
        pytest.param({**SCALED, "instance_groups.1.instance_count": 3}, [("autoscaled-count-set", "instance_groups[work].instance_count")], SCALED, id="count of an autoscaled group"),
        pytest.param({**SCALED, "instance_groups.1.instance_count": 3, "instance_groups.1.min_instance_count": 3}, [("autoscaled-minimum", "instance_groups[work].min_instance_count")], SCALED, id="minimum of an autoscaled group"),
        pytest.param({**SCALED, "instance_groups.1.spot": True}, [("autoscaled-setting", "instance_groups[work].spot")], SCALED, id="autoscaled spot"),
        pytest.param({**SCALED, "instance_groups.1.training_plan_arn": PLAN}, [("autoscaled-setting", "instance_groups[work].training_plan_arn")], SCALED, id="autoscaled training plan"),
        pytest.param({**SCALED, "instance_groups.1.on_start_deep_health_checks": ["instance_stress"]}, [("autoscaled-setting", "instance_groups[work].on_start_deep_health_checks")], SCALED, id="autoscaled health checks"),
        pytest.param({**SCALED, "node_provisioning_mode": "standard", "instance_groups.0.min_instance_count": 0}, [("continuous-provisioning-required", "eks.autoscaling")], SCALED, id="autoscaling under standard provisioning"),
        # Task governance and priorities
        pytest.param({"eks.task_governance": {"priority_classes": [{"name": "training", "weight": 101}]}}, [("value-out-of-range", "eks.task_governance.priority_classes[training].weight")], {"eks.task_governance": {"priority_classes": [{"name": "training", "weight": 100}]}}, id="weight"),
        pytest.param({"eks.task_governance": {"priority_classes": [{"name": f"k{n}", "weight": n} for n in range(11)]}}, [("priority-classes-too-many", "eks.task_governance.priority_classes")], {"eks.task_governance": {"priority_classes": [{"name": f"k{n}", "weight": n} for n in range(10)]}}, id="too many weights"),
        pytest.param({**NO_GOVERNANCE, "eks.task_governance": {"fair_share": False}}, [("task-governance-required", "eks.task_governance")], NO_GOVERNANCE, id="policy without task governance"),
        pytest.param({"eks.priority_classes": [{"name": "a", "value": 1}, {"name": "a", "value": 2}]}, [("priority-class-duplicated", "eks.priority_classes")], {"eks.priority_classes": [{"name": "a", "value": 1}]}, id="priority class twice"),
        # Teams
        pytest.param({"teams": [{**TEAM, "quota": {"ml.p5.48xlarge": 9}}]}, [("shares-above-cluster", "teams")], {"teams": [TEAM]}, id="shares"),
        pytest.param({**SCALED, "instance_groups.2": ALSO_FIXED, "teams": [{**TEAM, "quota": {"ml.p5.48xlarge": 70, "ml.g6.xlarge": 5}}]}, [("shares-above-cluster", "teams")], {**SCALED, "instance_groups.2": ALSO_FIXED, "teams": [{**TEAM, "quota": {"ml.p5.48xlarge": 70, "ml.g6.xlarge": 4}}]}, id="shares of a group with a fixed count, beside an autoscaled one"),
        pytest.param({**SCALED, "teams": [{**TEAM, "quota": {"ml.p5e.48xlarge": 1}}]}, [("instance-type-not-in-cluster", "teams[research].quota.ml.p5e.48xlarge")], {**SCALED, "teams": [{**TEAM, "quota": {"ml.p5.48xlarge": 1000}}]}, id="quota of a type that no group has, under autoscaling"),
        pytest.param({**SCALED, "instance_groups.2": {**ALSO_FIXED, "instance_type": "ml.p5.48xlarge"}, "teams": [{**TEAM, "quota": {"ml.p5.48xlarg": 70}}]}, [("instance-type-unknown", "teams[research].quota.ml.p5.48xlarg")], {**SCALED, "instance_groups.2": {**ALSO_FIXED, "instance_type": "ml.p5.48xlarge"}, "teams": [{**TEAM, "quota": {"ml.p5.48xlarge": 70}}]}, id="a type that a fixed group and an autoscaled one have"),
        pytest.param({"teams": [{**TEAM, "quota": {"ml.m5.xlarge": 2}, "default_vcpus": 7, "default_memory_gib": 23}]}, [("default-above-quota", "teams[research].default_vcpus"), ("default-above-quota", "teams[research].default_memory_gib")], {"teams": [{**TEAM, "quota": {"ml.m5.xlarge": 2}, "default_vcpus": 6, "default_memory_gib": 22}]}, id="defaults beyond the quota"),
        pytest.param({"teams": [{**TEAM, "hard": {"requests.ephemeral-storage": "500Mi"}}]}, [("quota-below-default-disk", "teams[research].hard.requests.ephemeral-storage")], {"teams": [{**TEAM, "hard": {"requests.ephemeral-storage": "1Gi"}}]}, id="less disk than a silent container requests"),
        pytest.param({**NO_GOVERNANCE, "teams": [{**TEAM, "patch_workloads": True, "fair_share_weight": 50}]}, [("task-governance-required", "teams[research].patch_workloads"), ("task-governance-required", "teams[research].fair_share_weight")], {"teams": [{**TEAM, "patch_workloads": True, "fair_share_weight": 50}]}, id="what only task governance knows"),
        pytest.param({"account": "444455556666", "teams": [{**TEAM, "pod_role_arn": ROLE}]}, [("pod-role-in-another-account", "teams[research].pod_role_arn")], {"account": "111122223333", "teams": [{**TEAM, "pod_role_arn": ROLE}]}, id="pod role of another account"),
        pytest.param({"teams": [{**TEAM, "quota": {"ml.p5.48xlarge": "8"}}]}, [("value-of-wrong-type", "teams[research].quota.ml.p5.48xlarge")], {"teams": [TEAM]}, id="quota in quotes"),
        pytest.param({"teams": [{"name": "research"}]}, [("quota-missing-with-task-governance", "teams[research].quota")], {**NO_GOVERNANCE, "teams": [TEAM]}, id="no quota"),
        pytest.param({**NO_GOVERNANCE, "teams": [{"name": "research"}]}, [("quota-missing", "teams[research].quota")], {**NO_GOVERNANCE, "teams": [TEAM]}, id="no quota without task governance"),
        pytest.param({**SCALED, **NO_GOVERNANCE, "teams": [{"name": "research"}]}, [("quota-missing-with-autoscaling", "teams[research].quota")], {**SCALED, **NO_GOVERNANCE, "teams": [TEAM]}, id="no quota under autoscaling"),
        pytest.param({**NO_GOVERNANCE, "teams": [{**TEAM, "namespace": "kube-system"}]}, [("namespace-reserved", "teams[research].namespace")], {**NO_GOVERNANCE, "teams": [{**TEAM, "namespace": "science"}]}, id="namespace kube-system"),
        pytest.param({"teams": [{**TEAM, "namespace": "science"}]}, [("namespace-of-task-governance", "teams[research].namespace")], {"teams": [{**TEAM, "namespace": "hyperpod-ns-research"}]}, id="namespace under task governance"),
        pytest.param({"eks.admin_role_arns": [ADMIN], "teams": [{**TEAM, "role_arns": [ADMIN]}]}, [("team-role-is-administrator", "teams[research].role_arns")], {"eks.admin_role_arns": [ADMIN], "teams": [TEAM]}, id="administrator in a team"),
        pytest.param({"teams": [{**TEAM, "members": []}]}, [("setting-unknown", "teams[research].members")], {"teams": [TEAM]}, id="unknown key of a team"),
    ],
)  # fmt: skip
def test_an_invalid_setting_has_its_findings_and_a_valid_one_has_no_error(
    bad: Changes, expected: Found, good: Changes
) -> None:
    assert validate(bad) == expected
    assert validate(good) == []


@pytest.mark.parametrize(
    ("setting", "value"), [("eks", {"dependencies_chart": "installed"}), ("teams", [TEAM])], ids=["eks", "teams"]
)
def test_under_slurm_nothing_of_eks_has_a_meaning(setting: str, value: object) -> None:
    assert validate({setting: value}, SMALL) == [("orchestrator-not-eks", setting)]


def test_subnet_sizes_count_the_endpoints_of_eks_and_all_addresses_of_each_p5() -> None:
    # A /24 less 5 of AWS's own and 13 endpoints holds 2 nodes of 81 addresses; a /21 network is cut in eight of them.
    assert validate({"network.cidr": "10.0.0.0/21", "instance_groups.1.instance_count": 2}) == []
    assert validate({"network.cidr": "10.0.0.0/21", "instance_groups.1.instance_count": 3}) == [
        ("subnet-too-small", "network.cidr")
    ]


def test_a_chart_that_cannot_be_installed_yet_is_a_warning() -> None:
    assert validate_whole(LARGE) == [CHART_FIRST]
    assert validate_whole({**OLD_EKS, **LARGE}) == []


def test_a_type_of_few_addresses_is_a_warning() -> None:
    (_, said) = validate_whole({"instance_groups.0.instance_type": "ml.m5.2xlarge"})
    assert said == ("group-few-pod-addresses", "instance_groups[system]")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"eks.autoscaling": {"instance_groups": ["wrok"]}}, id="a group that is misspelt"),
        pytest.param({"eks.autoscaling": {"instance_groups": [5]}}, id="a group that is no name"),
        pytest.param({"eks.autoscaling": {"instance_groups": "work"}}, id="a group that is no list"),
        pytest.param({"eks.autoscaling": 5}, id="an autoscaler that is none"),
        pytest.param({"instance_groups.1.instance_count": -1}, id="a count"),
    ],
)
def test_a_mistake_of_autoscaling_blames_no_share_and_hides_no_type(changes: Changes) -> None:
    team = {**TEAM, "quota": {"ml.p5.48xlarge": 8, "ml.p5e.48xlarge": 1}}
    mistake, of_type = validate({"instance_groups.1.instance_count": 0, **changes, "teams": [team]})
    assert mistake[1].startswith(("eks.autoscaling", "instance_groups[work].instance_count"))
    assert of_type == ("instance-type-not-in-cluster", "teams[research].quota.ml.p5e.48xlarge")


def test_an_administrator_in_a_team_is_reported_beside_an_invalid_arn() -> None:
    changes = {"eks.admin_role_arns": ["admin", ADMIN], "teams": [{**TEAM, "role_arns": ["research", ADMIN]}]}
    assert validate(changes) == [
        ("value-malformed", "eks.admin_role_arns[0]"),
        ("team-role-is-administrator", "teams[research].role_arns"),
        ("value-malformed", "teams[research].role_arns[0]"),
    ]


@pytest.mark.parametrize("mode", ["extended", "bootstrap", "customer_managed", None])
def test_under_eks_only_oncreate_is_documented(mode: str | None) -> None:
    settings = {} if mode is None else {"lifecycle": {"mode": mode}}
    refused = [("lifecycle-mode-under-eks", "lifecycle.mode")]
    assert validate(settings) == (refused if mode in ("extended", "bootstrap") else [])


@pytest.mark.parametrize(
    ("changes", "total", "there"),
    [
        ({"teams": [{**TEAM, "quota": {"ml.p5.48xlarge": 9}}]}, 9, 8),
        (
            {"teams": [{**TEAM, "quota": {"ml.p5.48xlarge": 5}}, {"name": "other", "quota": {"ml.p5.48xlarge": 6}}]},
            11,
            8,
        ),
        (
            {
                **SCALED,
                "instance_groups.2": ALSO_FIXED,
                "teams": [{**TEAM, "quota": {"ml.p5.48xlarge": 70, "ml.g6.xlarge": 5}}],
            },
            5,
            4,
        ),
    ],
    ids=["one team", "two teams", "a group with a fixed count, beside an autoscaled one"],
)
def test_shares_are_added_up_for_each_type(changes: Changes, total: int, there: int) -> None:
    text = yaml.safe_dump(changed(changes, EKS), sort_keys=False)
    (finding,) = [each for each in findings_of(text) if each.code == "shares-above-cluster"]
    assert f" {total} nodes" in finding.problem and finding.problem.endswith(f" {there}")
