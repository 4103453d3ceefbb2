"""CloudWatch Logs' AssociateKmsKey, which ministack lacks."""

from __future__ import annotations

from typing import Any

from cdk_hyperpod_local.engine import seam
from cdk_hyperpod_local.engine.seam import services as requests
from cdk_hyperpod_local.engine.seam import stores
from cdk_hyperpod_local.engine.services.json_service import failure, success

Json = Any


def install() -> None:
    requests.add_operation("logs", "AssociateKmsKey", _associate)


def _associate(request: Json) -> requests.Reply:
    """Find the group by its name only. As on AWS, a key whose policy does not name CloudWatch Logs is refused."""
    name, key = str(request.get("logGroupName")), str(request.get("kmsKeyId"))
    group = stores.log_group(name)
    if group is None:
        return failure("ResourceNotFoundException", f"The specified log group does not exist: {name}")
    if f'"logs.{seam.region()}.amazonaws.com"' not in (stores.key_policy(key) or ""):
        return failure(
            "InvalidParameterException",
            f"The specified KMS Key Id does not exist or is not allowed to be used with {name}: {key}",
        )
    group["kmsKeyId"] = key
    return success({})
