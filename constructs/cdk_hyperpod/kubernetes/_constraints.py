"""What the type of a field says by itself. `rules` does the same for a whole cluster file and knows it, so that this
package, which the file's model is made of, cannot import it."""

from __future__ import annotations

from collections.abc import Iterator

from .._fields import Pattern, Range
from .._structure import field_types, is_known, join, show, split_annotated
from ..errors import Finding


def field_findings(value: object, path: str) -> Iterator[Finding]:
    """Fields of a frozen value that their types refuse; `rules` words them alike, so that nothing is said twice."""
    for name, annotation in field_types(type(value)).items():
        field = getattr(value, name)
        for constraint in split_annotated(annotation)[1]:
            if field is None or not is_known(field) or not isinstance(constraint, (Pattern, Range)):
                continue
            if words := constraint.problem(field):
                yield Finding(path=join(path, name), problem=f"{words}, got {show(field)}", remedy="change it")
