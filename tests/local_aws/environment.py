"""What a program needs in its environment to take the engine for AWS, and nothing that could lead it to the real one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import boto3  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]

from local_aws.places import CDK, Place, programs

ACCOUNT = "000000000000"
"""The engine takes the access key for the account's number. This one is used where a config names no account."""
SECRET = "local"

_FOREIGN = ("AWS_", "CDK_", "JSII_", "BOTO_", "PYTHON", "NODE_", "npm_")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def variables(place: Place, *, region: str, account: str = ACCOUNT) -> dict[str, str]:
    """The variables that make the difference; `shell-local` prints them."""
    return {
        "AWS_ENDPOINT_URL": place.url,
        "AWS_ACCESS_KEY_ID": account,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_CA_BUNDLE": str(place.authority),
        "NODE_EXTRA_CA_CERTS": str(place.authority),
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_PAGER": "",
        "NO_PROXY": "127.0.0.1,localhost",
    }


def complete(
    place: Place, *, region: str, account: str = ACCOUNT, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """A whole environment: the caller's, without anything of another AWS, plus `variables` and our programs."""
    given = os.environ if base is None else base
    kept = {
        name: value for name, value in given.items() if not name.startswith(_FOREIGN) and name.lower() not in _PROXIES
    }
    path = os.pathsep.join([*map(str, programs()), str(CDK.parent), kept.get("PATH", os.defpath)])
    quiet = {
        # Usage reports and notices need the network and slow every command down.
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "true",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return kept | quiet | variables(place, region=region, account=account) | {"PATH": path}


def client(place: Place, service: str, *, region: str, account: str = ACCOUNT) -> Any:
    """A boto3 client of the engine that looks at nothing but its arguments."""
    session = boto3.session.Session(aws_access_key_id=account, aws_secret_access_key=SECRET, region_name=region)
    return session.client(
        service,
        endpoint_url=place.url,
        verify=str(place.authority),
        config=Config(
            retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=30, proxies={"https": "", "http": ""}
        ),
    )
