"""A running engine for a program: boto3 clients, the journal, and switches that AWS does not have."""

from __future__ import annotations

import functools
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from cdk_hyperpod_local import environment
from cdk_hyperpod_local.places import Place

Json = Any


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One call in the journal."""

    at: float
    who: str
    service: str
    operation: str
    request: Json
    outcome: str
    """ "ok", or the error's code."""
    message: str
    status: int
    reply: str
    """ "delivered", "lost" or "killed"."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """A permission that IAM checked for a role."""

    at: float
    who: str
    action: str
    resource: str
    allowed: bool


@dataclass(frozen=True, kw_only=True)
class LocalAws:
    place: Place
    region: str
    account: str = environment.ACCOUNT

    def client(self, service: str) -> Any:
        return _client(self.place, service, self.region, self.account, environment.secret(self.place))

    def client_as(self, role: str, service: str) -> Any:
        """A client with a session of the role of this name."""
        arn = f"arn:aws:iam::{self.account}:role/{role}"
        given = self.client("sts").assume_role(RoleArn=arn, RoleSessionName="test")["Credentials"]
        return environment.client(
            self.place,
            service,
            region=self.region,
            account=given["AccessKeyId"],
            secret=given["SecretAccessKey"],
            token=given["SessionToken"],
        )

    def journal(self, *, since: int = 0, operation: str | None = None) -> list[Entry]:
        """Every HyperPod, FSx and EKS call after entry number `since`, of one operation (absent: of all)."""
        lines = self.place.journal.read_text("utf-8").splitlines()[since:]
        entries = [Entry(**json.loads(line)) for line in lines]
        return [entry for entry in entries if operation in (None, entry.operation)]

    def checks(self, *, since: int = 0, role: str | None = None) -> list[Check]:
        """Every permission that IAM checked after check number `since`, for the role of this name (absent: for all)."""
        lines = self.place.checks.read_text("utf-8").splitlines()[since:]
        checks = [Check(**json.loads(line)) for line in lines]
        return [check for check in checks if role is None or f":assumed-role/{role}/" in check.who]

    def hyperpod(self) -> Json:
        """State that no API shows: `terminations` and `random_terminations`, each with its cause, and `re_images`."""
        return self._control("GET", "hyperpod")

    def change_hyperpod(self, **wanted: Json) -> None:
        """Set fields of `faults`, `behaviour`, `timings` and `handler`, and these:

        `capacity`, `quota`: instance type -> limit or None. `quotas`: name of a quota -> value or None. `plans`:
        training plans. `nodes`: instance id -> the changed fields of a node, such as `address`. `node_faults`:
        instance id -> a fault that the health monitoring agent finds (`reason`, `message`, `severity`).
        `used_storage`: file system -> the share of it that is used. `image`: `version` of a newer platform image, and the
        ImageVersionStatus of the `older` ones (absent: UpdateAvailable). `handler`: CloudFormation's, of
        AWS::SageMaker::Cluster. `defaults=True` resets everything but the nodes and the image first.
        """
        self._control("POST", "hyperpod", wanted)

    def skip(self, seconds: float) -> None:
        """Move the clock of Lambda functions forward, so that a test need not wait for a limit of an hour.

        The times of HyperPod, FSx and Step Functions do not change.
        """
        self._control("POST", "clock", seconds)

    def _control(self, method: str, name: str, body: Json = None) -> Json:
        request = urllib.request.Request(
            f"{self.place.url}/_local_aws/{name}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Content-Type": "application/json",
                "Authorization": f"Bearer {environment.secret(self.place)}",
            },
        )
        context = ssl.create_default_context(cafile=str(self.place.authority))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(request, timeout=30) as reply:
                return json.loads(reply.read())
        except urllib.error.HTTPError as error:
            raise ValueError(f"the engine refused {name}: {error.read().decode('utf-8', 'replace')}") from error


@functools.cache
def _client(place: Place, service: str, region: str, account: str, secret: str) -> Any:
    """Creating a client takes longer than most of its calls."""
    return environment.client(place, service, region=region, account=account, secret=secret)
