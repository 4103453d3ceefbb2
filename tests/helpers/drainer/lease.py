"""The Lease that keeps the run of `cdk-hyperpod patch`, as Kubernetes' API serves it: of two writers, the one with the last version wins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cdk_hyperpod._lambda.hyperpod.drainer.run_lease import PATH, RECORD

Json = Any


@dataclass
class RunLease:
    """The object, and its requests."""

    record: str | None = None
    version: int = 1

    @staticmethod
    def is_asked(path: str) -> bool:
        return path == PATH

    def answer(self, method: str, body: Json) -> tuple[int, Json]:
        """HTTP status, and the object."""
        if method == "PATCH":
            metadata = body["metadata"]
            if metadata["resourceVersion"] != str(self.version):
                return 409, {"message": "the object has been modified"}
            self.record, self.version = metadata["annotations"][RECORD], self.version + 1
        annotations = {} if self.record is None else {RECORD: self.record}
        return 200, {"metadata": {"resourceVersion": str(self.version), "annotations": annotations}}
