"""How every command runs: it is loaded when it is used, and its errors become one message and an exit code."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches

import rich_click as click
from click.exceptions import Exit
from click.shell_completion import CompletionItem

from ..errors import HyperPodError
from . import aws
from .commands import COMMANDS, PROGRAM
from .exits import INTERRUPTED, give_up_output
from .tables import complain, say, shown

COMPLETION_VARIABLE = "_CDK_HYPERPOD_COMPLETE"
DEBUG_VARIABLE = "CDK_HYPERPOD_DEBUG"
_FULL = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors of a standard output that accepts no more."""
_HELP = {"text_paragraph_linebreaks": "\n\n", "padding_helptext_first_line": (0, 0, 1, 0), "max_width": 80}
_TEXTS = {name: (module, text) for group in COMMANDS.values() for name, (module, text) in group.items()}


class _Tool(click.RichGroup):
    """Loads a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return [*_TEXTS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _TEXTS:
            return None
        module = importlib.import_module(f".{_TEXTS[cmd_name][0]}", __package__)
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            # click's own knows only commands that are loaded.
            near = get_close_matches(args[0], _TEXTS, n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.format_message()} Did you mean {near[0]!r}?", ctx) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click's own would load every command for its help.
        del ctx
        return [
            CompletionItem(name, help=text)
            for name, (_, text) in [*_TEXTS.items(), ("--help", ("", "")), ("--version", ("", ""))]
            if name.startswith(incomplete)
        ]


def _print_version(ctx: click.Context, _: click.Parameter, is_given: bool) -> None:
    if is_given and not ctx.resilient_parsing:
        # Imported only here, since it reads every installed package.
        from importlib.metadata import version

        say(f"{PROGRAM} {version('cdk-hyperpod')}")
        ctx.exit()


@click.group(
    cls=_Tool,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "rich_help_config": _HELP},
)
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version)
def tool() -> None:
    """Create, check, rehearse and look after SageMaker HyperPod clusters."""


def run(arguments: Sequence[str]) -> int:
    """Run one command, and return its exit code. Every error is one message on standard error, without a stack trace."""
    if os.environ.get(COMPLETION_VARIABLE):
        tool.main(args=[*arguments], prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE)
    try:
        return _invoke(arguments)
    except click.UsageError as error:
        return _misused(error)
    except click.ClickException as error:
        return _failed(error.format_message())
    except HyperPodError as error:
        return _failed(str(error))
    except (KeyboardInterrupt, click.Abort):
        return _interrupted()
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
            return give_up_output(error)
        if os.environ.get(DEBUG_VARIABLE) and not _is_of_aws(error):
            raise
        return _unforeseen(error)


def _invoke(arguments: Sequence[str]) -> int:
    try:
        with tool.make_context(PROGRAM, [*arguments]) as context:
            status = int(tool.invoke(context) or 0)
    except Exit as end:  # of --help and --version
        status = end.exit_code
    sys.stdout.flush()  # here, where a full disk is still reported
    return status


def _unforeseen(error: Exception) -> int:
    if _is_of_aws(error):
        return _failed(aws.sentence(error))
    return _failed(
        f"internal error of {PROGRAM}: {type(error).__name__}: {shown(error)}\n"
        f"Please report it, with the output of the same command under {DEBUG_VARIABLE}=1"
    )


def _is_of_aws(error: Exception) -> bool:
    return "botocore.exceptions" in sys.modules and isinstance(error, _aws_errors())


def _aws_errors() -> tuple[type[Exception], ...]:
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    return ClientError, BotoCoreError


def _misused(error: click.UsageError) -> int:
    path, pieces = PROGRAM, "COMMAND [OPTIONS] …"
    if error.ctx is not None and error.ctx.parent is not None:
        path, pieces = error.ctx.command_path, " ".join(error.ctx.command.collect_usage_pieces(error.ctx))
    complain(f"Usage: {path} {pieces}", f"{path} --help explains it.")
    complain(*f"{path}: error: {error.format_message()}".split("\n"))
    return 2


def _failed(message: str) -> int:
    complain(*message.split("\n"))
    return 1


def _interrupted() -> int:
    complain("", "interrupted")
    return INTERRUPTED
