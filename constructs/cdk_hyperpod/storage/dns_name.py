"""The DNS name of an existing FSx file system, of Lustre and of OpenZFS."""

from __future__ import annotations

from aws_cdk import Stack
from constructs import Construct


def file_system_dns_name(scope: Construct, file_system_id: str | None) -> str:
    """The name by which nodes of the scope's stack reach it."""
    stack = Stack.of(scope)
    return f"{file_system_id}.fsx.{stack.region}.{stack.url_suffix}"
