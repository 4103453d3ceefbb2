"""Rules of the account: what the file names by its ARN belongs to the cluster's own account, as a rule."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from ..config.cluster import ClusterConfig
from ..errors import Finding
from ..typed.known import is_known
from ..typed.words import item_paths, join, show


def check_accounts(config: ClusterConfig) -> Iterator[Finding]:
    """A warning for each ARN of another account than the file's, whichever setting it stands in.

    For a role of pods it is an error: EKS takes on those of the cluster's account alone (UpdatePodIdentityAssociation in
    the EKS API reference).
    """
    if config.account is None or not is_known(config.account):
        return
    for path, arn in _arns(config, ""):
        account = arn.split(":")[4]
        if account == config.account:
            continue
        if path.endswith(".pod_role_arn"):
            yield Finding(
                path=path,
                problem=f"{show(arn)} is in account {account}, and EKS gives pods only roles of the "
                f"cluster's account, {config.account}",
                remedy="name a role of the cluster's account, which may assume the other one",
            )
        else:
            yield Finding(
                path=path,
                problem=f"{show(arn)} is in account {account}, and the cluster in {config.account}",
                remedy="name one of the cluster's account, or make sure that you mean the other account, and that it lets you in",
                level="warning",
                code="foreign-account",
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
