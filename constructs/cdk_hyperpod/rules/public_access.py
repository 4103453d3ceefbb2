"""Rules of the addresses from which the API of an EKS cluster can be reached."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from ..errors import Finding
from ..typed.known import is_known
from ..typed.validation import check_repeated
from ..typed.words import show
from .network import PRIVATE


def check_public_access(cidrs: tuple[str, ...]) -> Iterator[Finding]:
    """Ranges that EKS refuses, and ranges that are wide."""
    path = "eks.public_access_cidrs"
    yield from check_repeated(cidrs, path)
    good: list[ipaddress.IPv4Network] = []
    for index, cidr in enumerate(cidrs if isinstance(cidrs, tuple) else ()):
        if not is_known(cidr):
            continue
        try:
            parsed = ipaddress.IPv4Network(cidr, strict=False)
        except ValueError:
            yield Finding(
                code="cidr-invalid",
                path=f"{path}[{index}]",
                problem=f"{show(cidr)} is not an IPv4 range",
                remedy="use one such as 203.0.113.0/24, or 203.0.113.5/32 for one address",
            )
            continue
        if any(parsed.subnet_of(inside) for inside in (*PRIVATE, *_LOCAL)):
            yield Finding(
                code="public-access-private-range",
                path=f"{path}[{index}]",
                problem=(
                    f"{show(cidr)} is a private range, which EKS refuses, since no client comes from there over "
                    "the internet"
                ),
                remedy="name public addresses, or remove it. Clients in the VPC have access without it",
            )
        elif str(parsed) != cidr:
            address = cidr.partition("/")[0]
            yield Finding(
                code="cidr-with-host-bits",
                path=f"{path}[{index}]",
                problem=f"{show(cidr)} is not the first address of a range",
                remedy=f"use {parsed}, or {address}/32 for the one address",
            )
        else:
            good.append(parsed)
    # 0.0.0.0/1 and 128.0.0.0/1 together are the whole internet.
    addresses = sum(network.num_addresses for network in ipaddress.collapse_addresses(good))
    if addresses == 2**32:
        yield Finding(
            code="public-access-for-everyone",
            path=path,
            problem="lets the whole internet reach the API, so only its authentication protects it",
            remedy="name the addresses that need access, or remove it, so that the API can be reached from the VPC only",
            level="warning",
        )
    elif addresses > MANY_ADDRESSES:
        size = f"{addresses:,}"
        yield Finding(
            code="public-access-wide",
            path=path,
            problem=f"lets {size} addresses reach the API, so only its authentication protects it",
            remedy="name the addresses that need access, or remove it, so that the API can be reached from the VPC only",
            level="warning",
        )


MANY_ADDRESSES = 2**16
"""A /16. More addresses than this do not belong to one organization. docs/eks.md names the number."""

_LOCAL = (ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv4Network("169.254.0.0/16"))
