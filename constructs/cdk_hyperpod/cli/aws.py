"""AWS with the user's credentials: a session, clients, and one sentence for each kind of failed call.

SageMaker's client comes with the API model that is pinned for the Lambda functions, because the user's boto3 may be older
than HyperPod's API.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from .._common.assets import models_dir
from ..errors import HyperPodError
from .tables import shown

Clients = Callable[[str], Any]
"""A client of each service, with the user's credentials."""

_LOOPBACK = re.compile(r"localhost|::1|127(\.\d+){3}")

ATTEMPTS = 5
"""Attempts of a call that AWS throttles or that does not arrive, with botocore's standard waits in between."""

_READ_S = {"lambda": 75}
"""Seconds for an answer, if it takes longer than others': the drainer may run for a minute."""

_NO_CREDENTIALS = (
    "no AWS credentials found. Name a profile of your AWS configuration by AWS_PROFILE=NAME or --profile NAME"
)
_SIGN_IN = "Sign in again, for example by aws sso login"
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
_UNKNOWN = frozenset(
    {
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "SignatureDoesNotMatch",
        "InvalidSignatureException",
        "IncompleteSignature",
        "AuthFailure",
        "InvalidAccessKeyId",
        "MissingAuthenticationToken",
    }
)
_DENIED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthorizationError",  # of SNS
        "UnauthorizedOperation",
        "Forbidden",
        "403",
    }
)
_THROTTLED = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "SlowDown",
        "429",
    }
)
_BROKEN = frozenset(
    {
        "InternalFailure",
        "InternalError",
        "InternalServerException",
        "ServerException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "500",
        "502",
        "503",
        "504",
    }
)
_GONE = frozenset({"ResourceNotFound", "ResourceNotFoundException"})
_ACTION = re.compile(r"not authorized to perform: ([a-z0-9-]+:\w+)(?: on resource: \"?([^\s\"]+))?")
_OF_S3 = {"GetObject": "s3:GetObject", "PutObject": "s3:PutObject", "HeadBucket": "s3:ListBucket"}
"""S3 may deny a call without naming the permission: its operations, and the permissions they need."""


class AwsError(HyperPodError):
    """AWS cannot be called."""


def user_session(profile: str | None = None) -> Any:
    """botocore's own session, with the user's credentials. Raises AwsError if there are none."""
    # Only commands that call AWS need botocore.
    try:
        import botocore.session  # type: ignore[import-untyped]
        from botocore.loaders import Loader  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise AwsError("this command needs boto3, which is not installed. Install it by pip install boto3") from None
    try:
        session = botocore.session.Session(profile=profile)
        session.register_component("data_loader", Loader(extra_search_paths=[str(models_dir())]))
        parsers = session.get_component("response_parser_factory")
        parsers.set_parser_defaults(timestamp_parser=_timestamp)
        credentials = session.get_credentials()
    except botocore.exceptions.BotoCoreError as error:
        raise AwsError(f"your AWS credentials cannot be read: {error}") from None
    if credentials is None:
        raise AwsError(f"{_NO_CREDENTIALS} (PROFILE=NAME with make)")
    return session


def _timestamp(value: Any) -> datetime:
    """A reply's time, in UTC. botocore's own parser asks for the machine's zone, which takes a fifth of the time of a long list."""
    if isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, UTC)
    from botocore.utils import parse_timestamp  # type: ignore[import-untyped]

    found: datetime = parse_timestamp(value)
    return found


def clients(region: str, profile: str | None = None, endpoint_url: str | None = None) -> Clients:
    """Clients with the user's credentials, which are renewed as long as possible. Raises AwsError if there are none."""
    session = user_session(profile)

    from botocore.config import Config  # type: ignore[import-untyped]

    def config(service: str) -> Any:
        read_s = _READ_S.get(service, 20)
        return Config(
            connect_timeout=5, read_timeout=read_s, retries={"mode": "standard", "total_max_attempts": ATTEMPTS}
        )

    made: dict[str, Any] = {}

    def client(service: str) -> Any:
        if service not in made:
            try:
                made[service] = session.create_client(
                    service, region_name=region, endpoint_url=endpoint_url, config=config(service)
                )
            except ValueError as error:
                raise AwsError(f"{error}. Write https://HOST in --endpoint-url or AWS_ENDPOINT_URL") from None
        return made[service]

    return client


def endpoint(service: str, profile: str | None = None) -> str | None:
    """The endpoint that the user has set for a service, in the environment or in the profile (AWS SDKs and Tools Reference
    Guide, "Service-specific endpoints"). Needs no credentials. None: there is none, or the configuration cannot be read."""
    variable = service.upper().replace("-", "_")
    if given := os.environ.get(f"AWS_ENDPOINT_URL_{variable}") or os.environ.get("AWS_ENDPOINT_URL"):
        return given
    try:
        import botocore.session
    except ModuleNotFoundError:
        return None
    try:
        session = botocore.session.Session(profile=profile)
        own = session.get_scoped_config()
        services = session.full_config.get("services", {}).get(own.get("services"), {})
        # A section of a profile has the service's name with underscores.
        found = services.get(variable.lower(), {}).get("endpoint_url") or own.get("endpoint_url")
        return str(found) if found else None
    except (botocore.exceptions.BotoCoreError, AttributeError):
        return None


