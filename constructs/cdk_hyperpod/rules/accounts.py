"""Rules of the account: ARNs in the file usually belong to the cluster's own account."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from ..config.cluster import ClusterConfig
from ..errors import Finding
from ..typed.known import is_known
from ..typed.words import item_paths, join, show


def check_accounts(config: ClusterConfig) -> Iterator[Finding]:
    """A warning for each ARN of another account than the file's, in every setting.

    For a role of pods it is an error: EKS accepts only roles of the cluster's account (UpdatePodIdentityAssociation in the EKS
    API reference).
    """
    if config.account is None or not is_known(config.account):
        return
    own_account = config.account
    for path, arn in _arns(config, ""):
        account = arn.split(":")[4]
        if account == own_account:
            continue
        if path.endswith(".pod_role_arn"):
            yield Finding(
                code="pod-role-in-another-account",
                path=path,
                problem=(
                    f"{show(arn)} is in account {account}, but EKS gives pods only roles of the cluster's account, "
                    f"{own_account}"
                ),
                remedy="name a role of the cluster's account, which may assume the other one",
            )
        else:
            yield Finding(
                code="arn-in-another-account",
                path=path,
                problem=f"{show(arn)} is in account {account}, but the cluster is in {own_account}",
                remedy=(
                    "name one of the cluster's account, or make sure that the other account is intended and "
                    "grants access"
                ),
                level="warning",
            )


def _arns(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Path and text of every ARN with an account, at any depth."""
    if isinstance(value, str):
        if re.match(r"arn:aws:[a-z-]+:[a-z0-9-]*:[0-9]{12}:", value) and is_known(value):
            yield path, value
    elif isinstance(value, tuple):
        for item_path, item in zip(item_paths(path, value), value, strict=True):
            yield from _arns(item, item_path)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _arns(getattr(value, field.name), join(path, field.name))
