"""S3 calls KMS with the caller's identity for objects in a bucket with a customer key. ministack does not."""

from __future__ import annotations

from typing import Any

from cdk_hyperpod_local.engine import seam
from cdk_hyperpod_local.engine.seam import services as requests
from cdk_hyperpod_local.engine.seam import stores

Json = Any
_NEEDED = {"GET": "kms:Decrypt", "PUT": "kms:GenerateDataKey", "POST": "kms:GenerateDataKey"}
# Query parameters of requests for an object itself. Any other (acl, tagging, …) is for its metadata.
_OF_OBJECTS = {"x-id", "partNumber", "uploadId", "uploads", "versionId"}


def install() -> None:
    requests.check_first("s3", _refusal)


def _refusal(method: str, path: str, headers: Json, query: Json) -> requests.Reply | None:
    bucket, _, key = path.lstrip("/").partition("/")
    if not key or method not in _NEEDED or not set(query) <= _OF_OBJECTS:
        return None
    encryption_key = stores.bucket_key(bucket)
    if encryption_key is None:
        return None
    context = {"kms:ViaService": f"s3.{seam.region()}.amazonaws.com"}
    message = requests.denied(headers, query, _NEEDED[method], encryption_key, context)
    return stores.s3_error("AccessDenied", message, 403, path) if message else None
