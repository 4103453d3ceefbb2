"""Faults of the function's own calls: throttling, missing permissions, lost replies, a killed process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .function import Request
from .profiles import Profile

if TYPE_CHECKING:
    from .lifetime import Lifetime


class Faults:
    def __init__(self, life: Lifetime) -> None:
        self.life, self.profile = life, life.profile
        rng = life.draw
        self.events_denied = rng.random() < self.profile.events_denied
        self.status_denied = rng.random() < self.profile.status_denied
        self._deaths = 1 if self.profile.deaths else 0
        self._plans: dict[Request, tuple[str, float, float]] = {}
        self._any = any(
            (self.profile.throttled, self.profile.conflicts, self.profile.deaths, self.profile.denied_at_first)
        ) or bool(self.profile.status_out)

    def calm(self) -> None:
        """End all faults."""
        self.profile, self._any, self.events_denied, self.status_denied = Profile(), False, False, False

    @property
    def quiet(self) -> bool:
        return not self._any and not self.events_denied and not self.status_denied and not self.profile.lost

    def before(self, operation: str, request: Request, *, write: bool) -> str | None:
        """The error code of a call that never arrives, "timeout" or "killed"; absent: it arrives."""
        if operation == "DescribeStackEvents" and self.events_denied:
            return "AccessDenied"
        if operation == "DescribeStacks" and self.status_denied:
            return "AccessDenied"
        if not self._any:
            return None
        rng, profile = self.life.rng, self.profile
        denied, denied_for, status_out = self._plan(request)
        since = self.life.clock.now - request.began
        if operation == denied and since < denied_for:
            return "AccessDenied" if operation.startswith("DescribeStack") else "AccessDeniedException"
        if operation == "DescribeStacks" and since < status_out:
            return "Throttling"
        dice = rng.random()
        if self._deaths and dice < profile.deaths:
            self._deaths -= 1
            return "killed"
        if dice < profile.deaths + profile.throttled:
            return "ThrottlingException" if dice * 1e6 % 2 < 1 else "timeout"
        if write and rng.random() < profile.conflicts:
            return "ConflictException"
        return None

    def loses_reply(self, operation: str, request: Request, *, write: bool) -> str | None:
        """How the reply of a change is lost: "lost", "tried again" (botocore sends it twice), "killed"; absent: it
        arrives."""
        if not write or not self.profile.lost or self.life.rng.random() >= self.profile.lost:
            return None
        if self._deaths and self.life.rng.random() < 0.2:
            self._deaths -= 1
            return "killed"
        return self.life.rng.choice(["lost", "tried again"])

    def message(self, code: str, operation: str) -> str:
        if code.startswith("AccessDenied"):
            return f"User: arn:aws:sts::111122223333:assumed-role/x is not authorized to perform: {operation}"
        return "Rate exceeded" if "hrottling" in code else "An operation on the cluster is in progress."

    def _plan(self, request: Request) -> tuple[str, float, float]:
        if (plan := self._plans.get(request)) is None:
            rng, profile = self.life.rng, self.profile
            denied = ""
            if rng.random() < profile.denied_at_first:
                denied = rng.choice(
                    ["DescribeCluster", "ListClusterNodes", "ListTags", "DescribeStacks", "DescribeStackEvents"]
                    + ["BatchDeleteClusterNodes", "UpdateCluster"] * 2
                )
            out = rng.choice([5.0, 40.0, 90.0]) if rng.random() < profile.status_out else 0.0
            plan = self._plans[request] = (denied, rng.uniform(5, 90), out)
        return plan
