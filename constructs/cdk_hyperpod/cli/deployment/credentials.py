"""`cdk-hyperpod credentials`: whether there are any."""

from __future__ import annotations

import rich_click as click

from ..aws import clients
from ..options import profile_option
from ..tables import say


@click.command(
    epilog="Exit code 0: there are; 1: there are none, or they cannot be read. It does not ask AWS whether they are valid."
)
@profile_option
def credentials(profile: str | None) -> None:
    """Say whether there are AWS credentials to deploy with."""
    # Nothing is called, so any region will do.
    clients("us-east-1", profile)
    say("There are AWS credentials.")
