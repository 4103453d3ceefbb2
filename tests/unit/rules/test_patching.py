"""Rules of images and patches: each refuses one thing, and is silent about what lies next to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from helpers.findings import Found, found
from helpers.validating import SMALL, Changes, changed, findings_of

EKS: Mapping[str, Any] = yaml.safe_load("""
name: small
region: us-west-2
orchestrator: eks
network:
  availability_zones: [us-west-2c, us-west-2a]
  vpc_id: vpc-0123456789abcdef0
  subnets:
  - {subnet_id: subnet-0123456789abcdef0, availability_zone: us-west-2c}
  - {subnet_id: subnet-0123456789abcdef1, availability_zone: us-west-2a}
  endpoint_security_group_id: sg-0123456789abcdef0
eks:
  dependencies_chart: installed
  existing_cluster: {name: old, security_group_id: sg-0123456789abcdef0}
instance_groups:
- {name: system, instance_type: ml.m5.4xlarge, instance_count: 2, min_instance_count: 1}
- {name: work, instance_type: ml.p5.48xlarge, instance_count: 8}
""")
EKS["network"].pop("availability_zones")
CRON = {"schedule": "cron(30 12 15 * ? *)"}
AT = "instance_groups[work]"


def validate(base: Mapping[str, Any], settings: Mapping[str, object]) -> Found:
    changes: Changes = {f"instance_groups.1.{name}": value for name, value in settings.items()}
    return found(findings_of(yaml.safe_dump(changed(changes, base), sort_keys=False)))


@pytest.mark.parametrize(
    ("bad", "expected", "good"),
    [
        pytest.param({"image_release_version": "1.3.0"}, [("setting-for-eks-only", f"{AT}.image_release_version")], {"image_id": "ami-0123456789abcdef0"}, id="release"),
        pytest.param({"auto_patch": "when_idle"}, [("setting-for-eks-only", f"{AT}.auto_patch")], {"image_id": "default"}, id="automatic patching"),
        pytest.param({"scheduled_update": CRON}, [("scheduled-update-under-slurm", f"{AT}.scheduled_update")], {"scheduled_update": "none"}, id="schedule"),
        pytest.param({"rolling": {"batch_nodes": 2}}, [("setting-for-eks-only", f"{AT}.rolling")], {"auto_patch": "none"}, id="batches"),
        pytest.param({"scheduled_update": CRON, "rolling": {"batch_nodes": 2}}, [("setting-for-eks-only", f"{AT}.rolling"), ("scheduled-update-under-slurm", f"{AT}.scheduled_update")], {}, id="schedule in batches"),
    ],
)  # fmt: skip
def test_patch_settings_under_slurm_are_validated(
    bad: Mapping[str, object], expected: Found, good: Mapping[str, object]
) -> None:
    assert sorted(validate(SMALL, bad)) == sorted(expected)
    assert validate(SMALL, good) == []


@pytest.mark.parametrize(
    ("bad", "expected", "good"),
    [
        pytest.param({"image_id": "default", "image_release_version": "1.3.0"}, [("image-and-release", AT)], {"image_release_version": "1.3.0"}, id="both image settings"),
        pytest.param({"image_id": "latest"}, [("value-malformed", f"{AT}.image_id")], {"image_id": "ami-01234567"}, id="an image that is no AMI"),
        pytest.param({"image_id": "ami-0123456789abcdef01"}, [("value-malformed", f"{AT}.image_id")], {"image_id": "ami-0123456789abcdef0"}, id="an AMI that is too long"),
        pytest.param({"image_release_version": "1.3"}, [("value-malformed", f"{AT}.image_release_version")], {"image_release_version": "1.3.0"}, id="a release without its patch"),
        pytest.param({"image_release_version": "v1.3.0"}, [("value-malformed", f"{AT}.image_release_version")], {"image_release_version": "10.0.12"}, id="a release of another form"),
        pytest.param({"auto_patch": "drain_first"}, [("value-not-a-choice", f"{AT}.auto_patch")], {"auto_patch": "when_all_idle"}, id="a strategy that CloudFormation lacks"),
        pytest.param({"scheduled_update": CRON}, [("scheduled-update-without-rolling", f"{AT}.scheduled_update")], {"scheduled_update": CRON, "rolling": {"batch_nodes": 1}}, id="a schedule without batches"),
        pytest.param({"scheduled_update": "never"}, [("value-not-settings", f"{AT}.scheduled_update")], {"scheduled_update": "none"}, id="a word that is not none"),
        pytest.param({"scheduled_update": ["none"]}, [("value-not-settings", f"{AT}.scheduled_update")], {"auto_patch": "none"}, id="a list"),
        pytest.param({"scheduled_update": {"schedule": "cron(30 12 15 * ?)"}, "rolling": {"batch_nodes": 1}}, [("value-malformed", f"{AT}.scheduled_update.schedule")], {}, id="cron with five fields"),
        pytest.param({"scheduled_update": {"schedule": "cron(0 3 * * ? *)"}, "rolling": {"batch_nodes": 1}}, [("value-malformed", f"{AT}.scheduled_update.schedule")], {"scheduled_update": {"schedule": "cron(0 3 ? * 1#1 *)"}, "rolling": {"batch_nodes": 1}}, id="cron every day, which CloudFormation refuses"),
        pytest.param({"scheduled_update": {"schedule": "rate(1 day)"}, "rolling": {"batch_nodes": 1}}, [("value-malformed", f"{AT}.scheduled_update.schedule")], {}, id="rate"),
        pytest.param({"rolling": {}}, [("rolling-without-batch", f"{AT}.rolling")], {"rolling": {"batch_nodes": 8}}, id="no batch"),
        pytest.param({"rolling": {"batch_nodes": 2, "batch_percent": 50}}, [("rolling-batch-twice", f"{AT}.rolling")], {"rolling": {"batch_percent": 50}}, id="two sizes"),
        pytest.param({"rolling": {"batch_nodes": 0}}, [("value-out-of-range", f"{AT}.rolling.batch_nodes")], {"rolling": {"batch_nodes": 1}}, id="batches of nothing"),
        pytest.param({"rolling": {"batch_percent": 12}}, [("rolling-percent-of-nothing", f"{AT}.rolling.batch_percent")], {"rolling": {"batch_percent": 13}}, id="less than one node"),
        pytest.param({"rolling": {"batch_percent": 100}, "instance_count": 0}, [("rolling-percent-of-nothing", f"{AT}.rolling.batch_percent")], {"rolling": {"batch_nodes": 2}, "instance_count": 0}, id="percent of an empty group"),
        pytest.param({"rolling": {"batch_percent": 101}}, [("value-out-of-range", f"{AT}.rolling.batch_percent")], {"rolling": {"batch_percent": 100}}, id="more than all"),
        pytest.param({"rolling": {"batch_nodes": 1, "wait_seconds": 3601}}, [("value-out-of-range", f"{AT}.rolling.wait_seconds")], {"rolling": {"batch_nodes": 1, "wait_seconds": 0}}, id="a wait above an hour"),
        pytest.param({"rolling": {"batch_nodes": 1, "rollback_alarms": [f"a{n}" for n in range(11)]}}, [("rollback-alarms-too-many", f"{AT}.rolling.rollback_alarms")], {"rolling": {"batch_nodes": 1, "rollback_alarms": [f"a{n}" for n in range(10)]}}, id="11 alarms"),
        pytest.param({"rolling": {"batch_nodes": 1, "rollback_alarms": ["a", "a"]}}, [("value-duplicated", f"{AT}.rolling.rollback_alarms")], {"rolling": {"batch_nodes": 1, "rollback_alarms": ["a", "A b/c: d"]}}, id="an alarm twice"),
        pytest.param({"rolling": {"batch_nodes": 1, "rollback_alarms": ["a*", " ", "${aws:username}"]}}, [("value-malformed", f"{AT}.rolling.rollback_alarms[{n}]") for n in range(3)], {}, id="alarms that would widen a policy"),
    ],
)  # fmt: skip
def test_patch_settings_under_eks_are_validated(
    bad: Mapping[str, object], expected: Found, good: Mapping[str, object]
) -> None:
    assert sorted(validate(EKS, bad)) == sorted(expected)
    assert validate(EKS, good) == []
