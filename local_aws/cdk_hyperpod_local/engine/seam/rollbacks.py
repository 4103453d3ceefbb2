"""The rollback of an update stops behind a resource that fails, as CloudFormation's does.

ministack goes on with the resources that depend on the failed one, and deletes the new ones. CloudFormation lets dependent
resources wait (`ResourcesToSkip` of ContinueUpdateRollback), and deletes new ones once the stack is back
(UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS). ContinueUpdateRollback does both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ministack.services import cloudformation  # type: ignore[import-not-found]
from ministack.services.cloudformation import handlers as requests  # type: ignore[import-not-found]
from ministack.services.cloudformation import stacks

Json = Any
_DELETIONS = ("DELETE_IN_PROGRESS", "DELETE_FAILED")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rollback:
    """A rollback that is running."""

    stack: str
    definitions: Json
    """The resources of the template to which it goes back."""
    failed: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    """Resources that are not touched because another one has failed."""

    def depends_on_failed(self, resource: str) -> bool:
        names = stacks._with_dependencies([resource], self.definitions, set(self.definitions))
        return not self.failed.isdisjoint(names)


class _HeldError(Exception):
    """For ministack the resource has failed, so it keeps it for ContinueUpdateRollback."""


_running: ContextVar[_Rollback | None] = ContextVar("_running", default=None)


def stop_behind_failures() -> None:
    _know_rollbacks()
    _hold_reverts()
    _hold_deletions()


def _know_rollbacks() -> None:
    """Remember which rollback the current task runs."""
    roll_back, go_on = stacks._roll_back_operation, stacks._continue_update_rollback_async

    async def rolled_back(name: str, stack_id: str, stack: Json, operation: Json, *more: Any, **named: Any) -> None:
        template = (operation.get("previous_stack") or {}).get("_template")
        await _run(name, template, roll_back(name, stack_id, stack, operation, *more, **named))

    async def continued(name: str, *more: Any) -> None:
        template = (cloudformation._stacks.get(name) or {}).get("_template")
        await _run(name, template, go_on(name, *more))

    stacks._roll_back_operation = requests._roll_back_operation = rolled_back
    stacks._continue_update_rollback_async = requests._continue_update_rollback_async = continued


async def _run(name: str, template: Json, rollback: Awaitable[None]) -> None:
    token = _running.set(_Rollback(stack=name, definitions=(template or {}).get("Resources", {})))
    try:
        await rollback
    finally:
        _running.reset(token)


def _of(stack: str) -> _Rollback | None:
    """The running rollback, if it is this stack's: that of a parent runs operations of nested stacks."""
    rollback = _running.get()
    return rollback if rollback is not None and rollback.stack == stack else None


def _hold_reverts() -> None:
    revert, reason = stacks._revert_update, stacks._rollback_failure_reason

    async def reverted(stack_id: str, stack: str, resource: str, *more: Any) -> None:
        rollback = _of(stack)
        if rollback is None:
            await revert(stack_id, stack, resource, *more)
            return
        if rollback.depends_on_failed(resource):
            rollback.held.add(resource)
            raise _HeldError(resource)
        try:
            await revert(stack_id, stack, resource, *more)
        except Exception:
            rollback.failed.add(resource)
            raise

    def reason_of_failed(records: Json) -> str:
        rollback = _running.get()
        held = set() if rollback is None else rollback.held
        return str(reason({name: record for name, record in records.items() if name not in held}))

    stacks._revert_update, stacks._rollback_failure_reason = reverted, reason_of_failed


def _hold_deletions() -> None:
    delete: Callable[..., None] = stacks._delete_resource
    add_event: Callable[..., None] = stacks._add_event

    def deleted(kind: str, physical_id: str, properties: Json, stack: str, resource: str, *more: Any) -> None:
        rollback = _of(stack)
        if rollback is not None and rollback.failed:
            rollback.held.add(resource)
            raise _HeldError(resource)
        delete(kind, physical_id, properties, stack, resource, *more)

    def added(stack_id: str, stack: str, resource: str, kind: str, status: str, *more: Any, **named: Any) -> None:
        rollback = _of(stack)
        is_held = rollback is not None and bool(rollback.failed) and status in _DELETIONS
        if not is_held:
            add_event(stack_id, stack, resource, kind, status, *more, **named)

    stacks._delete_resource, stacks._add_event = deleted, added
