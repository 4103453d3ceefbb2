"""AWS::APS::Workspace: only names and addresses, without a Prometheus."""

from __future__ import annotations

import uuid

from cdk_hyperpod_local.engine import seam
from cdk_hyperpod_local.engine.resources.base import Created, Json, RefusedError, ResourceType
from cdk_hyperpod_local.engine.seam import stores


def _create(logical_id: str, properties: Json, stack_name: str) -> Created:
    key = properties.get("KmsKeyArn")
    if key and not stores.key_exists(key):
        raise RefusedError(f"The key {key} does not exist", service="Amp", code="InvalidRequest")
    region, identifier = seam.region(), f"ws-{uuid.uuid4()}"
    arn = f"arn:aws:aps:{region}:{seam.account()}:workspace/{identifier}"
    return arn, _attributes(arn)


def _update(physical_id: str, old: Json, new: Json, stack_name: str, logical_id: str) -> Created:
    return physical_id, _attributes(physical_id)


def _attributes(arn: str) -> Json:
    region, identifier = arn.split(":")[3], arn.rpartition("/")[2]
    endpoint = f"https://aps-workspaces.{region}.amazonaws.com/workspaces/{identifier}/"
    return {"Arn": arn, "WorkspaceId": identifier, "PrometheusEndpoint": endpoint}


def _delete(physical_id: str, properties: Json) -> None:
    """There is no state to delete."""


WORKSPACE = ResourceType(
    name="AWS::APS::Workspace", create=_create, update=_update, delete=_delete, tag_property="Tags"
)
