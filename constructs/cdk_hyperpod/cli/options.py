"""Options that several commands have, each said once."""

from __future__ import annotations

from collections.abc import Sequence

import rich_click as click

config_option = click.option(
    "--config",
    default="cluster.yaml",
    metavar="PATH",
    type=click.Path(),
    help="The cluster file; default: cluster.yaml.",
)
"""The file that a command is about."""

profile_option = click.option(
    "--profile", metavar="NAME", help="Of your AWS configuration; default: AWS_PROFILE, or default."
)
"""Whose credentials a command uses."""

region_option = click.option("--region", metavar="REGION", help="Of AWS; default: the file's.")
"""Where a command asks; with `--cluster` there is no file that says it."""

cluster_option = click.option(
    "--cluster", metavar="NAME", help="A cluster by its name, in --region or your configuration's; no file is read."
)

stack_option = click.option(
    "--stack",
    metavar="NAME",
    help="The stack that has the cluster in it; default: the one that the live cluster's tag names.",
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs, with its schema's version."
)
"""For programs: `tables.json_text`."""

yes_option = click.option("--yes", is_flag=True, help="Do not ask: it is meant.")


def rights(*actions: str, besides: str = "") -> str:
    """The end of a command's help: what its user must be allowed to do. `besides`: what else is worth saying, after."""
    return "\n\n".join(filter(None, [f"IAM rights: {', '.join(actions)}.", besides]))


class AnyCase(click.Choice[str]):
    """One of AWS's words, which may be typed in any case; help, messages and completion spell it as AWS does."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(words, case_sensitive=False)

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        typed = str(choice)
        return next((word for word in self.choices if word.casefold() == typed.casefold()), typed)
