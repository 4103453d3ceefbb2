"""`cdk-hyperpod docs`: the folder of the documentation that messages, docstrings and new files name."""

from __future__ import annotations

import rich_click as click

from .._common.assets import docs_dir
from .tables import say


@click.command(epilog="Exit code 0: printed.")
def docs() -> None:
    """Print the folder of the documentation.

    Example:
        ls "$(cdk-hyperpod docs)"

    Messages name its pages, such as docs/deploying.md. README.md lists them all.
    """
    say(docs_dir(), whole=True)
