"""The environment that makes a program use the engine as AWS, without any variable that could lead it to the real
AWS."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import boto3  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]

from cdk_hyperpod_local import installation
from cdk_hyperpod_local.places import BIN, Place

ACCOUNT = "000000000000"
"""The engine takes the access key id as the account number. This one is used if a config names no account."""

_FOREIGN = ("AWS_", "CDK_", "JSII_", "BOTO_", "PYTHON", "NODE_", "npm_")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_OTHER_AWS = ("AWS_", "BOTO_", "CDK_DEFAULT_")
_LOOPBACK = ("127.0.0.1", "localhost")


def variables(
    place: Place, *, region: str, account: str = ACCOUNT, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables that make a program use the engine. The command `shell` prints them."""
    direct = _no_proxy(os.environ if base is None else base)
    return {
        "AWS_ENDPOINT_URL": place.url,
        "AWS_ACCESS_KEY_ID": account,
        "AWS_SECRET_ACCESS_KEY": secret(place),
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_CA_BUNDLE": str(place.authority),
        "NODE_EXTRA_CA_CERTS": str(place.authority),
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_PAGER": "",
        # Programs that read both variables use the lower-case one.
        "NO_PROXY": direct,
        "no_proxy": direct,
    }


def secret(place: Place) -> str:
    """The secret that the running engine accepts. If none is running, a word that no engine accepts."""
    try:
        return place.secret.read_text("utf-8")
    except FileNotFoundError:
        return "none"


def foreign(given: Mapping[str, str], made: Mapping[str, str]) -> list[str]:
    """The caller's variables to unset in a shell that uses `made`, because they could lead to another AWS.

    `complete` removes more. This shell is the caller's own, so it keeps their proxy and PYTHONPATH.
    """
    return sorted(name for name in given if name.startswith(_OTHER_AWS) and name.isidentifier() and name not in made)


def complete(
    place: Place, *, region: str, account: str = ACCOUNT, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """A whole environment: the caller's, without any variable of another AWS, plus `variables` and our programs."""
    given = os.environ if base is None else base
    kept = {
        name: value for name, value in given.items() if not name.startswith(_FOREIGN) and name.lower() not in _PROXIES
    }
    quiet = {
        # Usage reports and notices use the network and slow every command down.
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "true",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return kept | quiet | variables(place, region=region, account=account, base=given) | {"PATH": path(kept)}


def path(given: Mapping[str, str]) -> str:
    """The caller's PATH after our programs: Node.js, Python's, and the CDK CLI."""
    return os.pathsep.join([str(installation.current().programs), str(BIN), given.get("PATH", os.defpath)])


def is_styled() -> bool:
    """Whether to print bold type and progress bars: only on a terminal that supports them, unless NO_COLOR is set
    (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def client(
    place: Place, service: str, *, region: str, account: str = ACCOUNT, secret: str, token: str | None = None
) -> Any:
    """A boto3 client of the engine that reads no settings but its arguments.

    `account`: an account number, or the id of a session's key, with its `token`.
    """
    session = boto3.session.Session(
        aws_access_key_id=account, aws_secret_access_key=secret, aws_session_token=token, region_name=region
    )
    return session.client(
        service,
        endpoint_url=place.url,
        verify=str(place.authority),
        config=Config(
            retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=30, proxies={"https": "", "http": ""}
        ),
    )


def _no_proxy(given: Mapping[str, str]) -> str:
    """The caller's hosts that are reached without a proxy, and this machine."""
    named = ",".join(filter(None, (given.get("no_proxy"), given.get("NO_PROXY"))))
    hosts = list(dict.fromkeys([*filter(None, map(str.strip, named.split(","))), *_LOOPBACK]))
    return "*" if "*" in hosts else ",".join(hosts)
