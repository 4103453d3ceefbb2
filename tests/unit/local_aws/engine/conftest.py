from __future__ import annotations

from helpers.local_aws.fixtures import engine

__all__ = ["engine"]
