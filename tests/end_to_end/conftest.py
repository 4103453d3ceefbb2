from __future__ import annotations

from local_aws.fixtures import engine

__all__ = ["engine"]
