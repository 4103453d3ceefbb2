"""The ends of a call without an answer: an API error, a lost reply, a caller that is killed."""

from __future__ import annotations


class ApiError(Exception):
    """An error of the service.

    `code` is the wire code ("ResourceNotFound", "ValidationException"), `message` the text, `http_status` the reply's
    status. All of HyperPod's client errors have status 400 (API_BatchDeleteClusterNodes, Errors), so the status does
    not distinguish them.
    """

    def __init__(self, code: str, message: str, http_status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.http_status = http_status


class LostReplyError(Exception):
    """The call took effect, but the reply never arrived. The server closes the connection without an answer."""


class CallerKilled(BaseException):
    """The caller is killed here.

    A BaseException, so that `except Exception` of the code under test does not catch it.
    """


def invalid(message: str) -> ApiError:
    """ValidationException: HyperPod's answer to an invalid request.

    Not modelled in botocore, so client.exceptions lacks it.
    """
    return ApiError("ValidationException", message)


def conflict(message: str) -> ApiError:
    """ConflictException: the cluster is busy with an operation that excludes the call (botocore: UpdateCluster,
    Errors)."""
    return ApiError("ConflictException", message)


def not_found(message: str) -> ApiError:
    """ResourceNotFound, without the suffix "Exception" and with HTTP 400 (botocore: shape ResourceNotFound)."""
    return ApiError("ResourceNotFound", message)
