"""Rules of the policies of a VPC's endpoints."""

from __future__ import annotations

from collections.abc import Iterator

from ..config.cluster import NetworkConfig
from ..errors import Finding
from ..typed.known import UNKNOWN, is_known
from ..typed.validation import check_repeated

MAX_TRUSTED_ACCOUNTS = 200
"""An endpoint's policy has at most 20,480 characters (AWS PrivateLink quotas, "Characters per VPC endpoint policy") and lists the
accounts up to five times."""


def check_endpoint_policies(network: NetworkConfig, path: str) -> Iterator[Finding]:
    """The policies, and the accounts that they trust."""
    policies = network.endpoint_policies
    yield from check_repeated(network.trusted_accounts, f"{path}.trusted_accounts")
    if isinstance(network.trusted_accounts, tuple) and len(network.trusted_accounts) > MAX_TRUSTED_ACCOUNTS:
        yield Finding(
            code="trusted-accounts-too-many",
            path=f"{path}.trusted_accounts",
            problem=(
                f"there are {len(network.trusted_accounts)} accounts, but an endpoint's policy has room for "
                f"{MAX_TRUSTED_ACCOUNTS}"
            ),
            remedy="name fewer. `endpoint_policies: organization` trusts all accounts of an organization",
        )
    if not is_known(policies):
        return
    if policies == "none":
        yield from _check_without_policies(network, path)
        return
    if network.vpc_id is not None:
        yield Finding(
            code="endpoint-policies-in-existing-vpc",
            path=f"{path}.endpoint_policies",
            problem=("cannot be combined with vpc_id: the owner of an existing VPC sets the policies of its endpoints"),
            remedy="remove it, and set the policies there",
        )
    yield from _check_organization(network, path)
    yield from _check_policies_with_egress(network, path)


def _check_without_policies(network: NetworkConfig, path: str) -> Iterator[Finding]:
    for key, value in (
        ("trusted_accounts", network.trusted_accounts),
        ("organization_id", network.organization_id),
    ):
        if value and value is not UNKNOWN:
            yield Finding(
                code="endpoint-policies-none",
                path=f"{path}.{key}",
                problem="has no effect while endpoint_policies is none",
                remedy="set endpoint_policies, or remove it",
            )


def _check_organization(network: NetworkConfig, path: str) -> Iterator[Finding]:
    if network.endpoint_policies == "organization" and network.organization_id is None:
        yield Finding(
            code="organization-missing",
            path=f"{path}.organization_id",
            problem="is missing, but endpoint_policies is organization",
            remedy="add what `aws organizations describe-organization --query Organization.Id` prints",
        )
    if network.endpoint_policies == "account" and network.organization_id is not None:
        yield Finding(
            code="organization-without-effect",
            path=f"{path}.organization_id",
            problem="has no effect with endpoint_policies: account",
            remedy="remove it, or set endpoint_policies: organization",
        )


def _check_policies_with_egress(network: NetworkConfig, path: str) -> Iterator[Finding]:
    if network.vpc_id is None and network.internet_egress:
        yield Finding(
            code="endpoint-policies-with-internet",
            path=f"{path}.endpoint_policies",
            problem=(
                "does not keep data in with internet_egress: true, since traffic can bypass the endpoints. "
                "The policies apply only to traffic through them, such as to S3 in the region"
            ),
            remedy="set internet_egress: false, or endpoint_policies: none",
            level="warning",
        )
