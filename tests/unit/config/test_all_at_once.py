"""All mistakes of a file in one message: each once, in the order of the file, none hidden or invented by another."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cdk_hyperpod.errors import ConfigError, Finding, raise_errors
from cdk_hyperpod.loader import load_config
from helpers.findings import found
from helpers.validating import REMOVED, Changes, findings_of, validate

FULL_OF_MISTAKES = """\
name: -bad-
region: us-west-2
acount: 111122223333
network:
  availability_zones: [us-west-2c, us-east-1a]
  cidr: 10.0.0.0/8
instance_groups:
  - name: head
    instance_type: ml.m5.xlarge
    instance_count: 2
    node_type: controller
    partition: p5
  - name: p5
    node_type: worker
    instance_type: ml.p5.48xlrge
    instance_count: 4
    min_instance_count: 8
    min_instance_count: 9
  - instance_count: -1
    node_type: compute
    threads_per_core: two
storage:
  capacity_gib: 5000
  data_repositories: [{file_system_path: /a}, {file_system_path: /a/b}]
scale_down:
  instance_groups_to_delete: [p5]
  drain: {}
tags: {aws:x: y, Cost: 5}
"""

MISTAKES = [
    (1, "value-malformed", "name"),
    (3, "setting-misspelled", "acount"),
    (5, "zone-in-another-region", "network.availability_zones[1]"),
    (6, "vpc-size-not-supported", "network.cidr"),
    (10, "controller-count-not-one", "instance_groups[head].instance_count"),
    (12, "partition-without-jobs", "instance_groups[head].partition"),
    (14, "value-not-a-choice", "instance_groups[p5].node_type"),
    (15, "instance-type-unknown", "instance_groups[p5].instance_type"),
    (17, "setting-duplicated", "instance_groups[p5].min_instance_count"),
    (17, "minimum-above-count", "instance_groups[p5].min_instance_count"),
    (19, "setting-missing", "instance_groups[2].name"),
    (19, "instance-type-missing", "instance_groups[2]"),
    (19, "partition-missing", "instance_groups[2].partition"),
    (19, "value-out-of-range", "instance_groups[2].instance_count"),
    (21, "value-of-wrong-type", "instance_groups[2].threads_per_core"),
    (23, "capacity-not-supported", "storage.capacity_gib"),
    (24, "data-repositories-overlap", "storage.data_repositories[1].file_system_path"),
    (26, "group-kept-and-deleted", "scale_down.instance_groups_to_delete"),
    (27, "drain-without-agent", "scale_down.drain"),
    (28, "tag-key-invalid", "tags.aws:x"),
    (28, "value-of-wrong-type", "tags.Cost"),
]
"""Line, code and path."""


def test_a_file_full_of_mistakes_gets_them_all_in_its_own_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text(FULL_OF_MISTAKES)

    with pytest.raises(ConfigError) as caught:
        load_config("cluster.yaml")

    assert [(finding.line, finding.code, finding.path) for finding in caught.value.findings] == MISTAKES
    head, *lines = str(caught.value).split("\n")
    assert head == "cluster.yaml: 21 errors"
    assert lines[0].startswith("  line 1   name: must be ") and lines[0].endswith("[value-malformed]")
    assert lines[3].startswith(
        "  line 6   network.cidr: 10.0.0.0/8 is a /8, but a VPC of this library is a /16 to a /21; "
    ) and lines[3].endswith("[vpc-size-not-supported]")


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        pytest.param({"name": 5, "removal": "x", "instance_groups.1.spot": "x"}, ["name", "instance_groups[work].spot", "removal"], id="leaves beside each other"),
        pytest.param({"instance_groups.0.node_type": "boss"}, ["instance_groups[head].node_type"], id="a node type hides no controller, and invents none that is missed"),
        pytest.param({"instance_groups.0.node_type": REMOVED}, ["instance_groups[head].node_type"], id="a node type that is missing"),
        pytest.param({"instance_groups.0": "head"}, ["instance_groups[0]"], id="a group that may have been the controller"),
        pytest.param({"instance_groups.1.instance_type": 5}, ["instance_groups[work].instance_type"], id="a type: no other complaint that it is missing"),
        pytest.param({"instance_groups.1.instance_types": "ml.p5.48xlarge"}, ["instance_groups[work]", "instance_groups[work].instance_types"], id="types that are no list, beside a type"),
        pytest.param({"instance_groups.1.instance_count": "8", "instance_groups.1.min_instance_count": 9}, ["instance_groups[work].instance_count"], id="a count that the minimum cannot be compared with"),
        pytest.param({"region": "us-west-3", "instance_groups.1.instance_count": -1}, ["region", "instance_groups[work].instance_count"], id="a region: no zone is blamed for it"),
        pytest.param({"region": 5, "instance_groups.1.partition": REMOVED}, ["region", "instance_groups[work].partition"], id="a region that is no text"),
        pytest.param({"region": REMOVED, "removal": "x"}, ["region", "removal"], id="a region that is missing"),
        pytest.param({"network": 5, "storage.capacity_gib": 1}, ["network", "storage.capacity_gib"], id="a network"),
        pytest.param({"network.availability_zones": 5, "instance_groups.1.availability_zone": "us-west-2a"}, ["network.availability_zones"], id="zones: a group's zone is not blamed for it"),
        pytest.param({"network.availability_zones": [5], "instance_groups.1.availability_zone": "us-east-1a"}, ["network.availability_zones[0]", "instance_groups[work].availability_zone"], id="a zone hides no group's zone"),
        pytest.param({"network.cidr": 5, "instance_groups.1.instance_count": 6000}, ["network.cidr"], id="a range: there is no room to count in"),
        pytest.param({"instance_groups.1.availability_zone": "odd-az", "instance_groups.0.instance_count": 2}, ["instance_groups[head].instance_count", "instance_groups[work].availability_zone"], id="a group's zone"),
        pytest.param({"storage": {"capacity_gib": "x", "metadata_iops": 7, "mount_path": "x"}}, ["storage.capacity_gib", "storage.metadata_iops", "storage.mount_path"], id="a capacity hides nothing of the storage"),
        pytest.param({"storage": {"file_system_id": 5}}, ["storage.mount_name", "storage.file_system_id"], id="a file system's id: it is still an existing one"),
        pytest.param({"storage": {"capacity_gib": 4800, "efa": True, "throughput_mbps_per_tib": 300}}, ["storage.throughput_mbps_per_tib"], id="a throughput that a capacity cannot be compared with"),
        pytest.param({"instance_groups": 5, "storage.capacity_gib": 1}, ["instance_groups", "storage.capacity_gib"], id="groups"),
        pytest.param({"instance_groups.1.ebs_volumes": [5, {}]}, ["instance_groups[work].ebs_volumes[0]", "instance_groups[work].ebs_volumes[1].volume_size_gib"], id="a volume hides no other"),
        pytest.param({"scale_down": 5, "removal": 5}, ["scale_down", "removal"], id="a scale-down"),
        pytest.param({"tags": 5, "removal": 5}, ["tags", "removal"], id="tags"),
    ],
)  # fmt: skip
def test_a_wrong_leaf_hides_and_invents_nothing(changes: Changes, paths: list[str]) -> None:
    assert [path for _, path in validate(changes)] == paths


def test_a_group_that_names_a_zone_is_reported_although_another_has_a_scarce_type() -> None:
    changes = {"network": REMOVED, "instance_groups.0.availability_zone": "us-west-2a"}

    assert [path for _, path in validate(changes)] == ["instance_groups[head].availability_zone"]


def test_the_same_error_in_two_groups_of_one_name_is_reported_twice() -> None:
    group = {"name": "twin", "instance_type": "ml.m5.xlarge", "instance_count": 1, "node_type": "compute"}

    assert validate({"instance_groups.1": group, "instance_groups.2": group}) == [
        ("partition-missing", "instance_groups[1].partition"),
        ("partition-missing", "instance_groups[2].partition"),
        ("group-name-duplicated", "instance_groups[2].name"),
    ]  # fmt: skip


def test_an_error_behind_a_yaml_anchor_is_reported_for_each_use() -> None:
    text = yaml.safe_dump({"region": "us-west-2", "name": "a"}) + (
        "instance_groups:\n"
        "- &base {name: a, instance_type: ml.m5.xlarge, instance_count: x, node_type: controller}\n"
        "- {<<: *base, name: b, node_type: compute, partition: b}\n"
    )

    assert found(findings_of(text)) == [
        ("value-of-wrong-type", "instance_groups[a].instance_count"),
        ("value-of-wrong-type", "instance_groups[b].instance_count"),
    ]


def test_all_errors_of_a_hundred_groups_are_reported() -> None:
    group = {"instance_type": "ml.m5.xlarge", "instance_count": -1, "node_type": "compute", "partition": "p"}

    assert validate({f"instance_groups.{n}": {**group, "name": f"g{n}"} for n in range(2, 100)}) == [
        ("value-out-of-range", f"instance_groups[g{n}].instance_count") for n in range(2, 100)
    ]


def test_equal_findings_are_reported_once_and_warnings_are_not_errors() -> None:
    error = Finding(code="a-wrong", path="a", problem="is wrong", remedy="change it")
    warning = Finding(code="b-odd", path="b", problem="is odd", remedy="read on", level="warning")

    with pytest.raises(ConfigError) as caught:
        raise_errors([error, warning, error], "my.yaml")

    assert str(caught.value) == "my.yaml: 1 error\n  a: is wrong; change it [a-wrong]"
    assert raise_errors([warning]) == (warning,)
    assert (
        str(ConfigError([error, warning]))
        == "configuration: 2 errors\n  a: is wrong; change it [a-wrong]\n  b: is odd; read on [b-odd]"
    )
