"""The calls of AWS as protocols, and the meaning of their errors."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from botocore.exceptions import BotoCoreError, ClientError, PaginationError  # type: ignore[import-untyped]

from ..kernel.text import one_line

ACCESS_GRACE = timedelta(minutes=2)
"""How long AccessDenied is a reason to wait: IAM is eventually consistent ("Troubleshoot IAM", Changes that I make are not always
immediately visible)."""

Reply = Mapping[str, Any]
_T = TypeVar("_T")


class Reads(Protocol):
    """The read calls of a SageMaker client."""

    def describe_cluster(self, *, ClusterName: str) -> Reply: ...

    def list_cluster_nodes(
        self, *, ClusterName: str, MaxResults: int, IncludeNodeLogicalIds: bool = ..., NextToken: str = ...
    ) -> Reply: ...

    def list_tags(self, *, ResourceArn: str, NextToken: str = ...) -> Reply: ...


CALL_ERRORS = (ClientError, BotoCoreError)
"""The errors of a call. A BotoCoreError is a lost connection, or credentials that are missing, maybe not for long."""

_GONE = frozenset({"ResourceNotFound", "ResourceNotFoundException"})
_DENIED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthorizationError",  # of SNS
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    }
)
_PASSING = frozenset(
    {
        "ConflictException",
        "InternalFailure",
        "InternalServerError",
        "InternalServerException",
        "OperationAbortedException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
    }
)
_BUSY_WORDS = (
    "in progress",
    "try again",
    "currently",
    "is being",
    "being updated",
    "deep health check",
    "not in service",
)
_SOFTWARE_WORDS = r"update-?cluster-?software|software update|platform software|\bpatch"


def code(error: Exception) -> str:
    """The error's code. Empty for an error that never reached AWS. botocore does not model all of HyperPod's exceptions
    (ValidationException, for example), so codes are compared."""
    response: Reply = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def reason(error: Exception) -> str:
    """The error's code and message, in one printable line."""
    response: Reply = getattr(error, "response", None) or {}
    found = response.get("Error", {})
    text = f"{found.get('Code')}: {found.get('Message', '')}" if found else f"{type(error).__name__}: {error}"
    return one_line(text)


def normal(text: str) -> str:
    """A per-node code without case and underscores: the API's enum has NodeIdInUse, the CLI's help has NODE_ID_IN_USE."""
    return text.replace("_", "").lower()


def is_not_found(error: Exception) -> bool:
    """The cluster does not exist. The API's code has no suffix "Exception". Other tools have seen one, so both count."""
    return code(error) in _GONE


def needs_software_update(error: Exception) -> bool:
    """The cluster was never patched. BatchDeleteClusterNodes requires that of old clusters (botocore, its description). The
    error's code is undocumented, so its words decide."""
    if code(error) in _PASSING | _DENIED:
        return False
    words = reason(error).lower()
    return "in progress" not in words and re.search(_SOFTWARE_WORDS, words) is not None


def is_passing(error: Exception, *, now: datetime, began: datetime) -> bool:
    """Whether waiting may help: the service is busy or throttles, the connection broke, or a permission is still on its
    way. `began`: when the request did."""
    name = code(error)
    if name in _DENIED:
        return now - began < ACCESS_GRACE
    if name in _PASSING:
        return True
    if not isinstance(error, ClientError):
        # The connection broke.
        return True
    return _is_service_failure(error) or _is_busy_cluster(error)


def _is_service_failure(error: ClientError) -> bool:
    status: int = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status == 429 or status >= 500


def _is_busy_cluster(error: ClientError) -> bool:
    """Some calls are rejected with a ValidationException while the cluster is busy ("Scale down a SageMaker HyperPod
    cluster", Validation and error handling: no code is named)."""
    if code(error) != "ValidationException":
        return False
    words = reason(error).lower()
    return any(word in words for word in _BUSY_WORDS)


def is_denied(error: Exception) -> bool:
    """A permission is missing."""
    return code(error) in _DENIED


def read_tags(sagemaker: Reads, arn: str) -> dict[str, str]:
    """The cluster's tags (at most 50, so mostly one call)."""
    return {tag["Key"]: tag["Value"] for tag in pages(sagemaker.list_tags, "Tags", {"ResourceArn": arn})}


def pages(
    call: Callable[..., Reply], member: str, arguments: Mapping[str, Any], *, most: int | None = None
) -> Iterator[Any]:
    """Every item. Pages are read when they are needed. Raises PaginationError if a token comes again: the pages would never end.

    `most`: the maximum number of pages.
    """
    token: dict[str, str] = {}
    seen: set[str] = set()
    for number in itertools.count(1):
        page = call(**arguments, **token)
        yield from page.get(member) or ()
        following = page.get("NextToken")
        if not following or number == most:
            return
        if following in seen:
            raise PaginationError(
                message=f"AWS answered the same NextToken again, so {member} cannot be read to the end"
            )
        seen.add(following)
        token = {"NextToken": following}


def again(
    call: Callable[[], _T],
    until: Callable[[Exception], datetime],
    *,
    now: Callable[[], datetime],
    sleep: Callable[[float], None],
    log: Callable[[str], None],
) -> _T:
    """The result of the call, which is repeated with growing pauses. `until`: the end of the time for calls that fail like this."""
    pause = 1.0
    while True:
        try:
            return call()
        except CALL_ERRORS as error:
            left = (until(error) - now()).total_seconds()
            if left <= 0:
                raise
            log(f"cannot look yet: {reason(error)}")
        sleep(min(pause, left))
        pause = min(2 * pause, 16.0)
