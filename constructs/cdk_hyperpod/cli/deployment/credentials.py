"""`cdk-hyperpod credentials`: whether AWS credentials can be found."""

from __future__ import annotations

import rich_click as click

from ..aws import clients
from ..options import profile_option
from ..tables import say


@click.command(epilog="Exit code 0: found. 1: there are none, or they cannot be read.")
@profile_option
def credentials(profile: str | None) -> None:
    """Check that AWS credentials can be found, before a deployment.

    Example:
        cdk-hyperpod credentials --profile research

    AWS is not called, so they may be invalid.
    """
    # AWS is not called, so any region will do.
    clients("us-east-1", profile)
    say("There are AWS credentials.")
