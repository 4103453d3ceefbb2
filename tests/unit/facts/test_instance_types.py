"""The catalogue holds what EC2 and SageMaker say, and is what the tool makes from the locked packages."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any, Literal

import pytest

from cdk_hyperpod.facts.instance_types import InstanceType, catalogue, regions, suggestion
from tools import make_catalogue

P5 = InstanceType(
    name="ml.p5.48xlarge",
    vcpus=192,
    default_cores=96,
    threads_per_core=(1, 2),
    memory_gib=2048,
    architecture="x86_64",
    network_cards=32,
    efa_interfaces=32,
    nvme_disks=8,
    nvme_disk_gb=3800,
    accelerator_kind="gpu",
    accelerator_name="H100",
    accelerators=8,
    accelerator_memory_gib=80,
)
TRN1 = InstanceType(
    name="ml.trn1.32xlarge",
    vcpus=128,
    default_cores=64,
    threads_per_core=(1, 2),
    memory_gib=512,
    architecture="x86_64",
    network_cards=8,
    efa_interfaces=8,
    nvme_disks=4,
    nvme_disk_gb=1900,
    accelerator_kind="neuron",
    accelerator_name="Trainium",
    accelerators=16,
    accelerator_memory_gib=32,
    neuron_cores=32,
)
M5 = InstanceType(
    name="ml.m5.4xlarge",
    vcpus=16,
    default_cores=8,
    threads_per_core=(1, 2),
    memory_gib=64,
    architecture="x86_64",
    network_cards=1,
)


@pytest.mark.parametrize("expected", [P5, TRN1, M5], ids=lambda expected: expected.name)
def test_facts_of_a_type_are_those_that_aws_publishes(expected: InstanceType) -> None:
    assert catalogue()[expected.name] == expected


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        pytest.param("ml.p4d.24xlarge", {"accelerator_name": "A100", "network_cards": 4}, id="P4d"),
        pytest.param("ml.p5en.48xlarge", {"accelerator_memory_gib": 141, "efa_interfaces": 16}, id="P5en"),
        pytest.param("ml.p6-b300.48xlarge", {"network_cards": 17, "efa_interfaces": 16}, id="a card without EFA"),
        pytest.param("ml.p6e-gb200.36xlarge", {"accelerators": 4, "architecture": "arm64"}, id="unknown to moto"),
        pytest.param("ml.trn1n.32xlarge", {"efa_interfaces": 16, "neuron_cores": 32}, id="Trn1n"),
        pytest.param("ml.trn2.48xlarge", {"accelerator_memory_gib": 96, "neuron_cores": 128}, id="wrong in moto"),
        pytest.param("ml.g6.xlarge", {"has_efa": False, "is_accelerated": True, "nvme_disk_gb": 250}, id="no EFA"),
        pytest.param("ml.g5.xlarge", {"threads_per_core": None}, id="threads unknown"),
        pytest.param("ml.c5n.18xlarge", {"has_efa": True, "is_accelerated": False}, id="EFA without accelerator"),
        pytest.param("ml.c7g.4xlarge", {"architecture": "arm64", "threads_per_core": (1,)}, id="Graviton"),
        pytest.param("ml.c5n.large", {"memory_gib": 5.25}, id="memory that is no whole number"),
    ],
)
def test_facts_that_differ_from_the_usual(name: str, facts: dict[str, Any]) -> None:
    assert {fact: getattr(catalogue()[name], fact) for fact in facts} == facts


def test_every_type_that_hyperpod_accepts_is_there_and_no_other() -> None:
    assert list(catalogue()) == make_catalogue.cluster_instance_types()
    assert len(catalogue()) > 200


@pytest.mark.parametrize("instance_type", catalogue().values(), ids=lambda instance_type: instance_type.name)
def test_facts_agree_with_each_other(instance_type: InstanceType) -> None:
    assert instance_type.memory_gib > 0
    assert instance_type.network_cards >= max(1, instance_type.efa_interfaces)
    assert instance_type.vcpus in (instance_type.default_cores, 2 * instance_type.default_cores)
    if instance_type.threads_per_core is not None:
        assert instance_type.vcpus == instance_type.default_cores * max(instance_type.threads_per_core)
    assert instance_type.is_accelerated == (instance_type.accelerator_kind is not None)
    assert instance_type.is_accelerated == (instance_type.accelerator_name is not None)
    assert instance_type.is_accelerated == (instance_type.accelerator_memory_gib > 0)
    assert (instance_type.accelerator_kind == "neuron") == (instance_type.neuron_cores > 0)
    assert (instance_type.nvme_disks > 0) == (instance_type.nvme_disk_gb > 0)


@pytest.mark.parametrize(
    ("name", "orchestrator", "addresses"),
    [
        ("ml.p5.48xlarge", "slurm", 32),
        ("ml.p5.48xlarge", "eks", 81),
        ("ml.p5e.48xlarge", "eks", 81),
        ("ml.trn1.32xlarge", "slurm", 8),
        ("ml.trn1.32xlarge", "eks", 8),
        ("ml.m5.4xlarge", "slurm", 1),
    ],
)
def test_ip_addresses_of_a_node(name: str, orchestrator: Literal["slurm", "eks"], addresses: int) -> None:
    assert catalogue()[name].ip_addresses(orchestrator) == addresses


@pytest.mark.parametrize(
    ("name", "close"),
    [
        pytest.param("ml.p5.48xlarg", "ml.p5.48xlarge", id="a letter short"),
        pytest.param("p5.48xlarge", "ml.p5.48xlarge", id="EC2's name"),
        pytest.param("P5.48xlarge", "ml.p5.48xlarge", id="capitals"),
        pytest.param("c5.xl", "ml.c5.xlarge", id="short for it"),
        pytest.param("p3.2xlarge", "ml.p4d.24xlarge", id="a GPU, and no T3 that has one character else"),
        pytest.param("mlp5.48xlarge", "ml.p5.48xlarge", id="no dot"),
    ],
)
def test_a_wrong_name_gets_the_nearest_of_its_family(name: str, close: str) -> None:
    assert suggestion(name) == f"did you mean {close}?"


def test_a_name_that_nothing_comes_near_gets_examples() -> None:
    assert suggestion("x") == "use one such as ml.p5.48xlarge or ml.trn1.32xlarge"


def test_the_catalogue_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        catalogue()["ml.mine"] = P5  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        catalogue()["ml.p5.48xlarge"].vcpus = 1  # type: ignore[misc]
    assert catalogue() is catalogue()


def test_reading_the_catalogue_does_not_import_the_cdk() -> None:
    # The package's __init__ may import it; what is measured is the module itself.
    program = (
        "import sys, types, pathlib; package = types.ModuleType('cdk_hyperpod'); "
        "package.__path__ = [str(pathlib.Path(sys.argv[1]))]; sys.modules['cdk_hyperpod'] = package; "
        "import cdk_hyperpod.facts.instance_types; assert not {'aws_cdk', 'jsii', 'botocore'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program, str(make_catalogue.FACTS.parent)], check=True)


def test_instance_types_file_is_in_the_form_that_the_tool_writes() -> None:
    content = make_catalogue.TYPES_FILE.read_text("utf-8")
    assert make_catalogue.render_types(json.loads(content)["instance_types"]) == content


def test_facts_that_moto_lacks_or_has_wrong_are_in_the_file() -> None:
    types = json.loads(make_catalogue.TYPES_FILE.read_text("utf-8"))["instance_types"]
    for name, facts in ({**make_catalogue.MISSING, **make_catalogue.CORRECTED}).items():
        assert types[name].items() >= facts.items()


def test_regions_file_is_what_the_tool_makes_from_the_locked_packages() -> None:
    made = make_catalogue.render_regions(make_catalogue.cluster_regions())
    assert make_catalogue.REGIONS_FILE.read_text("utf-8") == made


def test_a_region_is_available_unavailable_or_unknown() -> None:
    assert {"us-east-1", "us-west-2", "eu-central-1", "ap-northeast-1"} <= regions().available
    assert {"af-south-1", "eu-west-3", "cn-north-1", "us-gov-west-1"} <= regions().unavailable
    # cfn-lint ships us-east-1's list under the names of the isolated and sovereign regions.
    assert {"us-iso-east-1", "eusc-de-east-1"} <= regions().unknown
    assert regions().known >= {"us-east-1", "eu-west-3", "us-iso-east-1"}
    assert "us-west-9" not in regions().known
    assert "sam" not in regions().known
    assert len(regions().known) == sum(map(len, (regions().available, regions().unavailable, regions().unknown)))


DESCRIBED: dict[str, Any] = {
    "VCpuInfo": {"DefaultVCpus": 8, "DefaultCores": 4, "ValidThreadsPerCore": [1, 2]},
    "MemoryInfo": {"SizeInMiB": 22888},
    "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
    "NetworkInfo": {"MaximumNetworkCards": 1, "EfaSupported": False},
    "InstanceStorageSupported": False,
}


def test_the_tool_rounds_memory_and_leaves_out_what_a_type_does_not_have() -> None:
    assert make_catalogue.facts_of(DESCRIBED) == {
        "vcpus": 8,
        "default_cores": 4,
        "threads_per_core": [1, 2],
        "memory_gib": 22.35,
        "architecture": "x86_64",
        "network_cards": 1,
    }


def test_the_tool_refuses_an_instance_type_without_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_catalogue, "cluster_instance_types", lambda: ["ml.m5.large", "ml.new.large"])
    with pytest.raises(
        SystemExit, match=r"^ml\.new\.large: no facts are known\. Add them to MISSING in .*make_catalogue"
    ):
        make_catalogue.instance_types({"m5.large": DESCRIBED})


def test_the_tool_says_when_its_own_table_is_no_longer_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_catalogue, "cluster_instance_types", lambda: ["ml.p6e-gb200.36xlarge"])
    with pytest.raises(SystemExit, match=r"has ml\.p6e-gb200\.36xlarge now. Remove them from MISSING"):
        make_catalogue.instance_types({"p6e-gb200.36xlarge": DESCRIBED})
