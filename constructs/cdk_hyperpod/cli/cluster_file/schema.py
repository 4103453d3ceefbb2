"""`cdk-hyperpod schema`: the JSON schema of cluster files, for editors."""

from __future__ import annotations

import json

import rich_click as click

from ...config.schema import json_schema
from ..tables import say_document


@click.command(epilog="Exit code 0: printed.")
def schema() -> None:
    """Print the JSON schema of cluster files.

    Example:
        cdk-hyperpod schema > cluster.schema.json

    Editors complete and check cluster files with it.
    """
    say_document(f"{json.dumps(json_schema(), indent=1)}\n")
