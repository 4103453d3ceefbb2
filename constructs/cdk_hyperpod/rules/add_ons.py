"""Rules of `eks.add_ons`: what EKS would refuse, and settings without effect.

Sources: CreateAddon in the EKS API reference, and `aws eks describe-addon-configuration`. EKS validates ConfigurationValues by
each add-on's own schema, which differs between versions. These rules know only what holds for every version.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping

from ..config.eks import AddOn, AddOnsConfig, EksConfig, ObservabilityAddOn, is_on
from ..errors import Finding
from ..typed.known import is_known
from ..typed.validation import check_repeated
from ..typed.words import join, shown_name

MAX_CONFIGURATION = 16_384
"""Characters of an add-on's settings as JSON. EKS documents no limit. A template may have 1 MB in all."""
MAX_NAMES = 20
"""Buckets or keys of one add-on's role."""
OWN_SETTINGS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "observability": (("ampWorkspace",), ("logging", "enabled")),
    "ebs_csi_driver": (("controller", "k8sTagClusterId"),),
}
"""What the library sets in an add-on's configuration, by paths in it."""
_WITHOUT_CONFIGURATION = ("task_governance",)
"""Add-ons whose schema has no settings (`aws eks describe-addon-configuration`, v1.6.1)."""
_SECRET_KEY = re.compile(
    r"(password|passwd|passphrase|secret|token|apikey|accesskey|secretkey|privatekey|credentials?)$"
)
_SECRET_TEXT = re.compile(r"\b(AKIA|ASIA)[0-9A-Z]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY|\bgh[pousr]_[A-Za-z0-9]{30}")


def check_add_ons(eks: EksConfig, *, has_file_system: bool | None) -> Iterator[Finding]:
    """Everything that is wrong with the add-ons. `has_file_system`: None if that is not known."""
    if not isinstance(eks.add_ons, AddOnsConfig):
        return
    for field in dataclasses.fields(AddOnsConfig):
        add_on = getattr(eks.add_ons, field.name)
        if isinstance(add_on, AddOn):
            # If it is not known whether the CSI driver is on, it counts as on.
            on = is_on(eks, field.name, has_file_system=has_file_system is not False)
            yield from _check_enabled(eks, field.name, add_on, on=on)
            if isinstance(add_on.configuration, Mapping) and add_on.configuration:
                yield from _check_configuration(field.name, add_on.configuration)
    yield from _check_agent(eks)
    for name in ("s3_csi_driver", "ebs_csi_driver"):
        for setting in ("buckets", "kms_key_arns"):
            values = getattr(getattr(eks.add_ons, name), setting, ())
            yield from _check_list(values, f"eks.add_ons.{name}.{setting}")


def check_workspace(eks: EksConfig, *, region: str, account: str | None) -> Iterator[Finding]:
    """Whether observability can write to the existing workspace."""
    add_ons = eks.add_ons
    add_on = add_ons.observability if isinstance(add_ons, AddOnsConfig) else None
    arn = add_on.workspace_arn if isinstance(add_on, ObservabilityAddOn) else None
    if arn is None or not is_known(arn):
        return
    of_region, of_account = arn.split(":")[3:5]
    if is_known(region) and of_region != region:
        yield Finding(
            code="workspace-of-another-region",
            path="eks.add_ons.observability.workspace_arn",
            problem=f"is in {shown_name(of_region)}, but the cluster is in {region}",
            remedy=f"name a workspace of {region}, or remove it for a new one",
        )
    if account is not None and is_known(account) and of_account != account:
        yield Finding(
            code="workspace-of-another-account",
            path="eks.add_ons.observability.workspace_arn",
            problem=f"is of the account {of_account}, in which the add-on's role may not write",
            remedy=f"name a workspace of {account}, or remove it for a new one",
        )


def _check_agent(eks: EksConfig) -> Iterator[Finding]:
    """Roles of add-ons in an existing EKS cluster, in which this library does not install the pod identity agent by itself."""
    if is_on(eks, "eks_pod_identity_agent", has_file_system=False):
        return
    with_roles = {
        "s3_csi_driver": "buckets",
        "fsx_csi_driver": "storage_class",
        "ebs_csi_driver": "enabled",
    }
    for name, setting in with_roles.items():
        if getattr(getattr(eks.add_ons, name), setting, None):
            yield Finding(
                code="add-on-role-without-agent",
                path=f"eks.add_ons.{name}",
                problem="has a role, for which its pods need EKS's pod identity agent, but that add-on is off",
                remedy="set eks.add_ons.eks_pod_identity_agent.enabled: true, unless the EKS cluster already has it",
                level="warning",
            )


