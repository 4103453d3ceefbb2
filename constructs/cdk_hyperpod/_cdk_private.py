"""Undocumented members of CDK and jsii that the library uses. A release may drop one. tests/unit/common/test_cdk_private.py names each.

This module does not import CDK, because `typed` uses it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aws_cdk import CfnResource, ISynthesisSession, LegacyStackSynthesizer
    from aws_cdk import aws_ec2 as ec2


def properties_as_set(resource: CfnResource) -> Mapping[str, Any]:
    """A resource's properties by CDK's names, tokens unresolved."""
    return resource._cfn_properties


def properties_of(resource: CfnResource) -> dict[str, Any]:
    """A resource's properties by CloudFormation's names, tokens unresolved."""
    return dict(resource._render_properties(resource._cfn_properties))


def arguments_of_selection(selection: ec2.SubnetSelection) -> Mapping[str, Any]:
    """The arguments that a selection of subnets was made with."""
    values: Mapping[str, Any] = selection._values
    return values


def write_template(synthesizer: LegacyStackSynthesizer, session: ISynthesisSession) -> None:
    """Write the template of the stack to which the synthesizer is bound."""
    synthesizer._synthesize_template(session)


def is_interface(kind: Any) -> bool:
    """Whether a type is an interface of jsii."""
    return getattr(kind, "_is_protocol", False) is True


def has_interface(value: object, kind: Any) -> bool:
    """Whether a value implements an interface of jsii, which isinstance cannot check."""
    own = type(value)
    if hasattr(own, "__jsii_type__"):
        return all(hasattr(own, name) for name in dir(kind) if not name.startswith("_"))
    return kind in getattr(own, "__jsii_ifaces__", ()) or hasattr(value, "__jsii_ref__")
