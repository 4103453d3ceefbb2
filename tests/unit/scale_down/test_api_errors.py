"""What an error of the API means: done, worth another poll, or definite. Most codes and words are undocumented."""

from __future__ import annotations

from datetime import timedelta
from itertools import cycle

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, PaginationError  # type: ignore[import-untyped]

from cdk_hyperpod._lambda.hyperpod.common import api
from cdk_hyperpod._lambda.hyperpod.scale_down.aws import clients
from helpers.scale_down.clusters import START


def error(code: str, message: str = "", status: int = 400) -> Exception:
    reply = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    found: Exception = ClientError(reply, "BatchDeleteClusterNodes")
    return found


def passing(failed: Exception, seconds: float = 0) -> bool:
    return api.is_passing(failed, now=START + timedelta(seconds=seconds), began=START)


@pytest.mark.parametrize(
    "failed",
    [
        error("ConflictException", "Cluster is busy"),
        error("ThrottlingException", "Rate exceeded"),
        error("TooManyRequestsException", status=429),
        error("Strange", status=429),
        error("InternalFailure", status=500),
        error("Strange", status=503),
        error("ValidationException", "Cannot delete nodes while an update is in progress"),
        EndpointConnectionError(endpoint_url="https://api.sagemaker"),
    ],
    ids=lambda failed: api.code(failed) or type(failed).__name__,
)
def test_temporary_aws_errors_are_worth_another_poll(failed: Exception) -> None:
    assert passing(failed, seconds=3_000)
    assert not api.needs_software_update(failed)


@pytest.mark.parametrize(
    "failed",
    [
        error("ValidationException", "1 validation error detected: Value at 'nodeIds' failed to satisfy constraint"),
        error("ResourceLimitExceeded", "The account-level service limit is 3 Instances"),
        error("InvalidParameterException", "No"),
    ],
    ids=api.code,
)
def test_definite_aws_errors_are_not_retried(failed: Exception) -> None:
    assert not passing(failed)
    assert not api.is_not_found(failed)


@pytest.mark.parametrize("code", ["AccessDeniedException", "AccessDenied", "UnrecognizedClientException"])
def test_denied_is_a_wait_for_two_minutes(code: str) -> None:
    assert passing(error(code), seconds=119)
    assert not passing(error(code), seconds=120)
    assert api.is_denied(error(code))


@pytest.mark.parametrize("code", ["ResourceNotFound", "ResourceNotFoundException"])
def test_a_resource_that_was_not_found_is_recognized(code: str) -> None:
    assert api.is_not_found(error(code))


@pytest.mark.parametrize(
    ("message", "needed"),
    [
        ("Cannot delete nodes before its platform software was updated. Run UpdateClusterSoftware first", True),
        ("You must run update-cluster-software before", True),
        ("The cluster must be patched once", True),
        ("A software update is in progress", False),
        ("Could not dispatch the request", False),
    ],
)
def test_a_required_software_update_is_recognized(message: str, needed: bool) -> None:
    assert api.needs_software_update(error("ValidationException", message)) is needed
    assert not api.needs_software_update(error("ThrottlingException", message))


def test_reason_is_one_line() -> None:
    assert api.reason(error("ValidationException", "two\n  lines")) == "ValidationException: two lines"
    assert api.reason(EndpointConnectionError(endpoint_url="https://a")) == (
        'EndpointConnectionError: Could not connect to the endpoint URL: "https://a"'
    )


@pytest.mark.parametrize("tokens", ["a", "ab"])
def test_pages_whose_token_comes_again_end_with_an_error(tokens: str) -> None:
    class Client:
        asked = 0
        answers = cycle(tokens)

        def describe_stacks(self, *, StackName: str) -> api.Reply:
            raise NotImplementedError

        def describe_stack_events(self, *, StackName: str, NextToken: str = "") -> api.Reply:
            self.asked += 1
            assert self.asked < 10, "for ever"
            return {"StackEvents": [{}], "NextToken": next(self.answers)}

        def get_template(self, *, StackName: str) -> api.Reply:
            raise NotImplementedError

    with pytest.raises(
        PaginationError, match="the same NextToken again, so StackEvents cannot be read to the end"
    ) as why:
        list(clients.read_events(Client(), "train"))
    assert passing(why.value), "the next poll reads anew"
