"""Lambda writes a function's log with the function's role. Without the permissions there is no log, and the function runs all the same.

ministack asks for no permission. The checks are not recorded: they would be in every test of what a function asks for.
"""

from __future__ import annotations

from typing import Any

from ministack.core import responses  # type: ignore[import-not-found]
from ministack.services import lambda_svc  # type: ignore[import-not-found]

from cdk_hyperpod_local.engine.seam import policies

Json = Any
ACTIONS = ("logs:CreateLogStream", "logs:PutLogEvents")
"""What the role needs in a log group that exists ("Sending Lambda function logs to CloudWatch Logs")."""
_SESSION = "awslambda"


def install() -> None:
    emit = lambda_svc._emit_lambda_logs

    def emitted(function: Json, *rest: Any, **options: Any) -> None:
        if _may_write(function.get("config") or function):
            emit(function, *rest, **options)

    lambda_svc._emit_lambda_logs = emitted


def _may_write(config: Json) -> bool:
    group = (config.get("LoggingConfig") or {}).get("LogGroup") or f"/aws/lambda/{config['FunctionName']}"
    place = f"{responses.get_region()}:{responses.get_account_id()}"
    stream = f"arn:aws:logs:{place}:log-group:{group}:log-stream:stream"
    return all(policies.decision(config["Role"], _SESSION, action, stream) == "Allow" for action in ACTIONS)