def local_endpoint(service: str, profile: str | None, given: str | None) -> str | None:
    """The endpoint of a service if it is on this machine, as the local AWS is. `given`: by --endpoint-url. None: it is AWS's."""
    found = given or endpoint(service, profile) or ""
    try:
        host = urlsplit(found).hostname or ""
    except ValueError:
        return None
    return found if _LOOPBACK.fullmatch(host) else None


def pages(call: Callable[..., Mapping[str, Any]], member: str, **arguments: Any) -> Iterator[Any]:
    """Every item of a list call, read page by page when needed. Raises PaginationError if a token is repeated."""
    from .._lambda.hyperpod.common import api

    return api.pages(call, member, arguments)


def code(error: Exception) -> str:
    """The error's code on the wire; empty for one that never reached AWS."""
    return str((getattr(error, "response", None) or {}).get("Error", {}).get("Code", ""))


def is_denied(error: Exception) -> bool:
    """Whether a permission is missing."""
    return code(error) in _DENIED


def is_passing(error: Exception) -> bool:
    """Whether the same call may succeed later: AWS throttles, has an internal error, or cannot be reached."""
    status = ((getattr(error, "response", None) or {}).get("ResponseMetadata") or {}).get("HTTPStatusCode", 0)
    return code(error) in _THROTTLED | _BROKEN or status >= 500 or (not code(error) and _is_of_network(error))


def _is_of_network(error: Exception) -> bool:
    name = type(error).__name__
    return (
        "Connect" in name or "Timeout" in name or name in ("SSLError", "ProxyConnectionError", "HTTPClientError")
    ) and "Token" not in name


def is_gone(error: Exception) -> bool:
    """Whether the cluster, node or stream does not exist. HyperPod's own code has no suffix "Exception"."""
    return code(error) in _GONE


def sentence(error: Exception) -> str:
    """An error of botocore for the user: what is wrong and what to do, in one printable line."""
    return shown(_sentence(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class _FailedCall:
    """A call that AWS answered with an error."""

    code: str
    operation: str
    message: str


def _sentence(error: Exception) -> str:
    reply = (getattr(error, "response", None) or {}).get("Error", {})
    call = _FailedCall(
        code=code(error),
        operation=str(getattr(error, "operation_name", "") or ""),
        message=" ".join(str(reply.get("Message", "")).split()),
    )
    if not call.code:
        return _unreached(error)
    for codes, words in _SENTENCES:
        if call.code in codes:
            return words(call)
    return f"{call.operation}: {call.code}: {call.message}"


def _expired(_: _FailedCall) -> str:
    return f"your AWS credentials have expired. {_SIGN_IN}"


def _unknown(call: _FailedCall) -> str:
    return f"AWS does not know your credentials ({call.code}). {_SIGN_IN}, or name another --profile"


def _denied(call: _FailedCall) -> str:
    found = _ACTION.search(call.message)
    if found is None:
        action, resource = _OF_S3.get(call.operation, call.operation), None
    else:
        action, resource = found[1], found[2]
    where = f" on {resource}" if resource else ""
    return f"your credentials lack the permission {action}{where}. The command's --help lists what it needs"


def _throttled(call: _FailedCall) -> str:
    return f"AWS throttles {call.operation}, {ATTEMPTS} attempts failed. Try again in a few minutes"


def _broken(call: _FailedCall) -> str:
    return f"{call.operation}: AWS has an internal error ({call.code}), {ATTEMPTS} attempts failed. Try again in a few minutes"


def _gone(call: _FailedCall) -> str:
    return f"{call.operation}: {call.message or 'not found'}"


_LOCAL = re.compile(r"endpoint URL: \"https://127\.0\.0\.1:(\d+)")
"""An endpoint of the local AWS, in an error of botocore."""

_SENTENCES: tuple[tuple[frozenset[str], Callable[[_FailedCall], str]], ...] = (
    (_EXPIRED, _expired),
    (_UNKNOWN, _unknown),
    (_DENIED, _denied),
    (_THROTTLED, _throttled),
    (_BROKEN, _broken),
    (_GONE, _gone),
)
"""Error codes, and the sentence for them."""


def another_account(expected: str | None, account: str) -> str | None:
    """Why credentials of this account do not fit the file; None: they do. `expected`: the file's account; None: it names none."""
    if expected in (None, account):
        return None
    return f"account: the file says {expected}, but your credentials are of {account}. Use other credentials (--profile NAME)"


def _way_to_reach(text: str) -> str:
    """What to do about an address that does not answer. A shell of the local AWS keeps its address after the engine has ended."""
    local = _LOCAL.search(text)
    if local is None:
        return "Check your network, proxy and VPN"
    return (
        f"The local AWS is not running. Start it with `cdk-hyperpod local deploy --port={local[1]}`, and open a new "
        "`cdk-hyperpod local shell`. To use AWS instead, unset AWS_ENDPOINT_URL"
    )


def _unreached(error: Exception) -> str:
    """The sentence for an error that AWS has not sent."""
    name = type(error).__name__
    text = " ".join(str(error).split())
    if name in ("NoCredentialsError", "PartialCredentialsError"):
        return _NO_CREDENTIALS
    if "SSO" in name or "Token" in name or name in ("CredentialRetrievalError", "LoginRefreshRequired"):
        return f"your AWS credentials cannot be renewed: {text}. {_SIGN_IN}"
    if name == "PaginationError":
        return f"AWS's answer is invalid: {text}. Try again in a few minutes"
    if _is_of_network(error):
        return f"AWS cannot be reached: {text}. {_way_to_reach(text)}"
    return f"AWS was not called: {text}"
