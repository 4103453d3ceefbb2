"""What every test stands on: an importable PyPI `constructs`, a Node for jsii, and tests that draw the same examples."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

if (ROOT / "constructs" / "__init__.py").exists():
    pytest.exit("remove constructs/__init__.py: it hides PyPI's constructs", returncode=4)

from botocore.loaders import JSONFileLoader  # type: ignore[import-untyped]
from hypothesis import HealthCheck, settings

import app
from helpers.from_wheel import environment, wheel
from tools.lanes import APART

__all__ = ["APART", "environment", "wheel"]

# Ten thousand tests and the classes of CDK live until the end: the garbage collector looks at them again less often.
gc.set_threshold(50_000)
app.use_project_node()
# Where `make` has set the local AWS up.
os.environ.setdefault("LOCAL_AWS_HOME", str(ROOT / ".local-aws"))
# The built-in validation reads every template once more; the tests that are about it switch it on.
os.environ["CDK_VALIDATION"] = "false"

# The same examples in every run, however slow the machine: what fails in CI fails on a laptop. HYPOTHESIS_PROFILE=deep
# looks for new ones, for minutes.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", max_examples=3_000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Files that take longest, the longest first, as `pytest --durations=50` shows them: the workers share the files out in
# this order, and none ends long after the others. The rest come next, in the order of their names.
LONGEST = (
    # make test
    "simulations/test_soak.py",  # with all cores by itself
    "unit/config/test_changes.py",
    "project/test_wheel.py",
    "unit/guard/test_scale_down.py",
    "unit/cluster/test_l2.py",
    "unit/cluster/test_cluster.py",
    "unit/stacks/test_app.py",
    "unit/cluster/test_misuse.py",
    "simulations/test_judge.py",
    "unit/stacks/test_eks_stacks.py",
    "unit/cli/deployment/test_plan.py",
    "simulations/test_alarms.py",
    # make test-kubernetes
    "real/kubernetes/test_quota.py",
    "real/drainer/test_faults.py",
    "real/drainer/test_draining.py",
    # make test-lives
    "deployments/test_alerts.py",
    "deployments/test_rights.py",
    "deployments/test_eks_life.py",
    "deployments/test_failed_deployments.py",
    "deployments/test_from_the_wheel.py",
    "deployments/test_pages.py",
    "deployments/test_ci.py",
    "deployments/test_taking_nodes.py",
    "deployments/test_eks_examples.py",
    "deployments/test_life_of_a_cluster.py",
    "deployments/test_own_vpc.py",
    "deployments/test_replacements.py",
    "deployments/test_outside_app.py",
    "unit/local_aws/engine/test_eks_service.py",
    "unit/local_aws/engine/test_alerting.py",
)


@pytest.fixture(scope="session", autouse=True)
def models_are_read_once() -> Iterator[None]:
    """botocore reads a service's model again for each client, which would take half of the time of the commands' tests."""
    read = cache(partial(JSONFileLoader.load_file, JSONFileLoader()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: read(path))
        yield


LEFT_OUT = pytest.StashKey[int]()
"""How many tests with the marker `ci` this run leaves out."""


def named_by(config: pytest.Config) -> list[Path]:
    """The files and folders that the command line names."""
    return [(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what is APART, unless the command line names it or something in it."""
    if collection_path not in {ROOT / path for paths in APART.values() for path in paths}:
        return None
    return None if any(path.is_relative_to(collection_path) for path in named_by(config)) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what runs in CI, and begin with the files of LONGEST."""
    named = named_by(config)
    left_out: list[pytest.Item] = []
    kept: list[pytest.Item] = []
    for item in items:
        in_ci = item.get_closest_marker("ci") and not os.environ.get("CI") and item.path not in named
        (left_out if in_ci else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    config.stash[LEFT_OUT] = len(left_out)
    longest = {str(ROOT / "tests" / file): number for number, file in enumerate(LONGEST)}
    items[:] = sorted(kept, key=lambda item: longest.get(str(item.path), len(longest)))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells the process that prints the summary."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Each worker collects the same tests. One that crashed tells nothing."""
    if output := getattr(node, "workeroutput", None):
        node.config.stash[LEFT_OUT] = output["left out"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what `make test` has left out."""
    if left_out := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(f"left out {left_out} tests that run in CI: CI=true make test")
