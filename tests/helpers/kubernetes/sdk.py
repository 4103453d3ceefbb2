"""AWS's SDK for HyperPod, as far as the tests need it: its model of a job, what it thinks a node can allocate, and what
it submits.

Loaded file by file, but for the last: importing the package would import forty others, and its telemetry.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from helpers import unbuilt

HERE = Path(__file__).resolve()
FOLDER = HERE.parents[3] / ".kubernetes" / "sdk"
SDK = FOLDER / "sagemaker" / "hyperpod" / "training"


@cache
def job_model() -> Any:
    """The model of a HyperPodPyTorchJob's `spec`, made strict: unknown fields are errors, and nothing is converted."""
    return _load("config/hyperpod_pytorch_job_unified_config.py")._HyperPodPytorchJob


@cache
def instance_resources() -> dict[str, dict[str, int]]:
    """vCPUs, GiB, GPUs, Trainium chips and EFA by instance type, in the SDK's table."""
    resources: dict[str, dict[str, int]] = _load("constants.py").INSTANCE_RESOURCES
    return resources


@cache
def mig_profiles() -> dict[str, list[str]]:
    """The partitions of GPUs by instance type, in the SDK's table."""
    profiles: dict[str, list[str]] = _load("constants.py").INSTANCE_TYPE_MIG_PROFILES
    return profiles


@cache
def reservations() -> tuple[Callable[[int], float], Callable[[int], float]]:
    """Only the SDK's functions for the vCPUs and the GiB that a node reserves: their file imports half the SDK."""
    names = ("_calculate_cpu_reservation", "_calculate_memory_reservation")
    tree = ast.parse(_file("quota_allocation_util.py").read_text("utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    space: dict[str, Any] = {}
    exec(compile(tree, "quota_allocation_util.py", "exec"), space)  # noqa: S102 - two functions of a locked package
    return space[names[0]], space[names[1]]


def submitted_by_hyp(jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The objects that `hyp create hyp-pytorch-job` submits for each of these sets of flags."""
    _file("hyperpod_pytorch_job.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE.with_name("hyp.py")), str(FOLDER)],
        input=json.dumps([*jobs]),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        # Otherwise it looks for nodes with the partitions of a GPU that a job requests.
        env={**os.environ, "VALIDATE_PROFILE_IN_CLUSTER": "false"},
    )
    assert done.returncode == 0, done.stderr
    bodies: list[dict[str, Any]] = json.loads(done.stdout)
    return bodies


def _load(name: str) -> ModuleType:
    file = _file(name)
    spec = importlib.util.spec_from_file_location(f"hyperpod_sdk_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _file(name: str) -> Path:
    file = SDK / name
    if not file.is_file():
        unbuilt.skip("AWS's SDK for HyperPod is not there: make .kubernetes/ready")
    return file
