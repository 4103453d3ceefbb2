#!/usr/bin/env python3
"""Make constructs/cdk_hyperpod/facts/device_plugins.json from HyperPod's Helm chart.

The lists are AWS's, in https://github.com/aws/sagemaker-hyperpod-cli (`SOURCE`, at `CHART_COMMIT`):

    git clone https://github.com/aws/sagemaker-hyperpod-cli && git -C sagemaker-hyperpod-cli checkout CHART_COMMIT
    .venv/bin/python tools/make_device_plugins.py sagemaker-hyperpod-cli/helm_chart/HyperPodHelmChart

tests/helpers/chart has the same lists, and a test compares them with the file. For a newer chart, change `CHART_COMMIT` in facts/device_plugins.py, and
copy the lists there too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cdk_hyperpod.facts.device_plugins import CHART_COMMIT, CHART_DATE
from cdk_hyperpod.kubernetes.device_plugins import plugin_lists
from cdk_hyperpod.kubernetes.health_agent import health_agent
from cdk_hyperpod.kubernetes.helm_chart import HelmChart

SOURCE = "https://github.com/aws/sagemaker-hyperpod-cli/tree/main/helm_chart/HyperPodHelmChart"
FILE = Path(__file__).resolve().parents[1] / "constructs" / "cdk_hyperpod" / "facts" / "device_plugins.json"


def render(files: Mapping[str, bytes]) -> str:
    """device_plugins.json: the instance types of HyperPod on which each device plug-in of the chart runs, and the health agent."""
    lists, agent = plugin_lists(files), health_agent(files)
    if missing := [plugin for plugin, names in lists.items() if names is None]:
        raise SystemExit(f"the chart has no list of instance types for {', '.join(missing)}")
    if agent is None:
        raise SystemExit("the chart names no image of the health monitoring agent")
    types = {plugin: sorted(name for name in names or () if name.startswith("ml.")) for plugin, names in lists.items()}
    about = "Made by tools/make_device_plugins.py; do not edit."
    content: dict[str, Any] = {"about": about, "source": SOURCE, "commit": CHART_COMMIT, "commit_date": CHART_DATE}
    content |= {"health_agent": agent.version, "health_agent_regions": sorted(agent.regions), "instance_types": types}
    return json.dumps(content, indent=2) + "\n"


def main(arguments: list[str]) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "chart", type=Path, help="the folder HyperPodHelmChart of AWS's repository, or the packed chart"
    )
    FILE.write_text(render(HelmChart(parser.parse_args(arguments).chart).files), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
