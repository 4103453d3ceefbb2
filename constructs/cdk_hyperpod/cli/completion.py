"""`cdk-hyperpod completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

import rich_click as click
from click.shell_completion import get_completion_class

from .commands import PROGRAM
from .frame import COMPLETION_VARIABLE, tool
from .tables import say_document


@click.command(epilog="Exit code 0: printed.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script with which your shell completes commands and options.

    \b
    bash, in ~/.bashrc:  eval "$(cdk-hyperpod completion bash)"
    zsh, in ~/.zshrc:    eval "$(cdk-hyperpod completion zsh)"
    fish:                cdk-hyperpod completion fish \\
                           > ~/.config/fish/completions/cdk-hyperpod.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    say_document(f"{found(tool, {}, PROGRAM, COMPLETION_VARIABLE).source()}\n")
