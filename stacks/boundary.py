"""The permissions boundary of every role, as CDK's own context names it."""

from __future__ import annotations

import json

from aws_cdk import App

from cdk_hyperpod import ConfigError, Finding

BOUNDARY = "@aws-cdk/core:permissionsBoundary"


def read_permissions_boundary(app: App) -> None:
    """Understand the boundary as JSON text too, which is what `-c` hands over; CDK would leave it out in silence. Raises
    ConfigError for what is no policy, and for text where the app has stacks already, whose roles would lack it."""
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
