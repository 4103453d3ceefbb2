"""Options that several commands share."""

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
"""The file of a command."""

profile_option = click.option(
    "--profile", metavar="NAME", help="Profile of your AWS configuration; default: AWS_PROFILE, or default."
)
"""The credentials of a command."""

region_option = click.option("--region", metavar="REGION", help="AWS region; default: the file's.")
"""The region of a command. With `--cluster`, no file names it."""

cluster_option = click.option(
    "--cluster", metavar="NAME", help="Name of a cluster, in --region or your configuration's region. No file is read."
)

stack_option = click.option(
    "--stack",
    metavar="NAME",
    help="The stack that has the cluster; default: the one that the live cluster's tag names.",
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs, with the version of its schema."
)
"""For programs: `tables.json_text`."""

yes_option = click.option("--yes", is_flag=True, help="Skip the confirmation.")


def permissions(*actions: str, besides: str = "") -> str:
    """The end of a command's help: the IAM permissions that its user needs. `besides`: text after them."""
    return "\n\n".join(filter(None, [f"IAM permissions: {', '.join(actions)}.", besides]))


class AnyCase(click.Choice[str]):
    """A choice of AWS's words, accepted in any case. Help, messages and completion use AWS's spelling."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(words, case_sensitive=False)

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        typed = str(choice)
        return next((word for word in self.choices if word.casefold() == typed.casefold()), typed)
