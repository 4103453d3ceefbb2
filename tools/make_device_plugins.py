#!/usr/bin/env python3
"""Make constructs/cdk_hyperpod/facts/device_plugins.json from HyperPod's Helm chart.

The lists are AWS's, in https://github.com/aws/sagemaker-hyperpod-cli (`SOURCE`, at `COMMIT`):

    git clone https://github.com/aws/sagemaker-hyperpod-cli && git -C sagemaker-hyperpod-cli checkout COMMIT
    .venv/bin/python tools/make_device_plugins.py sagemaker-hyperpod-cli/helm_chart/HyperPodHelmChart

tests/helpers/chart has the same lists, and a test compares them with the file. For a newer chart, change `COMMIT`, and
copy the lists there too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cdk_hyperpod.kubernetes.device_plugins import plugin_lists
from cdk_hyperpod.kubernetes.helm_chart import HelmChart

SOURCE = "https://github.com/aws/sagemaker-hyperpod-cli/tree/main/helm_chart/HyperPodHelmChart"
COMMIT = "011ca927123e02b35a399935bbb3ab1905fe33c7"
COMMIT_DATE = "2026-06-22"
FILE = Path(__file__).resolve().parents[1] / "constructs" / "cdk_hyperpod" / "facts" / "device_plugins.json"


def render(lists: Mapping[str, Sequence[str] | None]) -> str:
    """device_plugins.json: the instance types of HyperPod on which each device plug-in of the chart runs."""
    types = {plugin: sorted(name for name in names or () if name.startswith("ml.")) for plugin, names in lists.items()}
    about = "Made by tools/make_device_plugins.py; do not edit."
    content = {"about": about, "source": SOURCE, "commit": COMMIT, "commit_date": COMMIT_DATE, "instance_types": types}
    return json.dumps(content, indent=2) + "\n"


def main(arguments: list[str]) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "chart", type=Path, help="the folder HyperPodHelmChart of AWS's repository, or the packed chart"
    )
    lists = plugin_lists(HelmChart(parser.parse_args(arguments).chart).files)
    if missing := [plugin for plugin, names in lists.items() if names is None]:
        raise SystemExit(f"the chart has no list of instance types for {', '.join(missing)}")
    FILE.write_text(render(lists), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
