"""Faults on request. Tests change the fields of a running HyperPod's `faults`."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from .errors import ApiError, CallerKilled, LostReplyError


@dataclass(slots=True, kw_only=True)
class Faults:
    """No faults by default. Counters count down when they are used. Times are seconds since 1970.

    Missing capacity is not here but in the state (`HyperPod.set_capacity`), because it changes over time.
    """

    throttle_next: int = 0
    """How many of the next calls end with ThrottlingException, without effect."""
    throttle_probability: float = 0.0
    """Probability from 0 to 1 that a call is throttled."""
    throttle_operations: frozenset[str] = frozenset()
    """Only these operations are throttled. Empty: all."""
    lose_reply_next: int = 0
    """How many of the next mutating calls take effect and lose their reply."""
    lose_reply_probability: float = 0.0
    """Probability from 0 to 1 that a mutating call's reply is lost."""
    denied_until: dict[str, float] = field(default_factory=dict)
    """Operation -> the time until which it is AccessDenied: permissions that take effect late, as IAM's do."""
    undying_nodes: set[str] = field(default_factory=set)
    """Instance ids that stay in ShuttingDown while they are in this set."""
    in_use_until: dict[str, float] = field(default_factory=dict)
    """Instance id -> the time until which BatchDelete returns NodeIdInUse for it."""
    fail_start_next: int = 0
    """How many of the next nodes end their start in Failure instead of Running."""
    failing_groups: set[str] = field(default_factory=set)
    """Groups whose nodes never start, because the lifecycle script fails."""
    failing_images: set[str] = field(default_factory=set)
    """Images (`images`) on which lifecycle scripts fail."""
    kill_after_calls: int | None = None
    """After how many more calls the caller is killed before it gets the reply. Absent: never."""
    kill_after_changes: int | None = None
    """The same, counting only mutating calls that took effect."""

    def before(self, operation: str, principal: str, resource: str, now: float, random: Random) -> None:
        """Raise the ApiError that prevents this call's effect, if there is one."""
        if now < self.denied_until.get(operation, 0.0):
            raise ApiError(
                "AccessDeniedException",
                f"User: {principal} is not authorized to perform: sagemaker:{operation} on resource: {resource} because no "
                f"identity-based policy allows the sagemaker:{operation} action",
            )
        if self.throttle_operations and operation not in self.throttle_operations:
            return
        if self.throttle_next > 0:
            self.throttle_next -= 1
        elif random.random() >= self.throttle_probability:
            return
        raise ApiError("ThrottlingException", "Rate exceeded")

    def after(self, *, changed: bool, random: Random) -> None:
        """Raise the error that replaces the reply of a finished call, if there is one.

        `changed`: a mutating call that took effect.
        """
        if self.kill_after_calls is not None:
            self.kill_after_calls -= 1
            if self.kill_after_calls <= 0:
                self.kill_after_calls = None
                raise CallerKilled("killed after a call")
        if not changed:
            return
        if self.kill_after_changes is not None:
            self.kill_after_changes -= 1
            if self.kill_after_changes <= 0:
                self.kill_after_changes = None
                raise CallerKilled("killed after a change")
        if self.lose_reply_next > 0:
            self.lose_reply_next -= 1
        elif random.random() >= self.lose_reply_probability:
            return
        raise LostReplyError("the reply was lost; the call took effect")
