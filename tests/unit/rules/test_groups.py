"""Rules of instance groups: each refuses one thing, in full words, and is silent about what lies next to it."""

from __future__ import annotations

import pytest

from cdk_hyperpod.facts.instance_types import catalogue
from helpers.findings import Found
from helpers.validating import REMOVED, Changes, validate

PLAN = "arn:aws:sagemaker:us-west-2:111122223333:training-plan/large"
KEY = "arn:aws:kms:us-west-2:111122223333:key/0a1b"
CPU = {"name": "cpu", "instance_type": "ml.c5.xlarge", "instance_count": 1, "node_type": "compute", "partition": "cpu"}
LOGIN = {"name": "login", "instance_type": "ml.m5.xlarge", "instance_count": 1, "node_type": "login"}
TYPES = [*catalogue()]
MODE = "node_provisioning_mode"


@pytest.mark.parametrize(
    ("bad", "expected", "good"),
    [
        # Names
        pytest.param({"name": "-a"}, [("value-malformed", "name")], {"name": "a-1"}, id="cluster name: hyphen first"),
        pytest.param({"name": "a" * 64}, [("value-malformed", "name")], {"name": "a" * 63}, id="cluster name: length"),
        pytest.param({"name": "-" * 63}, [("value-malformed", "name")], {"name": f"a{'-' * 61}a"}, id="cluster name: only hyphens"),
        pytest.param({"instance_groups.1.name": "p_5"}, [("value-malformed", "instance_groups[p_5].name")], {"instance_groups.1.name": "p-5"}, id="group name"),
        pytest.param({"instance_groups.1.partition": "p 5"}, [("value-malformed", "instance_groups[work].partition")], {"instance_groups.1.partition": "p--5"}, id="partition name"),
        pytest.param({"instance_groups.1.partition": "DEFAULT"}, [("partition-default", "instance_groups[work].partition")], {"instance_groups.1.partition": "DEFAULT-2"}, id="partition of Slurm's own"),
        pytest.param({"instance_groups.1.partition": "dev"}, [("partition-dev", "instance_groups[work].partition")], {"instance_groups.1.partition": "dev-2"}, id="partition of HyperPod's own"),
        pytest.param({"account": "1111"}, [("value-malformed", "account")], {"account": "111122223333"}, id="account"),
        pytest.param(
            {"instance_groups.1.name": "head"},
            [("group-name-duplicated", "instance_groups[1].name")],
            {"instance_groups.1.name": "Head"},
            id="two groups of one name",
        ),
        # How many groups
        pytest.param({"instance_groups": []}, [("groups-wrong-number", "instance_groups")], {"instance_groups.1": REMOVED}, id="no group"),
        pytest.param(
            {f"instance_groups.{n}": {**CPU, "name": f"cpu-{n}"} for n in range(2, 101)},
            [("groups-wrong-number", "instance_groups")],
            {f"instance_groups.{n}": {**CPU, "name": f"cpu-{n}"} for n in range(2, 100)},
            id="too many groups",
        ),
        # Instance types
        pytest.param({"instance_groups.1.instance_type": REMOVED}, [("instance-type-missing", "instance_groups[work]")], {"instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": ["ml.g5.xlarge"]}, id="no type"),
        pytest.param({"instance_groups.1.instance_types": ["ml.g5.xlarge"]}, [("instance-type-and-types", "instance_groups[work]")], {"instance_groups.1.instance_types": []}, id="both type settings"),
        pytest.param({"instance_groups.1.instance_type": "ml.p3.2xlarge"}, [("instance-type-unknown", "instance_groups[work].instance_type")], {"instance_groups.1.instance_type": "ml.p4d.24xlarge"}, id="a type that HyperPod lacks"),
        pytest.param({"instance_groups.1.instance_type": "big"}, [("instance-type-unknown", "instance_groups[work].instance_type")], {}, id="a type like no other"),
        pytest.param(
            {"instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": ["p5.48xlarge", "ml.g5.xlarge", "ml.g5.xlarge"]},
            [
                ("value-duplicated", "instance_groups[work].instance_types"),
                ("instance-type-unknown", "instance_groups[work].instance_types"),
            ],
            {"instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": ["ml.p5.48xlarge", "ml.g5.xlarge"]},
            id="several types: one unknown, one twice",
        ),
        pytest.param(
            {"instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": [5, "p5.48xlarge"]},
            [
                ("instance-type-unknown", "instance_groups[work].instance_types"),
                ("value-of-wrong-type", "instance_groups[work].instance_types[0]"),
            ],
            {},
            id="several types: one is no text and hides no other",
        ),
        pytest.param(
            {"instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": TYPES[:21]},
            [("instance-types-too-many", "instance_groups[work].instance_types")],
            {"instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": TYPES[:20]},
            id="several types: too many",
        ),
        # Counts
        pytest.param({"instance_groups.1.instance_count": 6759}, [("value-out-of-range", "instance_groups[work].instance_count")], {"instance_groups.1.instance_count": 200}, id="count: too high"),
        pytest.param({"instance_groups.1.instance_count": -2}, [("value-out-of-range", "instance_groups[work].instance_count")], {"instance_groups.1.instance_count": 0}, id="count: below 0 is said once"),
        pytest.param({"instance_groups.1.min_instance_count": 3}, [("minimum-above-count", "instance_groups[work].min_instance_count")], {"instance_groups.1.min_instance_count": 2}, id="minimum above count"),
        pytest.param({"instance_groups.1.min_instance_count": 9999}, [("value-out-of-range", "instance_groups[work].min_instance_count")], {"instance_groups.1.min_instance_count": 0}, id="minimum out of range is said once"),
        # What continuous provisioning has alone
        pytest.param({MODE: "standard", "instance_groups.1.min_instance_count": 1}, [("continuous-provisioning-required", "instance_groups[work].min_instance_count")], {MODE: "standard", "instance_groups.1.min_instance_count": 0}, id="minimum under standard provisioning"),
        pytest.param({MODE: "standard", "instance_groups.1.spot": True}, [("continuous-provisioning-required", "instance_groups[work].spot")], {MODE: "standard", "instance_groups.1.spot": False}, id="spot under standard provisioning"),
        pytest.param(
            {MODE: "standard", "instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": ["ml.g5.xlarge"]},
            [("continuous-provisioning-required", "instance_groups[work].instance_types")],
            {"instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": ["ml.g5.xlarge"]},
            id="several types under standard provisioning",
        ),
        pytest.param({MODE: "standard", "instance_groups.1.ebs_volumes": [{"root_volume": True}]}, [("continuous-provisioning-required", "instance_groups[work].ebs_volumes[0].root_volume")], {MODE: "standard", "instance_groups.1.ebs_volumes": [{"volume_size_gib": 500}]}, id="root volume's key under standard provisioning"),
        pytest.param({MODE: "standard", "instance_groups.1.ebs_volumes": [{"volume_size_gib": 500, "volume_kms_key_arn": KEY}]}, [("continuous-provisioning-required", "instance_groups[work].ebs_volumes[0].volume_kms_key_arn")], {"instance_groups.1.ebs_volumes": [{"volume_size_gib": 500, "volume_kms_key_arn": KEY}]}, id="a volume's key under standard provisioning"),
        pytest.param({MODE: "standard", "encrypt_root_volumes": True}, [("continuous-provisioning-required", "encrypt_root_volumes")], {MODE: "standard", "encrypt_root_volumes": False}, id="encrypted root volumes under standard provisioning"),
        pytest.param({MODE: "sometimes"}, [("value-not-a-choice", "node_provisioning_mode")], {MODE: "standard"}, id="provisioning mode"),
        # Threads
        pytest.param({"instance_groups.1.threads_per_core": 3}, [("value-out-of-range", "instance_groups[work].threads_per_core")], {"instance_groups.1.threads_per_core": 2}, id="threads: out of range"),
        pytest.param({"instance_groups.2": {**CPU, "instance_type": "ml.c6g.xlarge", "threads_per_core": 2}}, [("threads-not-supported", "instance_groups[cpu].threads_per_core")], {"instance_groups.2": {**CPU, "instance_type": "ml.c6g.xlarge", "threads_per_core": 1}}, id="threads that the type lacks"),
        # Volumes
        pytest.param({"instance_groups.1.ebs_volumes": [{}]}, [("volume-without-size", "instance_groups[work].ebs_volumes[0].volume_size_gib")], {"instance_groups.1.ebs_volumes": [{"volume_size_gib": 16384}]}, id="volume without size"),
        pytest.param({"instance_groups.1.ebs_volumes": [{"volume_size_gib": 16385}]}, [("value-out-of-range", "instance_groups[work].ebs_volumes[0].volume_size_gib")], {"instance_groups.1.ebs_volumes": [{"volume_size_gib": 1}]}, id="volume too large"),
        pytest.param({"instance_groups.1.ebs_volumes": [{"root_volume": True, "volume_size_gib": 9}]}, [("root-volume-with-size", "instance_groups[work].ebs_volumes[0].volume_size_gib")], {"instance_groups.1.ebs_volumes": [{"root_volume": True}]}, id="root volume with size"),
        pytest.param(
            {"instance_groups.1.ebs_volumes": [{"root_volume": True}, {"root_volume": True}, {"volume_size_gib": 9}, {"volume_size_gib": 9}]},
            [
                ("volumes-of-one-kind", "instance_groups[work].ebs_volumes"),
                ("volumes-of-one-kind", "instance_groups[work].ebs_volumes"),
            ],
            {"instance_groups.1.ebs_volumes": [{"root_volume": True}, {"volume_size_gib": 9}]},
            id="two volumes of a kind",
        ),
        # Keys and plans
        pytest.param({"instance_groups.1.ebs_volumes": [{"volume_size_gib": 9, "volume_kms_key_arn": "alias/mine"}]}, [("value-malformed", "instance_groups[work].ebs_volumes[0].volume_kms_key_arn")], {"instance_groups.1.ebs_volumes": [{"volume_size_gib": 9, "volume_kms_key_arn": KEY}]}, id="key that is no ARN"),
        pytest.param({"instance_groups.1.ebs_volumes": [{"volume_size_gib": 9, "volume_kms_key_arn": KEY.replace("us-west-2", "us-east-1")}]}, [("arn-in-another-region", "instance_groups[work].ebs_volumes[0].volume_kms_key_arn")], {"instance_groups.1.ebs_volumes": [{"root_volume": True, "volume_kms_key_arn": KEY}]}, id="key of another region"),
        pytest.param({"instance_groups.1.training_plan_arn": "large"}, [("value-malformed", "instance_groups[work].training_plan_arn")], {"instance_groups.1.training_plan_arn": PLAN}, id="plan that is no ARN"),
        pytest.param({"instance_groups.1.training_plan_arn": PLAN.replace("us-west-2", "us-east-1")}, [("arn-in-another-region", "instance_groups[work].training_plan_arn")], {"instance_groups.1.training_plan_arn": PLAN}, id="plan of another region"),
        pytest.param({"instance_groups.1.training_plan_arn": PLAN, "instance_groups.1.spot": True}, [("spot-with-training-plan", "instance_groups[work].spot")], {"instance_groups.1.spot": True}, id="spot with a plan"),
        # Health checks
        pytest.param({"instance_groups.1.on_start_deep_health_checks": ["instance_stress", "instance_stress"]}, [("value-duplicated", "instance_groups[work].on_start_deep_health_checks")], {"instance_groups.1.on_start_deep_health_checks": ["instance_stress", "instance_connectivity"]}, id="health check twice"),
        pytest.param({"instance_groups.1.on_start_deep_health_checks": ["stress"]}, [("value-misspelled", "instance_groups[work].on_start_deep_health_checks[0]")], {"instance_groups.1.on_start_deep_health_checks": []}, id="health check that does not exist"),
        # Slurm
        pytest.param({"instance_groups.1.node_type": REMOVED}, [("node-type-missing", "instance_groups[work].node_type")], {}, id="no node type"),
        pytest.param({"instance_groups.1.partition": REMOVED}, [("partition-missing", "instance_groups[work].partition")], {"instance_groups.2": {**CPU, "partition": "p5"}}, id="compute without partition"),
        pytest.param({"instance_groups.0.partition": "p5"}, [("partition-without-jobs", "instance_groups[head].partition")], {}, id="controller with partition"),
        pytest.param({"instance_groups.2": {**LOGIN, "partition": "p5"}}, [("partition-without-jobs", "instance_groups[login].partition")], {"instance_groups.2": LOGIN}, id="login with partition"),
        pytest.param({"instance_groups.1.labels": {"a": "b"}}, [("setting-for-eks-only", "instance_groups[work].labels")], {"instance_groups.1.labels": {}}, id="labels on Slurm"),
        pytest.param({"instance_groups.1.taints": [{"key": "a", "effect": "no_schedule"}]}, [("setting-for-eks-only", "instance_groups[work].taints")], {"instance_groups.1.taints": []}, id="taints on Slurm"),
        pytest.param({"instance_groups.0.spot": True}, [("controller-on-spot", "instance_groups[head].spot")], {"instance_groups.2": {**LOGIN, "spot": True}}, id="spot controller"),
        pytest.param({"instance_groups.0": REMOVED}, [("controller-missing", "instance_groups")], {}, id="no controller"),
        pytest.param({"instance_groups.2": {**LOGIN, "node_type": "controller"}}, [("node-type-duplicated", "instance_groups")], {"instance_groups.2": LOGIN}, id="two controllers"),
        pytest.param({"instance_groups.2": LOGIN, "instance_groups.3": {**LOGIN, "name": "login-2"}}, [("node-type-duplicated", "instance_groups")], {"instance_groups.2": {**LOGIN, "instance_count": 2}}, id="two login groups"),
        pytest.param({"instance_groups.0.instance_count": 2}, [("controller-count-not-one", "instance_groups[head].instance_count")], {MODE: "standard", "instance_groups.0.instance_count": 2}, id="two controller nodes under continuous provisioning"),
        pytest.param({MODE: "standard", "instance_groups.0.instance_count": 0}, [("controller-count-not-one", "instance_groups[head].instance_count")], {MODE: "standard"}, id="no controller node"),
        # The cluster as a whole
        pytest.param({"tiered_storage": {"instance_memory_allocation_percentage": 19}}, [("value-out-of-range", "tiered_storage.instance_memory_allocation_percentage")], {}, id="tiered storage"),
        # Tags
        pytest.param({"tags": {f"k{n}": "v" for n in range(41)}}, [("tags-too-many", "tags")], {"tags": {f"k{n}": "v" for n in range(40)}}, id="too many tags"),
        pytest.param({"tags": {"AWS:x": "v"}}, [("tag-key-invalid", "tags.AWS:x")], {"tags": {"awsome": "v"}}, id="tag of AWS's own"),
        pytest.param({"tags": {"cdk-hyperpod:stack": "v"}}, [("tag-key-invalid", "tags.cdk-hyperpod:stack")], {"tags": {"hyperpod:stack": "v"}}, id="tag of the library's own"),
        pytest.param({"tags": {"": "v"}}, [("tag-key-invalid", "tags.")], {"tags": {"a": ""}}, id="tag without key"),
        pytest.param({"tags": {"a": "v" * 257}}, [("tag-value-invalid", "tags.a")], {"tags": {"a": "v" * 256}}, id="tag with a long value"),
        pytest.param({"tags": {"a": "x, y"}}, [("tag-value-invalid", "tags.a")], {"tags": {"a": "Zoë: x/y@z"}}, id="tag with a comma"),
        pytest.param({"tags": {"Team": "a", "team": "b"}}, [("tags-differ-in-case-only", "tags")], {"tags": {"Team": "a", "teams": "b"}}, id="tags that IAM takes for one"),
    ],
)  # fmt: skip
def test_an_invalid_setting_has_its_findings_and_a_valid_one_has_no_error(
    bad: Changes, expected: Found, good: Changes
) -> None:
    assert validate(bad) == expected
    assert validate(good) == []


@pytest.mark.parametrize("settings", [{}, {"instance_memory_allocation_percentage": 20}], ids=["default", "20 percent"])
def test_tiered_storage_under_slurm_is_a_warning(settings: dict[str, int]) -> None:
    assert validate({"tiered_storage": settings}) == [("tiered-storage-under-slurm", "tiered_storage")]
