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
                raise _wrong("came as text, and the app has stacks already", "add the cluster's stacks first")
            app.node.set_context(BOUNDARY, boundary)
        case _ if given is not None:
            raise _wrong(f"is no policy, got {given!r}", 'write {"name": "…"} or {"arn": "…"}')


def _wrong(problem: str, remedy: str) -> ConfigError:
    return ConfigError([Finding(path=BOUNDARY, problem=problem, remedy=remedy)], "context")
