"""`cdk-hyperpod local`: rehearse a deployment on this machine. Its commands are those of the local AWS, loaded only here."""

from __future__ import annotations

from cdk_hyperpod_local.commands.__main__ import local

__all__ = ["local"]
