"""ministack's CloudFormation: its table of resource types, and corrections of how it reads templates."""

from __future__ import annotations

import copy
import functools
import io
import re
import uuid
import zipfile
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from ministack import app  # type: ignore[import-not-found]
from ministack.services import cloudformation  # type: ignore[import-not-found]
from ministack.services.cloudformation import (  # type: ignore[import-not-found]
    changesets,
    drift,
    engine,
    helpers,
    provisioners,
    stacks,
)
from ministack.services.cloudformation import handlers as requests

Json = Any
_BUCKET_HOST = re.compile(r"(?P<bucket>.+)\.s3([.-][a-z0-9-]+)?\.amazonaws\.com")
_FUNCTIONS = ("Fn::Join", "Fn::Sub", "Fn::Split", "Fn::FindInMap")


def handlers() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = provisioners._RESOURCE_HANDLERS
    return table


def generated_name(stack_name: str, logical_id: str, *, longest: int) -> str:
    """The name that CloudFormation gives a resource whose template names none."""
    return str(provisioners._physical_name(stack_name, logical_id, max_len=longest))


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


def repair_conditions() -> None:
    """Resolve functions and pseudo parameters in conditions. ministack compares them unresolved.

    The bootstrap template tests whether a joined list is empty. Without this, its deploy role gets a policy named "".
    """
    evaluate = engine._evaluate_conditions

    def evaluated(template: Json, parameters: Json) -> Json:
        def resolved(value: Json) -> Json:
            if isinstance(value, list):
                return [resolved(item) for item in value]
            if not isinstance(value, dict):
                return value
            pseudo = str(value.get("Ref", "")).startswith("AWS::")
            if pseudo or any(name in value for name in _FUNCTIONS):
                mappings = template.get("Mappings", {})
                return engine._resolve_refs(copy.deepcopy(value), {}, parameters, {}, mappings, "", "")
            return {key: resolved(item) for key, item in value.items()}

        return evaluate({**template, "Conditions": resolved(template.get("Conditions", {}))}, parameters)

    for module in (engine, stacks, changesets, requests):
        module._evaluate_conditions = evaluated


def repair_template_addresses() -> None:
    """Accept a template address with the bucket in the host name, as on AWS. ministack expects it in the path."""
    resolve = helpers._resolve_document

    def resolved(params: Json, body_key: str, url_key: str, label: str) -> Json:
        given = params.get(url_key)
        address = urlsplit(str(given[0] if isinstance(given, list) else given or ""))
        host = _BUCKET_HOST.fullmatch(address.hostname or "")
        if host:
            params = {**params, url_key: [f"https://s3.amazonaws.com/{host['bucket']}{address.path}"]}
        return resolve(params, body_key, url_key, label)

    helpers._resolve_document = resolved


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


_EARLY_VALIDATION = (
    "The following hook(s)/validation failed: [AWS::EarlyValidation::ResourceExistenceCheck]. To troubleshoot Early Validation "
    "errors, use the DescribeEvents API for detailed failure information."
)
"""CloudFormation's reason of a change set that its validation refuses."""


def validate_change_sets() -> None:
    """Refuse a change set whose template fails CloudFormation's early validation, and let DescribeEvents report why.

    ministack validates a template only when CloudFormation begins to deploy it.
    """
    create, describe = changesets._create_change_set, requests._describe_events

    def created(parameters: Json) -> Json:
        reply = create(parameters)
        change_set = _change_set(parameters)
        if reply[0] == 200 and change_set is not None and change_set["ExecutionStatus"] == "AVAILABLE":
            _validate_early(change_set)
        return reply

    def described(parameters: Json) -> Json:
        change_set = _change_set(parameters)
        if change_set is None:
            return describe(parameters)
        stack, operation = change_set["StackId"], change_set.get("_operation_id", "none")
        return describe({**parameters, "StackName": [stack], "OperationId": [operation]})

    requests._ACTION_HANDLERS.update(CreateChangeSet=created, DescribeEvents=described)


def _change_set(parameters: Json) -> Json:
    """The change set that a request names; None: it names none, or there is none."""
    name = helpers._p(parameters, "ChangeSetName")
    return changesets._find_change_set(name, helpers._p(parameters, "StackName"))[1] if name else None


def _validate_early(change_set: Json) -> None:
    """Turn a change set into a refused one if a resource of it cannot be created."""
    if change_set["_disable_validation"]:
        return
    stack_id, name = change_set["StackId"], change_set["StackName"]
    stack, template, parameters = cloudformation._stacks[name], change_set["_template"], change_set["_resolved_params"]
    resources, conditions = template.get("Resources", {}), engine._evaluate_conditions(template, parameters)
    own = {item.get("PhysicalResourceId") for item in stack.get("_resources", {}).values()}
    with changesets._stack_region_context(stack, stack_id):
        errors = stacks._validation_errors(
            *(resources, list(resources), parameters, conditions, template.get("Mappings", {}), name, stack_id),
            frozenset(own),
        )
    if not errors:
        return
    operation = str(uuid.uuid4())
    change_set.update(
        Status="FAILED",
        ExecutionStatus="UNAVAILABLE",
        StatusReason=_EARLY_VALIDATION,
        Changes=[],
        _operation_id=operation,
    )
    refused = [
        stacks._operation_event(
            *(stack_id, operation, "VALIDATION_ERROR", "CREATE_CHANGESET"),
            LogicalResourceId=resource,
            ResourceType=kind,
            ValidationFailureMode="FAIL",
            ValidationName=validation,
            ValidationStatus="FAILED",
            ValidationStatusReason=reason,
            ValidationPath=path,
        )
        for resource, kind, validation, path, reason in errors
    ]
    stack["_operation_events"] = [*stack.get("_operation_events", ()), *refused]


def add_inline_module(name: str, source: str) -> None:
    """Put a module beside the inline code of every Python function."""
    pack = provisioners._zip_inline

    def packed(code: str | None, handler: str, runtime: str = "python3.12") -> bytes | None:
        archive: bytes | None = pack(code, handler, runtime)
        if archive is None or not runtime.startswith("python"):
            return archive
        whole = io.BytesIO(archive)
        with zipfile.ZipFile(whole, "a") as file:
            file.writestr(name, source)
        return whole.getvalue()

    provisioners._zip_inline = packed
