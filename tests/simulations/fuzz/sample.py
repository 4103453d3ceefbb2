"""A file that the loader accepts becomes a template that cfn-lint accepts."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from simulations.fuzz.cases import ROOT, case
from simulations.fuzz.run import write


def chosen(accepted: Sequence[int], count: int) -> list[int]:
    """Some of the cases, spread over all."""
    return list(accepted[:: max(1, len(accepted) // max(1, count))][:count])


def lint(numbers: Sequence[int]) -> list[str]:
    """The problems in the templates of these cases. Empty: none."""
    os.environ["CDK_VALIDATION"] = "false"  # cfn-lint's rules decide here
    from app import use_project_node

    use_project_node()
    from aws_cdk import App

    from cdk_hyperpod.loader import load_config
    from stacks import add_stacks

    bad = []
    with tempfile.TemporaryDirectory() as name:
        sandbox = Path(name).resolve()
        for number in numbers:
            folder = write(case(number, sandbox), sandbox / f"{number}")
            try:
                app = App(outdir=str(folder / "cdk.out"), analytics_reporting=False)
                add_stacks(app, load_config(folder / "cluster.yaml"))
                app.synth()
            except Exception:  # noqa: BLE001 - whatever it is, it must not be
                bad.append(f"case {number} was accepted, and synth failed:\n{traceback.format_exc()}")
        templates = sorted(map(str, sandbox.glob("*/cdk.out/*.template.json")))
        if templates:
            command = [str(Path(sys.executable).parent / "cfn-lint"), *templates]
            done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
            if done.returncode:
                bad.append(done.stdout + done.stderr)
    return bad
