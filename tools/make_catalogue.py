#!/usr/bin/env python3
"""Make constructs/cdk_hyperpod/facts/instance_types.json and regions.json.

The facts of the instance types come from EC2's DescribeInstanceTypes, as recorded by moto. Only this tool uses moto, so
it is not a dependency of the project. Install it into a temporary folder:

    .tools/bin/uv pip install --target /tmp/moto --no-deps moto==5.2.5
    .venv/bin/python tools/make_catalogue.py --moto /tmp/moto

`--moto` is not needed if moto can be imported, and `--regions-only` needs no moto. Run it after `make lock` has
installed a new botocore or cfn-lint: the tests compare the types and regions with the locked packages. The same input
gives the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import botocore.session  # type: ignore[import-untyped]

MOTO_VERSION = "5.2.5"
FACTS = Path(__file__).resolve().parents[1] / "constructs" / "cdk_hyperpod" / "facts"
TYPES_FILE = FACTS / "instance_types.json"
REGIONS_FILE = FACTS / "regions.json"

Facts = dict[str, Any]
"""The fields of `cdk_hyperpod.facts.instance_types.InstanceType` except its name.

Features that a type lacks are left out.
"""

MISSING: Mapping[str, Facts] = {
    # vCPU, memory, 4 x 185 GiB of GPU memory: https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html
    # 17 cards, of which all but the first take EFA: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html
    # 3 disks of 7.5 TB: https://docs.aws.amazon.com/eks/latest/userguide/ml-eks-nvidia-ultraserver.html
    # One thread per core: its two Grace CPUs have 72 cores each and no SMT, which makes the 144 vCPUs.
    "ml.p6e-gb200.36xlarge": {
        "vcpus": 144,
        "default_cores": 144,
        "threads_per_core": [1],
        "memory_gib": 960,
        "architecture": "arm64",
        "network_cards": 17,
        "efa_interfaces": 16,
        "nvme_disks": 3,
        "nvme_disk_gb": 7500,
        "accelerator_kind": "gpu",
        "accelerator_name": "GB200",
        "accelerators": 4,
        "accelerator_memory_gib": 185,
    },
}
"""Types that moto does not have."""

# EC2 reports 512 GiB for a Trainium2 chip; it has 96, and 16 of them the 1.5 TB that AWS states for trn2.48xlarge:
# https://awsdocs-neuron.readthedocs-hosted.com/en/latest/about-neuron/arch/neuron-hardware/trainium2.html
# https://aws.amazon.com/ec2/instance-types/trn2/
CORRECTED: Mapping[str, Facts] = {
    "ml.trn2.3xlarge": {"accelerator_memory_gib": 96},
    "ml.trn2.48xlarge": {"accelerator_memory_gib": 96},
}
"""Values that replace moto's."""


def cluster_instance_types() -> list[str]:
    """Every value of botocore's `ClusterInstanceType`, sorted."""
    model = botocore.session.get_session().get_service_model("sagemaker")
    return sorted(model.shape_for("ClusterInstanceType").enum)


def facts_of(described: Mapping[str, Any]) -> Facts:
    """The facts of one type, from an element of DescribeInstanceTypes.

    A missing key raises KeyError on purpose, except for keys that EC2 omits to mean "none", or does not publish.
    """
    cpu, network = described["VCpuInfo"], described["NetworkInfo"]
    (architecture,) = described["ProcessorInfo"]["SupportedArchitectures"]
    facts: Facts = {
        "vcpus": cpu["DefaultVCpus"],
        "default_cores": cpu["DefaultCores"],
        "threads_per_core": cpu.get("ValidThreadsPerCore"),
        "memory_gib": _gib(described["MemoryInfo"]["SizeInMiB"]),
        "architecture": architecture,
        "network_cards": network["MaximumNetworkCards"],
    }
    if network["EfaSupported"]:
        facts["efa_interfaces"] = network["EfaInfo"]["MaximumEfaInterfaces"]
    if described["InstanceStorageSupported"]:
        (disk,) = described["InstanceStorageInfo"]["Disks"]
        facts |= {"nvme_disks": disk["Count"], "nvme_disk_gb": disk["SizeInGB"]}
    if "GpuInfo" in described:
        (gpu,) = described["GpuInfo"]["Gpus"]
        facts |= _accelerators("gpu", gpu)
    if "NeuronInfo" in described:
        (chip,) = described["NeuronInfo"]["NeuronDevices"]
        facts |= _accelerators("neuron", chip) | {"neuron_cores": chip["Count"] * chip["CoreInfo"]["Count"]}
    return facts


