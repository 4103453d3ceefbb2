"""The permissions boundary of every role, from CDK's context."""

from __future__ import annotations

import json

from aws_cdk import App

from cdk_hyperpod import ConfigError, Finding

BOUNDARY = "@aws-cdk/core:permissionsBoundary"


def read_permissions_boundary(app: App) -> None:
    """Accept the boundary as JSON text too, which is what `-c` passes. CDK itself would ignore text silently.

    Raises ConfigError for an invalid policy, and for text if the app has stacks already, whose roles would lack the boundary.
    """
    given = boundary = app.node.try_get_context(BOUNDARY)
    if isinstance(given, str):
        try:
            boundary = json.loads(given)
        except ValueError:
            boundary = None
    match boundary:
        case {"name": str()} | {"arn": str()} if len(boundary) == 1:
            if boundary is given:
                return
            if app.node.children:
                raise ConfigError([_too_late()], "context")
            app.node.set_context(BOUNDARY, boundary)
        case _ if given is not None:
            raise ConfigError([_invalid(given)], "context")


def _too_late() -> Finding:
    return Finding(
        code="boundary-after-stacks",
        path=BOUNDARY,
        problem="is text, and the app has stacks already",
        remedy="add the cluster's stacks first",
    )


def _invalid(given: object) -> Finding:
    return Finding(
        code="boundary-invalid",
        path=BOUNDARY,
        problem=f"is not a policy, got {given!r}",
        remedy='write {"name": "…"} or {"arn": "…"}',
    )
