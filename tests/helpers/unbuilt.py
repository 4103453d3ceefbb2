"""A real part that a test needs and this machine lacks: a reason to skip the test, and a failure on CI, which builds all of them."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def skip(reason: str) -> NoReturn:
    """`reason`: what is missing, and the command that brings it."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