def instance_types(described: Mapping[str, Mapping[str, Any]]) -> dict[str, Facts]:
    """The catalogue: HyperPod's types in the order of their names, from moto's `instance_types.json.gz`."""
    names = cluster_instance_types()
    known = {name: facts_of(described[ec2]) for name in names if (ec2 := name.removeprefix("ml.")) in described}
    if needless := sorted(known.keys() & MISSING.keys()):
        raise SystemExit(f"moto {MOTO_VERSION} has {', '.join(needless)} now. Remove them from MISSING in {__file__}")
    if unknown := sorted(set(names) - known.keys() - MISSING.keys()):
        raise SystemExit(
            f"{', '.join(unknown)}: no facts are known. Add them to MISSING in {__file__}, with their sources"
        )
    return {name: known.get(name, MISSING.get(name, {})) | CORRECTED.get(name, {}) for name in names}


def cluster_regions() -> dict[str, list[str]]:
    """Every region of botocore and cfn-lint, and whether it has `AWS::SageMaker::Cluster`."""
    import cfnlint  # type: ignore[import-untyped]

    providers = Path(cfnlint.__file__).parent / "data" / "schemas" / "providers"
    # sam.json is the list of AWS::Serverless types, not a region.
    lists = {path.stem: json.loads(path.read_text("utf-8")) for path in providers.glob("*-*-*.json")}
    # cfn-lint has no list for the isolated and sovereign partitions, and ships a copy of us-east-1's instead.
    lists = {region: types for region, types in lists.items() if region == "us-east-1" or types != lists["us-east-1"]}
    session = botocore.session.get_session()
    known = {
        region
        for partition in session.get_available_partitions()
        for region in session.get_available_regions("ec2", partition_name=partition)
    }
    available = {region for region, types in lists.items() if "AWS::SageMaker::Cluster" in types}
    return {
        "available": sorted(available),
        "unavailable": sorted(lists.keys() - available),
        "unknown": sorted(known - lists.keys()),
    }


def render_types(types: Mapping[str, Facts]) -> str:
    """instance_types.json: one line for each type, so that a diff shows which types have changed."""
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(types[name])}" for name in sorted(types))
    about = f"Made by tools/make_catalogue.py from botocore and moto {MOTO_VERSION}; do not edit. null: unknown."
    return f'{{\n  "about": {json.dumps(about)},\n  "instance_types": {{\n{lines}\n  }}\n}}\n'


def render_regions(regions: Mapping[str, list[str]]) -> str:
    """regions.json."""
    about = "Made by tools/make_catalogue.py from cfn-lint and botocore; do not edit."
    return json.dumps({"about": about, **regions}, indent=2) + "\n"


def _accelerators(kind: str, described: Mapping[str, Any]) -> Facts:
    return {
        "accelerator_kind": kind,
        "accelerator_name": described["Name"],
        "accelerators": described["Count"],
        "accelerator_memory_gib": _gib(described["MemoryInfo"]["SizeInMiB"]),
    }


def _gib(mib: int) -> float | int:
    return mib // 1024 if mib % 1024 == 0 else round(mib / 1024, 2)


def _described_types(folder: Path | None) -> dict[str, Any]:
    """moto's record of DescribeInstanceTypes, by EC2's name of the type."""
    if folder is None:
        spec = importlib.util.find_spec("moto")
        if spec is None or spec.origin is None:
            raise SystemExit(
                "moto cannot be imported. Install it into a folder, and pass the folder with --moto (see --help)"
            )
        folder = Path(spec.origin).parents[1]
    if not (folder / f"moto-{MOTO_VERSION}.dist-info").is_dir():
        raise SystemExit(
            f"{folder} does not contain moto {MOTO_VERSION}. Another version may have other facts (see --help)"
        )
    data = (folder / "moto" / "ec2" / "resources" / "instance_types.json.gz").read_bytes()
    types: dict[str, Any] = json.loads(gzip.decompress(data))
    return types


def main(arguments: list[str]) -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--moto", type=Path, metavar="FOLDER", help=f"the folder where moto {MOTO_VERSION} is installed"
    )
    parser.add_argument("--regions-only", action="store_true", help="do not write instance_types.json")
    options = parser.parse_args(arguments)
    if not options.regions_only:
        TYPES_FILE.write_text(render_types(instance_types(_described_types(options.moto))), "utf-8")
    REGIONS_FILE.write_text(render_regions(cluster_regions()), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
