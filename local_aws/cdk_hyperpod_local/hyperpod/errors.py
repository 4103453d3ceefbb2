"""What a call can end with beside an answer: an API error, a lost reply, a caller that dies."""

from __future__ import annotations


class ApiError(Exception):
    """An error answer of the service.

    `code` is the wire code ("ResourceNotFound", "ValidationException"), `message` the sentence, `http_status` the status
    of the reply. HyperPod's client errors all travel as 400 (API_BatchDeleteClusterNodes, Errors), so the status alone
    never tells them apart.
    """

    def __init__(self, code: str, message: str, http_status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.http_status = http_status


class LostReplyError(Exception):
    """The call took effect and the reply never arrived: whoever serves the connection closes it without an answer."""


class CallerKilled(BaseException):
    """The caller dies here. A BaseException, so that no `except Exception` of the code under test survives its own death."""


def invalid(message: str) -> ApiError:
    """ValidationException: HyperPod's answer to a wrong request. Not modelled in botocore, so no client.exceptions entry."""
    return ApiError("ValidationException", message)


def conflict(message: str) -> ApiError:
    """ConflictException: the cluster is busy with something that excludes the call (botocore: UpdateCluster, Errors)."""
    return ApiError("ConflictException", message)


def not_found(message: str) -> ApiError:
    """ResourceNotFound, without the suffix "Exception" and with HTTP 400 (botocore: shape ResourceNotFound)."""
    return ApiError("ResourceNotFound", message)
