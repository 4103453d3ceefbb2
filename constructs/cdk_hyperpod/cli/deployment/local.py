"""`cdk-hyperpod local`: a rehearsal on this machine. Its commands and options are the local AWS's own, loaded only here."""

from __future__ import annotations

from cdk_hyperpod_local.commands.__main__ import local

__all__ = ["local"]
