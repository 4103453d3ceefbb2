"""Rules of `eks.add_ons`: what EKS would refuse, and settings without effect.

Sources: CreateAddon in the EKS API reference, and `aws eks describe-addon-configuration`. EKS validates ConfigurationValues by
each add-on's own schema, which differs between versions. These rules know only what holds for every version.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping

from ..config.eks import AddOn, AddOnsConfig, EksConfig, is_on
from ..errors import Finding
from ..typed.known import is_known
from ..typed.words import join, shown_name

MAX_CONFIGURATION = 16_384
"""Characters of an add-on's settings as JSON. EKS documents no limit. A template may have 1 MB in all."""
OWN_SETTINGS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "observability": (("ampWorkspace",), ("logging", "enabled")),
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
