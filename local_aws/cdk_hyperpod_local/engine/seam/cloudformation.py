"""ministack's CloudFormation: its table of resource types, and the events of an update."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ministack import app  # type: ignore[import-not-found]
from ministack.services import cloudformation  # type: ignore[import-not-found]
from ministack.services.cloudformation import drift, provisioners, stacks  # type: ignore[import-not-found]

Json = Any


def handlers() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = provisioners._RESOURCE_HANDLERS
    return table


def register_type(
    name: str,
    *,
    create: Callable[[str, Json, str], tuple[str, Json]],
    update: Callable[[str, Json, Json, str, str], tuple[str, Json]] | None,
    delete: Callable[[str, Json], None],
    create_only: Sequence[str],
    tag_property: str | None,
    name_property: str | None,
    blocking: bool,
    read: Callable[[str, Json], Json | None] | None,
    read_properties: Sequence[str],
) -> None:
    entry: dict[str, Any] = {"create": create, "delete": delete}
    if update is not None:
        entry |= {"update": update, "update_with_logical_id": True}
    handlers()[name] = entry
    provisioners._REPLACING_PROPERTIES[name] = tuple(create_only)
    if tag_property:
        provisioners._STACK_TAG_PROPERTY[name] = (tag_property, "list")
    if name_property:
        provisioners._CUSTOM_NAME_REPLACEMENT[name] = {"name": name_property}
    if blocking:
        _block_on(name)
    if read is not None:
        drift._DRIFT_READERS[name] = (read, frozenset(read_properties))


def _block_on(name: str) -> None:
    """Run the type's operations in threads, and as on AWS, revert the resource if its own update has failed."""
    on_worker, sends_back = stacks._runs_on_worker_thread, stacks._sends_back_failed_update
    stacks._runs_on_worker_thread = lambda resource_type: resource_type == name or on_worker(resource_type)
    stacks._sends_back_failed_update = lambda resource_type: resource_type == name or sends_back(resource_type)


def is_working() -> bool:
    """Whether a stack operation of any account is in progress."""
    found = [str(stack.get("StackStatus", "")) for stack in cloudformation._stacks._data.values()]
    return any(status.endswith("_IN_PROGRESS") and status != "REVIEW_IN_PROGRESS" for status in found)


def after_stack_operation(then: Callable[[], None]) -> None:
    """Call `then` in the event loop whenever a stack operation has ended."""
    add_event = stacks._add_event
    at_rest = ("_COMPLETE", "_FAILED")

    def noted(
        stack_id: str, stack_name: str, logical_id: str, resource_type: str, status: str, *a: Any, **k: Any
    ) -> None:
        add_event(stack_id, stack_name, logical_id, resource_type, status, *a, **k)
        if resource_type == "AWS::CloudFormation::Stack" and status.endswith(at_rest) and app._MAIN_LOOP is not None:
            # Not at once: the stack's own record gets its final status after the event.
            app._MAIN_LOOP.call_soon_threadsafe(lambda: app._MAIN_LOOP.call_later(0.1, then))

    stacks._add_event = noted


def repair_events(is_unnamed: Callable[[str, str], bool]) -> None:
    """Report events of an update as CloudFormation does: only for resources that change, with their physical ids, unless
    `is_unnamed` says otherwise of a type and a status.

    ministack reports every resource before it compares the templates.
    """
    add_event, update = stacks._add_event, stacks._update_resource
    held: dict[tuple[str, str], Callable[[], None]] = {}
    """Events of updates that have begun, until it is known whether the resource changes."""

    def add_held_event(
        stack_id: str,
        stack_name: str,
        logical_id: str,
        resource_type: str,
        status: str,
        reason: str = "",
        physical_id: str = "",
        *more: Any,
        **named: Any,
    ) -> None:
        stack = cloudformation._stacks.get(stack_name) or {}
        known = stack.get("_resources", {}).get(logical_id, {}).get("PhysicalResourceId", "")
        shown = "" if is_unnamed(resource_type, status) else physical_id or known
        report = functools.partial(
            add_event,
            *(stack_id, stack_name, logical_id, resource_type, status, reason, shown),
            *more,
            **named,
        )
        begun = held.pop((stack_id, logical_id), None)
        if status == "UPDATE_IN_PROGRESS" and known and not physical_id:
            held[stack_id, logical_id] = report
        elif begun is None or status != "UPDATE_COMPLETE":
            if begun is not None and status == "UPDATE_FAILED":
                begun()
            report()

    def updated(
        resource_type: str, physical_id: str, old: Json, new: Json, stack_name: str, logical_id: str, *more: Any
    ) -> Json:
        begun = held.pop((cloudformation._stacks[stack_name]["StackId"], logical_id), None) if old != new else None
        if begun is not None:
            begun()
        return update(resource_type, physical_id, old, new, stack_name, logical_id, *more)

    stacks._add_event = add_held_event
    stacks._update_resource = provisioners._update_resource = updated
