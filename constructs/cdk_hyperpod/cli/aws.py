"""AWS with the user's credentials: a session, clients, and the one sentence for each way in which it cannot be asked.

SageMaker's client comes with the API model that is pinned for the Lambda functions, because the user's boto3 may be older
than HyperPod's API.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from .._common.assets import models_dir
from ..errors import HyperPodError
from .tables import shown

Clients = Callable[[str], Any]
"""A client of each service, with the user's credentials."""

ATTEMPTS = 5
"""How often a call is made that AWS throttles or that does not arrive, with botocore's standard waits in between."""

_NO_CREDENTIALS = (
    "there are no AWS credentials; name a profile of your AWS configuration: AWS_PROFILE=NAME, or --profile NAME"
)
_SIGN_IN = "sign in again (aws sso login, or whatever gave you the credentials)"
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
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "Forbidden", "403"})
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
"""S3 may refuse without a word; its operations, and what they need."""


class AwsError(HyperPodError):
    """AWS cannot be asked."""


def user_session(profile: str | None = None) -> Any:
    """botocore's own session, with the user's credentials. Raises AwsError where there are none."""
    # Only what asks AWS needs botocore.
    try:
        import botocore.session  # type: ignore[import-untyped]
        from botocore.loaders import Loader  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise AwsError("this command reads AWS with boto3, which is not installed: pip install boto3") from None
    try:
        session = botocore.session.Session(profile=profile)
        session.register_component("data_loader", Loader(extra_search_paths=[str(models_dir())]))
        parsers = session.get_component("response_parser_factory")
        parsers.set_parser_defaults(timestamp_parser=_moment)
        credentials = session.get_credentials()
    except botocore.exceptions.BotoCoreError as error:
        raise AwsError(f"your AWS credentials cannot be read: {error}") from None
    if credentials is None:
        raise AwsError(f"{_NO_CREDENTIALS} (PROFILE=NAME with make)")
    return session


def _moment(value: Any) -> datetime:
    """A reply's time, in UTC. botocore's own way by the machine's zone takes a fifth of a long list."""
    if isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, UTC)
    from botocore.utils import parse_timestamp  # type: ignore[import-untyped]

    found: datetime = parse_timestamp(value)
    return found


def clients(region: str, profile: str | None = None, endpoint_url: str | None = None) -> Clients:
    """Clients with the user's credentials, which are renewed as long as they can be. Raises AwsError where there are none."""
    session = user_session(profile)

    from botocore.config import Config  # type: ignore[import-untyped]

    config = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": ATTEMPTS})
    made: dict[str, Any] = {}

    def client(service: str) -> Any:
        if service not in made:
            try:
                made[service] = session.create_client(
                    service, region_name=region, endpoint_url=endpoint_url, config=config
                )
            except ValueError as error:
                raise AwsError(f"{error}; write https://HOST (--endpoint-url, AWS_ENDPOINT_URL)") from None
        return made[service]

    return client


def has_endpoint(service: str, profile: str | None = None) -> bool:
    """Whether the user has set another endpoint for a service than AWS's own: in the environment, or in the profile (AWS SDKs and
    Tools Reference Guide, "Service-specific endpoints"). Needs no credentials, and raises nothing: what cannot be read sets none."""
    if os.environ.get("AWS_ENDPOINT_URL") or os.environ.get(f"AWS_ENDPOINT_URL_{service.upper()}"):
        return True
    try:
        import botocore.session
    except ModuleNotFoundError:
        return False
    try:
        session = botocore.session.Session(profile=profile)
        own = session.get_scoped_config()
        services = session.full_config.get("services", {}).get(own.get("services"), {})
        return bool(own.get("endpoint_url") or services.get(service, {}).get("endpoint_url"))
    except (botocore.exceptions.BotoCoreError, AttributeError):
        return False


def pages(call: Callable[..., Mapping[str, Any]], member: str, **arguments: Any) -> Iterator[Any]:
    """Every item of a list call; a page is asked for when it is needed. Raises PaginationError if a token comes again."""
    from .._lambda.hyperpod.common import api

    return api.pages(call, member, arguments)


def code(error: Exception) -> str:
    """The error's code on the wire; empty for one that never reached AWS."""
    return str((getattr(error, "response", None) or {}).get("Error", {}).get("Code", ""))


def is_denied(error: Exception) -> bool:
    """A permission is missing."""
    return code(error) in _DENIED


def is_passing(error: Exception) -> bool:
    """Trouble that passes by itself: AWS throttles, has a fault of its own, or cannot be reached."""
    status = ((getattr(error, "response", None) or {}).get("ResponseMetadata") or {}).get("HTTPStatusCode", 0)
    return code(error) in _THROTTLED | _BROKEN or status >= 500 or (not code(error) and _is_of_network(error))


def _is_of_network(error: Exception) -> bool:
    name = type(error).__name__
    return (
        "Connect" in name or "Timeout" in name or name in ("SSLError", "ProxyConnectionError", "HTTPClientError")
    ) and "Token" not in name


def is_gone(error: Exception) -> bool:
    """There is no such cluster, node or stream; HyperPod's own code has no suffix "Exception"."""
    return code(error) in _GONE


def sentence(error: Exception) -> str:
    """What to tell the user of an error of botocore's: what is wrong and what to do, in one printable sentence."""
    return shown(_sentence(error))


def _sentence(error: Exception) -> str:
    said = " ".join(str((getattr(error, "response", None) or {}).get("Error", {}).get("Message", "")).split())
    operation = str(getattr(error, "operation_name", "") or "")
    match code(error):
        case name if name in _EXPIRED:
            return f"your AWS credentials have expired: {_SIGN_IN}"
        case name if name in _UNKNOWN:
            return f"AWS does not know your credentials ({name}): {_SIGN_IN}, or name another --profile"
        case name if name in _DENIED:
            found = _ACTION.search(said)
            action = found[1] if found else _OF_S3.get(operation, operation)
            where = f" on {found[2]}" if found and found[2] else ""
            return f"your credentials lack the right {action}{where}; the command's --help lists what it needs"
        case name if name in _THROTTLED:
            return f"AWS throttles {operation}, after {ATTEMPTS} attempts still; try again in some minutes"
        case name if name in _BROKEN:
            return f"{operation}: AWS has a fault of its own ({name}), after {ATTEMPTS} attempts still; try again in some minutes"
        case name if name in _GONE:
            return f"{operation}: {said or 'not found'}"
        case "":
            return _unreached(error)
        case name:
            return f"{operation}: {name}: {said}"


def another_account(wanted: str | None, account: str) -> str | None:
    """Why credentials of this account are not for a file; None: they are. `wanted`: what the file says; None: nothing."""
    if wanted in (None, account):
        return None
    return f"account: the file says {wanted}, your credentials are of {account}; use others (--profile NAME)"


def _unreached(error: Exception) -> str:
    """Of an error that AWS has not sent."""
    name = type(error).__name__
    text = " ".join(str(error).split())
    if name in ("NoCredentialsError", "PartialCredentialsError"):
        return _NO_CREDENTIALS
    if "SSO" in name or "Token" in name or name in ("CredentialRetrievalError", "LoginRefreshRequired"):
        return f"your AWS credentials cannot be renewed: {text}; {_SIGN_IN}"
    if name == "PaginationError":
        return f"AWS's answer cannot be used: {text}; try again in some minutes"
    if _is_of_network(error):
        return f"AWS cannot be reached: {text}; look at your network, and at a proxy or VPN"
    return f"AWS was not asked: {text}"
