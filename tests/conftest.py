"""What every test stands on: an importable PyPI `constructs`, a Node for jsii, and tests that draw the same examples."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

if (ROOT / "constructs" / "__init__.py").exists():
    pytest.exit("remove constructs/__init__.py: it hides PyPI's constructs", returncode=4)

from hypothesis import HealthCheck, settings

import app

app.use_project_node()
# The built-in validation reads every template once more; the tests that are about it switch it on.
os.environ["CDK_VALIDATION"] = "false"

# The same examples in every run, however slow the machine: what fails in CI fails on a laptop. HYPOTHESIS_PROFILE=deep
# looks for new ones, for minutes.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", max_examples=3_000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
