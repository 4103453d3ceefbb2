"""Settings per world size, in the manner of the HyperPod recipes' `scale_config`.

A JSON object: the key is the number of processes (the recipes' key is the number of nodes), the value overrides the command
line's settings at that size:

    {"2": {"micro_batch_size": 8}, "16": {"micro_batch_size": 2, "learning_rate": 0.008}}

The global batch size can't be set here. It stays what it is, by gradient accumulation, so that the optimizer takes the same steps at
every size.
"""

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What may differ from one world size to another."""

    micro_batch_size: int
    """Samples that a rank computes at once; its memory sets the limit."""
    learning_rate: float
    """The peak of the schedule."""


def scale_at(world_size: int, base: Scale, path: Path | None) -> Scale:
    """The settings at this world size: the base, overridden by what the file says of the size."""
    if path is None:
        return base
    sizes = json.loads(path.read_text("utf-8"))
    problems = _problems(sizes)
    if problems:
        raise ValueError("\n".join(f"{path.name}: {problem}" for problem in problems))
    return replace(base, **sizes.get(str(world_size), {}))


def _problems(sizes: Any) -> list[str]:
    if not isinstance(sizes, dict):
        return [f"must be an object with world sizes for keys, got {type(sizes).__name__}"]
    known = {field.name for field in fields(Scale)}
    problems: list[str] = []
    for size, settings in sizes.items():
        if not size.isascii() or not size.isdigit() or int(size) < 1 or str(int(size)) != size:
            problems.append(f"[{size}]: must be a number of processes, 1 or more, such as 2")
        if not isinstance(settings, dict):
            problems.append(f"[{size}]: must be an object of settings, got {json.dumps(settings)}")
            continue
        for name, value in settings.items():
            at = f"[{size}].{name}"
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if name not in known:
                problems.append(f"{at}: is no setting per world size; use one of {', '.join(sorted(known))}")
            elif name == "micro_batch_size" and (not number or value != int(value) or value < 1):
                problems.append(f"{at}: must be a whole number of samples, 1 or more, got {json.dumps(value)}")
            elif not number or value <= 0:
                problems.append(f"{at}: must be more than 0, got {json.dumps(value)}")
    return problems
