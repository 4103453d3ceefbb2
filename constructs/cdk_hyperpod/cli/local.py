"""`cdk-hyperpod local`: a rehearsal on this machine. Its commands and options are the local AWS's own, loaded only here."""

from __future__ import annotations

from collections.abc import Sequence

import rich_click as click


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def local(arguments: Sequence[str]) -> int:
    """Rehearse a deployment of any app on an AWS on this machine."""
    from cdk_hyperpod_local.commands.__main__ import run_alone

    return run_alone(arguments)
