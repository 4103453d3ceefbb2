"""A VPC that the caller gives as `vpc` and `vpc_subnets`: the nodes' subnets, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jsii
from aws_cdk import IStableStringProducer, Lazy
from aws_cdk import aws_ec2 as ec2

from .._cdk_private import arguments_of_selection
from ..config.cluster import SubnetConfig
from ..errors import Finding

_DUMMY_VPC = "vpc-12345"
"""The id of CDK's dummy VPC, in the first pass of a look-up (aws-cdk-lib, aws-ec2/lib/vpc.ts)."""
_DUMMY_ZONE = "dummy1a"
"""A dummy zone of an account (core/lib/stack.ts). A VPC that the app makes has them."""
_UNKNOWN_ITEMS = "#{Token["
"""The only item of a list that is known at deployment only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenVpc:
    """A VPC that this app makes or imports."""

    vpc: ec2.IVpc
    vpc_id: str
    subnets: Sequence[ec2.ISubnet]
    """The nodes' subnets, one in each zone."""
    is_looked_up: bool
    """False: CDK has not looked it up yet, so its zones are unknown."""

    def subnet_configs(self) -> Sequence[SubnetConfig]:
        """The subnets as a file has them."""
        config_of = _subnet_config if self.is_looked_up else _placeholder_config
        return [config_of(subnet) for subnet in self.subnets]


@dataclass(frozen=True, slots=True)
class VpcChoice:
    """The VPC that the arguments give, and what is wrong with it."""

    given: GivenVpc | None = None
    """None: no VPC is given, or none of its subnets can be used."""
    findings: Sequence[Finding] = ()


def choose_vpc(vpc: ec2.IVpc | None, selection: ec2.SubnetSelection | None) -> VpcChoice:
    """The VPC with the subnets that the selection chooses, one in each zone, none of them public."""
    if vpc is None:
        return VpcChoice()
    is_looked_up = vpc.vpc_id != _DUMMY_VPC and _DUMMY_ZONE not in vpc.availability_zones
    # A dummy VPC has neither the zones nor the subnet groups that the selection names.
    used_selection = selection if is_looked_up else None
    try:
        subnets = _select_subnets(vpc, used_selection)
    except RuntimeError as error:
        return VpcChoice(findings=[_no_subnets(selection, _first_sentence(error))])
    if not subnets:
        return VpcChoice(findings=[_no_subnets(selection, "none fits")])
    if any(subnet.subnet_id.startswith(_UNKNOWN_ITEMS) for subnet in subnets):
        return VpcChoice(findings=[_unknown_length()])
    given = GivenVpc(
        vpc=vpc,
        vpc_id=vpc.vpc_id if is_looked_up else _placeholder(vpc.vpc_id),
        subnets=subnets,
        is_looked_up=is_looked_up,
    )
    return VpcChoice(given, [*_check_private_subnets(given)])


def _select_subnets(vpc: ec2.IVpc, selection: ec2.SubnetSelection | None) -> Sequence[ec2.ISubnet]:
    arguments = {} if selection is None else arguments_of_selection(selection)
    return vpc.select_subnets(**{**arguments, "one_per_az": True}).subnets


def check_one_vpc(vpc: object, vpc_subnets: object, vpc_id: object, subnets: object) -> Iterator[Finding]:
    """The VPC must be given in one way only, and `vpc_subnets` needs a `vpc`."""
    if vpc is not None and (vpc_id is not None or subnets):
        yield Finding(
            code="vpc-given-twice",
            path="vpc",
            problem="cannot be combined with vpc_id or subnets",
            remedy="use one of them",
        )
    if vpc is None and isinstance(vpc_subnets, ec2.SubnetSelection):
        yield Finding(
            code="vpc-subnets-without-vpc",
            path="vpc_subnets",
            problem="chooses among the subnets of vpc, which is missing",
            remedy="give the vpc",
        )


def _check_private_subnets(given: GivenVpc) -> Iterator[Finding]:
    """Nodes must not be in public subnets."""
    public = {subnet.subnet_id for subnet in given.vpc.public_subnets}
    if any(subnet.subnet_id in public for subnet in given.subnets):
        yield Finding(
            code="vpc-subnets-public",
            path="vpc_subnets",
            problem="chooses public subnets, where a node reaches nothing because it has no public address",
            remedy="choose private subnets of the vpc, or make some",
        )


def _unknown_length() -> Finding:
    return Finding(
        code="vpc-subnets-count-unknown",
        path="vpc",
        problem="has a list of subnets whose length is known at deployment only",
        remedy="use Fn.import_list_value, or Fn.select for each subnet",
    )


def _no_subnets(selection: ec2.SubnetSelection | None, why: str) -> Finding:
    if selection is None:
        return Finding(
            code="vpc-without-subnets",
            path="vpc",
            problem="has no subnets that CDK knows of",
            remedy="import it with Vpc.from_lookup, or name private_subnet_ids and availability_zones in Vpc.from_vpc_attributes",
        )
    return Finding(
        code="vpc-subnets-match-none",
        path="vpc_subnets",
        problem=f"matches none of the vpc's subnets that CDK knows of ({why})",
        remedy="choose private subnets of the vpc",
    )


def _first_sentence(error: RuntimeError) -> str:
    """The first sentence of CDK's error, without its type and stack trace."""
    first = str(error).strip().splitlines()[0] if str(error).strip() else "CDK does not say why"
    return re.sub(r"^(\w+: )+", "", first).split(". ")[0]


def _cidr_of(subnet: ec2.ISubnet) -> str | None:
    try:
        return subnet.ipv4_cidr_block
    except RuntimeError:
        return None  # the subnet was imported without a range


def _subnet_config(subnet: ec2.ISubnet) -> SubnetConfig:
    return SubnetConfig(subnet_id=subnet.subnet_id, availability_zone=subnet.availability_zone, cidr=_cidr_of(subnet))


def _placeholder_config(subnet: ec2.ISubnet) -> SubnetConfig:
    return SubnetConfig(
        subnet_id=_placeholder(subnet.subnet_id), availability_zone=_placeholder(subnet.availability_zone)
    )


def _placeholder(text: str) -> str:
    """A token for CDK's dummy value, so that no rule validates it."""
    return Lazy.string(_Text(text))


@jsii.implements(IStableStringProducer)
class _Text:
    def __init__(self, text: str) -> None:
        self._text = text

    def produce(self) -> str:
        return self._text
