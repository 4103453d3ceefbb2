"""What `destroy` and `reset` say: where AWS would refuse, what to do after a failure, and the question before a reset."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from cdk_hyperpod._lambda.hyperpod.kernel.text import printable
from cdk_hyperpod.cli import tables
from cdk_hyperpod_local.assemblies import stacks
from cdk_hyperpod_local.commands import spelling
from cdk_hyperpod_local.errors import EngineError
from cdk_hyperpod_local.places import Place


def refused_by_aws(protected: Sequence[str]) -> list[str]:
    """Lines about the stacks with termination protection, which `destroy` turns off. Empty without such stacks."""
    if not protected:
        return []
    return tables.wrapped(
        f"AWS would refuse to delete {', '.join(protected)}, because of termination protection. On AWS, turn it off "
        "first. Here it is turned off now.",
        "· ",
        "  ",
    )


def ways_out(place: Place) -> str:
    """The commands after a failed `destroy`, in lines of their own."""
    ways = (
        (spelling.command("destroy", place), "try again, after you corrected it"),
        (spelling.command("reset", place), "delete the engine and all that is left"),
    )
    width = max(len(command) for command, _ in ways)
    return "\n".join(f"  {command.ljust(width)}  {text}" for command, text in ways)


def confirm_reset(place: Place) -> None:
    """Ask whether to delete the engine. Raises EngineError unless the user types "y" or "yes"."""
    if not sys.stdin.isatty():
        raise EngineError(
            "nothing was deleted: there is no terminal to confirm on. To go on without\n"
            f"confirmation, use `{spelling.command('reset', place)} {spelling.yes()}`"
        )
    tables.say(*_what_is_lost(place))
    tables.print_question("Delete them? Nothing on AWS is changed. [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise EngineError("nothing was deleted")


def _what_is_lost(place: Place) -> list[str]:
    deployed: list[str] = []
    for manifest in place.assemblies.glob("*/manifest.json"):
        with contextlib.suppress(ValueError, LookupError):  # a damaged one is deleted too
            found = stacks(manifest.parent)
            deployed += [f"{stack.name} in aws://{stack.account}/{stack.region}" for stack in found]
    heading = f"The engine on port {place.port}, its journal and its log"
    if not deployed:
        return [f"{heading}."]
    lines = (f"  {printable(line)}" for line in sorted(deployed))
    return [f"{heading}, and these stacks with all their resources:", *lines]
