"""The run of `cdk-hyperpod patch` that the drainer keeps for all operators: a Lease of Kubernetes with the run's record (docs/adr/0021).

A change names the version that its writer has read, and Kubernetes refuses it if that is not the last one. So of two that claim the
patch at once, one gets it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .api_client import Api, Json, KubernetesError
from .event import Question

NAMESPACE, NAME = "kube-system", "cdk-hyperpod-patch"
PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}"
RECORD = "cdk-hyperpod.dev/patch-run"
"""The annotation with the run's record."""
MOST_RECORD = 128 * 1024
"""Characters of a record. Kubernetes accepts 256 KiB of annotations."""
MERGE = "application/merge-patch+json"
CHANGED = "another process has changed the run of `cdk-hyperpod patch` meanwhile"


@dataclass(frozen=True, slots=True)
class KeptRun:
    """What is kept."""

    record: Mapping[str, Any] | None = None
    """None: no run."""
    version: str = ""
    """Empty: it was not asked for, or cannot be kept."""


def keep_run(api: Api, question: Question) -> tuple[Question, KeptRun]:
    """What is kept after the change that the event asks for, and the event: its request is refused if the run is not its own."""
    if not question.asks_run:
        return question, KeptRun()
    try:
        kept = _read(api.get(PATH))
        if question.run is None:
            return question, kept
        if question.run.version != kept.version:
            return _rejected(question, CHANGED), kept
        return question, _write(api, question.run.record, kept)
    except KubernetesError as error:
        if error.status == 409:
            return _rejected(question, CHANGED), KeptRun(version="changed")
        return _rejected(question, f"the run of `cdk-hyperpod patch` cannot be kept: {error}"), KeptRun()


def _rejected(question: Question, why: str) -> Question:
    return replace(question, request=None, refused=why) if question.run else question


def _read(lease: Json) -> KeptRun:
    metadata = lease["metadata"]
    try:
        found = json.loads((metadata.get("annotations") or {}).get(RECORD) or "null")
    except (ValueError, RecursionError):
        found = None
    return KeptRun(found if isinstance(found, dict) else None, str(metadata["resourceVersion"]))


def _write(api: Api, record: Mapping[str, Any] | None, kept: KeptRun) -> KeptRun:
    text = None if record is None else json.dumps(record)
    if text is not None and len(text) > MOST_RECORD:
        raise KubernetesError(f"PATCH {PATH}", f"its record has more than {MOST_RECORD} characters")
    body = {"metadata": {"annotations": {RECORD: text}, "resourceVersion": kept.version}}
    return _read(api.change("PATCH", PATH, body, MERGE))
