"""FSx as a service of the engine."""

from __future__ import annotations

import json
from typing import Any

from cdk_hyperpod_local.engine import seam
from cdk_hyperpod_local.engine.journal import Journal
from cdk_hyperpod_local.engine.seam import services as requests
from cdk_hyperpod_local.engine.services.fsx_file_systems import Fsx, FsxError
from cdk_hyperpod_local.engine.services.json_service import JsonService, failure, success

Json = Any


class FsxService(JsonService):
    def __init__(self, file_systems: Fsx, journal: Journal) -> None:
        super().__init__("fsx", self._reply, journal)
        self._file_systems = file_systems

    def get_state(self) -> Json:
        with self.lock:
            return self._file_systems.state()

    def load_persisted_state(self, data: Json) -> None:
        with self.lock:
            self._file_systems.restore(data)

    def reset(self) -> None:
        with self.lock:
            self._file_systems.clear()

    def settle(self) -> None:
        """Perform what is due by now for the current request's account and Region."""
        with self.lock:
            self._file_systems.settle(seam.account(), seam.region())

    def _reply(self, operation: str, body: bytes, caller: str, account: str, region: str) -> requests.Reply:
        try:
            return success(
                self._file_systems.call(operation, json.loads(body or b"{}"), account=account, region=region)
            )
        except FsxError as error:
            return failure(error.code, error.message)
        except KeyError as missing:
            return failure("BadRequest", f"{missing.args[0]} is required")


def install(file_systems: Fsx, journal: Journal) -> FsxService:
    service = FsxService(file_systems, journal)
    requests.register_service("fsx", service, target_prefix="AWSSimbaAPIService_v20180301.", tagged=file_systems.tagged)
    requests.resolve_resources("fsx", _resource)
    return service


def _resource(operation: str, request: Json) -> str | None:
    """The ARN that policies name for this call."""
    where = f"arn:aws:fsx:{seam.region()}:{seam.account()}"
    if "ResourceARN" in request:
        return str(request["ResourceARN"])
    if "AssociationId" in request:
        return f"{where}:association/*/{request['AssociationId']}"
    if "FileSystemId" in request:
        return f"{where}:file-system/{request['FileSystemId']}"
    return f"{where}:file-system/*" if operation in ("CreateFileSystem", "DescribeFileSystems") else None
