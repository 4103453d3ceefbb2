"""Our own services beside ministack's: their requests, their state, and IAM in front of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any

from ministack import app  # type: ignore[import-not-found]
from ministack.core import (  # type: ignore[import-not-found]
    iam_actions,
    iam_evaluator,
    lambda_runtime,
    persistence,
    responses,
    router,
)
from ministack.services import tagging  # type: ignore[import-not-found]

from cdk_hyperpod_local.engine.seam import policies, region

Json = Any
Reply = tuple[int, dict[str, str], bytes]


class Service:
    """The module interface that ministack expects of a service. A subclass adds the state."""

    def get_state(self) -> Json:
        return None

    def load_persisted_state(self, data: Json) -> None: ...

    def reset(self) -> None: ...

    async def handle_request(self, method: str, path: str, headers: dict[str, str], body: bytes, query: Json) -> Reply:
        raise NotImplementedError


def register_service(
    name: str,
    service: Service,
    *,
    target_prefix: str | None,
    tagged: Callable[[], Iterator[tuple[str, list[Json]]]],
) -> None:
    """Serve `name`'s JSON protocol (REST: no target prefix), save its state with the engine's, and check requests with
    IAM.

    A service without an entry in the namespace table is open to every caller.
    """
    app.SERVICE_REGISTRY[name] = {"module": name}
    app.SERVICE_HANDLERS[name] = service.handle_request
    app._state_map[name] = name
    app._loaded_modules[name] = service
    how = {"target_prefixes": [target_prefix]} if target_prefix else {"credential_scope": name}
    router.SERVICE_PATTERNS[name] = {**how, "host_patterns": [rf"{name}\."]}
    iam_actions.SERVICE_TO_IAM_NAMESPACE[name] = name
    tagging._RESOURCE_TAG_COLLECTORS[name] = tagged


def resolve_resources(name: str, resolve: Callable[[str, Json], str | None]) -> None:
    """Give IAM the resource of a call of service `name`: resolve(operation, request) -> ARN or None."""
    original = iam_actions.extract_resource_arn

    def extract(
        service: str, method: str, path: str, headers: Json, body: bytes, query: Json, where: str, who: str
    ) -> str:
        if service == name:
            found = resolve(operation_of(headers), _json(body))
            if found:
                return found
        return str(original(service, method, path, headers, body, query, where, who))

    iam_actions.extract_resource_arn = extract


def resolve_rest(
    name: str,
    read: Callable[[str, str, str, bytes, Json], tuple[str, Json] | None],
    resolve: Callable[[str, Json], str | None],
) -> None:
    """Give IAM the operation and the resource of a REST call of service `name`.

    read(name, method, path, body, query) -> operation and request. ministack's own table of paths ends an ARN in a path
    at its first slash, and admits calls that it does not find.
    """
    action_of, resource_of = iam_actions.extract_iam_action, iam_actions.extract_resource_arn

    def found(method: str, path: str, body: bytes, query: Json) -> tuple[str, Json] | None:
        try:
            return read(name, method, path, body, query)
        except ValueError:
            return None

    def action(service: str, method: str, path: str, headers: Json, body: bytes, query: Json) -> str | None:
        if service == name:
            call = found(method, path, body, query)
            return f"{name}:{call[0] if call else 'Unknown'}"
        given = action_of(service, method, path, headers, body, query)
        return None if given is None else str(given)

    def extract(
        service: str, method: str, path: str, headers: Json, body: bytes, query: Json, where: str, who: str
    ) -> str:
        call = found(method, path, body, query) if service == name else None
        resource = resolve(*call) if call else None
        return resource or str(resource_of(service, method, path, headers, body, query, where, who))

    iam_actions.extract_iam_action, iam_actions.extract_resource_arn = action, extract


def operation_of(headers: Json) -> str:
    return str(headers.get("x-amz-target", "")).rpartition(".")[2]


def caller(headers: Json, query: Json) -> str:
    return str(iam_evaluator.request_caller_arn(headers, query))


def denied(headers: Json, query: Json, action: str, resource: str, context: Json) -> str | None:
    """IAM's message if the caller may not do `action` on `resource`: for permissions that a call needs besides its
    own."""
    if not app.AUTH:
        return None
    key = router.extract_access_key_id(headers, query)
    result = iam_evaluator.enforce(
        key, action, action.partition(":")[0], region(), resource_arn=resource, service_context=context
    )
    if result is None:
        return None
    principal = getattr(result, "principal_arn", "") or caller(headers, query)
    explicit = getattr(result, "decision", "") == "Deny"
    return str(iam_actions.identity_denial_message(action, principal, resource, explicit))


def observe_checks(observe: Callable[[str, str, str, bool], None]) -> None:
    """Call observe(who, action, resource, allowed) whenever IAM has checked a call of a role or a user."""
    enforce = iam_evaluator.enforce

    def observed(key: str, action: str, service: str, where: str, resource_arn: str = "*", **more: Any) -> Any:
        result = enforce(key, action, service, where, resource_arn=resource_arn, **more)
        principal = iam_evaluator.resolve_principal(key or "", responses.get_account_id())
        if getattr(principal, "policies", None) is not None:  # the root user is not checked
            observe(str(principal.arn), action, resource_arn, result is None)
        return result

    iam_evaluator.enforce = observed
    policies.observe(observe)


def observe_requests(observe: Callable[[str, str, Json, bytes, Json, Reply], None]) -> None:
    """Call observe(method, path, headers, body, query, reply) after every request, including refused ones."""
    dispatch = app._dispatch_service_request

    async def observed(method: str, path: str, headers: Json, body: bytes, query: Json, request_id: str) -> Reply:
        reply: Reply = await dispatch(method, path, headers, body, query, request_id)
        observe(method, path, headers, body, query, reply)
        return reply

    app._dispatch_service_request = observed


def is_for(name: str, method: str, path: str, headers: Json, query: Json) -> bool:
    """Whether a request is for service `name`."""
    return bool(router.detect_service(method, path, headers, query) == name)


def check_first(name: str, check: Callable[[str, str, Json, Json], Reply | None]) -> None:
    """Let check(method, path, headers, query) answer a request of service `name` instead of the service, or return
    None."""
    handle = app.SERVICE_HANDLERS[name]

    async def checked(method: str, path: str, headers: Json, body: bytes, query: Json) -> Reply:
        reply: Reply = check(method, path, headers, query) or await handle(method, path, headers, body, query)
        return reply

    app.SERVICE_HANDLERS[name] = checked


def add_operation(name: str, operation: str, answer: Callable[[Json], Reply]) -> None:
    """Serve an operation that ministack's service `name` lacks: answer(request). IAM has checked the call before."""
    handle = app.SERVICE_HANDLERS[name]

    async def served(method: str, path: str, headers: Json, body: bytes, query: Json) -> Reply:
        if operation_of(headers) == operation:
            return answer(_json(body))
        reply: Reply = await handle(method, path, headers, body, query)
        return reply

    app.SERVICE_HANDLERS[name] = served


def before_operations(name: str, operations: AbstractSet[str], act: Callable[[Json], None]) -> None:
    """Call act(request) before ministack's service `name` serves one of these operations."""
    handle = app.SERVICE_HANDLERS[name]

    async def served(method: str, path: str, headers: Json, body: bytes, query: Json) -> Reply:
        if operation_of(headers) in operations:
            act(_json(body))
        reply: Reply = await handle(method, path, headers, body, query)
        return reply

    app.SERVICE_HANDLERS[name] = served


def save_state() -> None:
    """Write everything to the state folder."""
    persistence.save_all(app._build_persistence_save_dict())


def kill_function(principal: str) -> None:
    """Kill the process of the Lambda function with this role session, in the middle of its work."""
    function = principal.rsplit("/", 1)[-1]
    for workers in list(lambda_runtime._workers.values()):
        for worker in workers if isinstance(workers, list) else [workers]:
            if getattr(worker, "func_name", None) == function and worker._proc is not None:
                worker._proc.kill()


def _json(body: bytes) -> Json:
    try:
        parsed = json.loads(body or b"{}")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