def _check_list(values: object, path: str) -> Iterator[Finding]:
    yield from check_repeated(values, path)
    if isinstance(values, tuple) and len(values) > MAX_NAMES:
        yield Finding(
            code="add-on-list-too-long",
            path=path,
            problem=f"has {len(values)} entries, and a policy has at most 6,144 characters",
            remedy=f"use at most {MAX_NAMES}",
        )


def _check_enabled(eks: EksConfig, name: str, add_on: AddOn, *, on: bool) -> Iterator[Finding]:
    place = f"eks.add_ons.{name}"
    if name in REQUIRED and add_on.enabled is False and eks.existing_cluster is None:
        yield Finding(
            code="add-on-required",
            path=f"{place}.enabled",
            problem="cannot be false: a new EKS cluster does not work without this add-on",
            remedy="remove the line",
        )
    for setting in () if on else _settings(add_on):
        yield Finding(
            code="add-on-off",
            path=f"{place}.{setting}",
            problem="is a setting of an add-on that is off",
            remedy="add enabled: true, or remove it",
        )


REQUIRED = ("vpc_cni", "kube_proxy", "eks_pod_identity_agent", "coredns")
"""The add-ons without which a new EKS cluster does not work."""


def _settings(add_on: AddOn) -> list[str]:
    """The settings that the file names, besides `enabled`."""
    return [
        field.name for field in dataclasses.fields(add_on) if field.name != "enabled" and getattr(add_on, field.name)
    ]


def _check_configuration(name: str, configuration: Mapping[str, object]) -> Iterator[Finding]:
    place = f"eks.add_ons.{name}.configuration"
    size = len(json.dumps(configuration, default=list))
    if name in _WITHOUT_CONFIGURATION:
        yield Finding(
            code="add-on-without-configuration",
            path=place,
            problem="is for an add-on that has no settings, so EKS would refuse it",
            remedy="remove it",
        )
    if size > MAX_CONFIGURATION:
        yield Finding(
            code="add-on-configuration-too-long",
            path=place,
            problem=f"has {size:,} characters as JSON",
            remedy=f"use at most {MAX_CONFIGURATION:,}",
        )
    for path in OWN_SETTINGS.get(name, ()):
        if _has(configuration, path):
            setting = ".".join(path)
            yield Finding(
                code="add-on-configuration-of-library",
                path=join(place, setting),
                problem="is set by the library, and cannot be changed here",
                remedy="remove it",
            )
    for where in _secrets(configuration, ""):
        yield Finding(
            code="add-on-configuration-secret",
            path=join(place, where),
            problem="looks like a secret, and everybody who may read the template can read it",
            remedy="put it into a Kubernetes Secret, and name that, or give the add-on's pods an IAM role",
        )


def _has(value: object, path: tuple[str, ...]) -> bool:
    """Whether the value has a setting at the path, or a plain value where settings lead to it."""
    for key in path:
        if not isinstance(value, Mapping):
            return True
        if key not in value:
            return False
        value = value[key]
    return True


def _secrets(value: object, place: str) -> Iterator[str]:
    """The places of texts that look like secrets. The texts themselves must not appear in a message."""
    match value:
        case Mapping():
            named = value.get("name")
            for key, held in value.items():
                # An environment variable: {name: API_TOKEN, value: …}.
                is_secret = _names_secret(named if key == "value" else key) and isinstance(held, str) and held
                where = f"{place}.{shown_name(key)}" if place else shown_name(key)
                yield from [where] if is_secret else _secrets(held, where)
        case list() | tuple():
            for index, held in enumerate(value):
                yield from _secrets(held, f"{place}[{index}]")
        case str() if is_known(value) and _SECRET_TEXT.search(value):
            yield place


def _names_secret(name: object) -> bool:
    return isinstance(name, str) and _SECRET_KEY.search(re.sub(r"[^a-z]", "", name.lower())) is not None
