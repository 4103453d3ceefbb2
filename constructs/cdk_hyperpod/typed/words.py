"""Words for values: how a message shows a value, its name and its path."""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import reprlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from .known import is_known

# No setting is near this size. Python refuses to print a number of more than 4,300 digits.
TOO_LARGE = 10**18


class _Brief(reprlib.Repr):
    """A value as YAML, shortened if it is long. reprlib finds each method by the type's name."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = 3
        self.maxstring = self.maxother = 80

    def repr_bool(self, value: bool, level: int) -> str:
        return str(value).lower()

    def repr_NoneType(self, value: None, level: int) -> str:
        return "null"

    def repr_int(self, value: int, level: int) -> str:
        return str(value) if abs(value) < TOO_LARGE else f"a number of {value.bit_length():,} bits"

    def repr_date(self, value: datetime.date, level: int) -> str:
        return str(value)

    def repr_instance(self, value: Any, level: int) -> str:
        kind: Any = type(value)
        if dataclasses.is_dataclass(kind):
            # The first field is what people know it by.
            name = dataclasses.fields(kind)[0].name
            return f"{type(value).__name__}({name}={self.repr1(getattr(value, name), level - 1)}, …)"
        # A memory address means nothing to a user.
        return f"<{kind.__name__}>" if kind.__repr__ is object.__repr__ else super().repr_instance(value, level)

    def repr_datetime(self, value: datetime.datetime, level: int) -> str:
        return str(value)


_brief = _Brief()


def show(value: object) -> str:
    """A value in a message: short, on one line."""
    text = _brief.repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def shown_name(name: object, length: int = 80) -> str:
    """A name in a message: unchanged, unless it is long, is not text, or has a line break."""
    return name if isinstance(name, str) and len(name) <= length and name.isprintable() else show(name)


def closest(text: str, options: Iterable[object], *, certain: bool = False) -> str | None:
    """The option that the user probably meant. None: none is similar. `certain`: only one that is nearly equal, or has the same words."""
    texts = [str(option) for option in options]
    # Equal words count more than equal letters: min_count means min_instance_count, though instance_count has closer letters.
    alike = [option for option in texts if {*text.split("_")} <= {*option.split("_")}]
    matches = difflib.get_close_matches(text, texts, n=1, cutoff=0.9) or difflib.get_close_matches(
        text, alike, n=1, cutoff=0
    )
    if not matches and not certain:
        matches = difflib.get_close_matches(text, texts, n=1)
    return matches[0] if matches else None


def join(path: str, key: object) -> str:
    """The path of a key below a path."""
    return f"{path}.{shown_name(key)}" if path else shown_name(key)


def item_paths(path: str, items: Sequence[object]) -> list[str]:
    """The paths of a list's items: by name if it is unique in the list, else by position from 0."""
    names: list[Any] = [item.get("name") if isinstance(item, dict) else getattr(item, "name", None) for item in items]
    count = Counter(name for name in names if isinstance(name, str))
    return [f"{path}[{name if _is_label(name) and count[name] == 1 else index}]" for index, name in enumerate(names)]


def _is_label(name: object) -> bool:
    """Whether a path can use the name for its item: one short line, and not a number, which would look like a position."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= 80
        and name.isprintable()
        and not name.isdecimal()
        and "]" not in name
        and is_known(name)
    )
