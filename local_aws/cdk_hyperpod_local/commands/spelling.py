"""How messages write a command: as a make target with variables in a clone, as a command with options elsewhere."""

from __future__ import annotations

import os
import shlex

from cdk_hyperpod_local.places import DEFAULT_PORT, Place

FAILED = "local AWS: "
"""What the message of a command that failed begins with."""

_BY_MAKE = "LOCAL_AWS_BY_MAKE"  # local.mk sets it


def command(name: str, place: Place, *, app: str = "", config: str = "") -> str:
    """A command for this engine, such as `make stop-local`. `app` and `config` are empty if they are the defaults."""
    by_make = bool(os.environ.get(_BY_MAKE))
    words = [f"make {name}-local" if by_make else f"cdk-hyperpod local {name}"]
    if app:
        words.append(f"--app {shlex.quote(app)}")
    if config:
        words.append(f"{'CONFIG=' if by_make else '--config '}{shlex.quote(config)}")
    if place.port != DEFAULT_PORT:
        words.append(option("port", str(place.port)))
    return " ".join(words)


def option(name: str, value: str) -> str:
    """A setting with its value, such as `LOCAL_PORT=4599`."""
    return f"LOCAL_{name.upper()}={value}" if os.environ.get(_BY_MAKE) else f"--{name}={value}"


def yes() -> str:
    """How to answer the question of `reset` in advance."""
    return "RESET_FLAGS=--yes" if os.environ.get(_BY_MAKE) else "--yes"
