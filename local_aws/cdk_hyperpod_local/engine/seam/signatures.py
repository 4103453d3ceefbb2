"""Checks the signature of each request against its key. ministack does not check the root user's."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from ministack import app  # type: ignore[import-not-found]
from ministack.core import iam_evaluator, responses, router, sigv4  # type: ignore[import-not-found]

from cdk_hyperpod_local.engine.seam.services import Reply

Json = Any
Problem = tuple[str, str]
"""AWS's code and message."""


def signature_problem(
    method: str, raw_path: str, query: Mapping[str, list[str]], headers: Mapping[str, str], body: bytes
) -> Problem | None:
    """Why a request is not correctly signed by the key in its header or query. None: it is, and it has not expired."""
    presigned = "authorization" not in headers
    if presigned and {"AWSAccessKeyId", "Signature"} <= query.keys():
        return _version_2_problem(method, raw_path, query, headers)
    if presigned and "X-Amz-Signature" not in query:
        return "MissingAuthenticationToken", "Request is missing Authentication Token"
    if not presigned and not headers["authorization"].startswith("AWS4-HMAC-SHA256 "):
        return "IncompleteSignature", "The engine checks signatures of version 4 (AWS4-HMAC-SHA256) and no others."
    signature = sigv4.parse_query_signature(query) if presigned else sigv4.parse_header_signature(headers)
    if isinstance(signature, tuple):
        return signature
    key = signature.access_key_id
    # ministack must identify the caller by the same key that is checked here.
    if signature.region_set is not None or router.extract_access_key_id(headers, query) != key:
        return "IncompleteSignature", "The request names more than one key."
    problem: Problem | None = _expired(signature, query) if presigned else sigv4.request_time_failure(signature)
    if problem is not None:
        return problem
    secret = _secret(key)
    if secret is None:
        return "InvalidClientTokenId", "The security token included in the request is invalid."
    failure = sigv4.header_signature_failure(
        signature, secret, method, raw_path, query, headers, body, presigned=presigned
    )
    return None if failure is None else (str(failure[0]), str(failure[1]))


def refusal(method: str, path: str, query: Json, headers: Json, problem: Problem) -> Reply:
    """The problem in the form of the service that the request is for."""
    service = router.detect_service(method, path, headers, query)
    reply: Reply = app._credential_failure(service, "", str(uuid.uuid4()), iam_evaluator.AuthError(*problem), headers)
    return reply


def _secret(key: str) -> str | None:
    try:
        account = iam_evaluator.find_iam_access_key_account(key)
    except iam_evaluator.AmbiguousAccessKeyError:
        return None
    account = account or responses._account_from_sts_session(key) or (key if key.isdecimal() else None)
    credential = iam_evaluator.resolve_credential(key, account) if key else None
    return getattr(credential, "secret_access_key", None)


def _version_2_problem(
    method: str, raw_path: str, query: Mapping[str, list[str]], headers: Mapping[str, str]
) -> Problem | None:
    """The same for version 2, which botocore uses by default to presign an address of S3."""
    key = query["AWSAccessKeyId"][0]
    if router.extract_access_key_id(headers, query) != key:
        return "IncompleteSignature", "The request names more than one key."
    request = iam_evaluator.SignedRequest(key, method, raw_path, query, headers, sigv2=True, auth_path=raw_path)
    account = responses._account_from_sts_session(key) or (key if key.isdecimal() else responses.get_account_id())
    checked = iam_evaluator._sigv2_check(request, account)
    return (checked.code, checked.message) if isinstance(checked, iam_evaluator.AuthError) else None


def _expired(signature: Any, query: Mapping[str, list[str]]) -> Problem | None:
    try:
        expired = sigv4.presigned_request_is_expired(signature.amz_date, query.get("X-Amz-Expires", [""])[0])
    except ValueError:
        expired = True
    return ("AccessDenied", "Request has expired") if expired else None
