"""A cluster under EKS, whose nodes a function drains."""

from __future__ import annotations

from typing import Any

from helpers.scale_down.drainer import ARN
from helpers.scale_down.scenarios import QUICK
from helpers.scale_down.stack import Behaviour, Stack, Template, group

DRAIN: dict[str, Any] = {
    "Function": ARN,
    "TimeoutMinutes": 25,
    "OnTimeout": "fail",
    "OnSilent": "fail",
    "MustBeSaved": False,
}
FOUR = Template(groups=(group("p5", 4),), drain=DRAIN)
TWO = Template(groups=(group("p5", 2),), drain=DRAIN)


def four() -> Stack:
    return Stack(FOUR, timings=QUICK, behaviour=Behaviour())


def drain(**changes: Any) -> dict[str, Any]:
    return {**DRAIN, **changes}
