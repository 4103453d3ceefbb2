"""What a type says by itself, checked over whole values: a configuration, or the arguments of a construct.

Python checks no types when it runs, so a caller who gives one group where a list of them belongs would meet an
AttributeError somewhere below. Everything public is judged here first, by its own annotations.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
import typing
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from .._cdk_private import has_interface, is_interface
from ..errors import Finding, raise_errors
from .annotations import Fields, Form, Items, Leaf, Made, Names, field_types, shape
from .bounds import Constraint
from .known import UNKNOWN, is_known
from .plain import MAPPED, leaf_problem
from .words import item_paths, join, show

T = TypeVar("T")

_MISSING = "give it a value"
_AT_SYNTH = ("its value is known at deployment only", "write it out")
"""What a token means where synth decides by the value."""
_ALIAS = ("must be a key, and this is an alias", "give it the key itself, by Key.from_lookup or Key.from_key_arn")


def check_value(value: object, annotation: Any, path: str) -> Iterator[Finding]:
    """Why a value is not what the annotation says, at any depth of it."""
    findings: list[Finding] = []
    _judge(value, annotation, path, findings)
    yield from findings


def check_kinds(value: object, annotation: Any, path: str) -> Iterator[Finding]:
    """The same without the bounds and patterns: where this finds nothing, a rule can read every field."""
    findings: list[Finding] = []
    _judge(value, annotation, path, findings, bounds=False)
    yield from findings


def check_arguments(function: Callable[..., object], /, **arguments: object) -> Iterator[Finding]:
    """Why arguments of a function, given by name, are not what its signature says."""
    annotations = typing.get_type_hints(function, include_extras=True)
    for name, value in arguments.items():
        yield from check_value(value, annotations[name], name)


def check_call(
    function: Callable[..., object], given: Mapping[str, object], *, apart: Collection[str] = ()
) -> Iterator[Finding]:
    """The same of all arguments that a function takes by name only, so that a new one needs no line of its own.

    `given`: the function's `locals()`. `apart`: the arguments that are validated as fields of a configuration.
    """
    names = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in apart
    ]
    yield from check_arguments(function, **{name: given[name] for name in names})


def require_arguments(
    function: Callable[..., object], where: str | Callable[[], str] = "", /, **arguments: object
) -> None:
    """Raise ConfigError where arguments of a function, given by name, are not what its signature says.

    `where`: the construct's path, which a message begins with, or what tells it. Empty: there is none.
    """
    raise_errors(check_arguments(function, **arguments), where)


def check_config(value: T, path: str = "", *rules: Callable[[T], Iterable[Finding]]) -> Iterator[Finding]:
    """What its types refuse of a configuration, at any depth, and what rules say of the rest."""
    refused: list[Finding] = []
    known = without_refused(value, refused, path)
    yield from refused
    for rule in rules:
        yield from rule(known)


def check_at_synth(value: object, path: str, remedy: str, *, kinds: tuple[type, ...] = (str,)) -> Iterator[Finding]:
    """Whether synth knows a value that it cannot do without. `kinds`: those that its type allows; a token of another one is
    refused for that already."""
    if isinstance(value, kinds) and not is_known(value):
        yield Finding(path=path, problem=_AT_SYNTH[0], remedy=remedy)


def check_repeated(values: object, path: str) -> Iterator[Finding]:
    """What stands more than once in a list that is one as far as its type goes."""
    known = [value for value in values if is_known(value)] if isinstance(values, tuple) else []
    for value, count in Counter(known).items():
        if count > 1:
            yield Finding(path=path, problem=f"{show(value)} is there twice", remedy="name it once")


def as_tuple(value: Sequence[T]) -> tuple[T, ...]:
    """A list as the frozen values have it. What is no list stays what it is, for the checks of that value to report."""
    return tuple(value) if _is_list(value) else typing.cast(tuple[T, ...], value)


def without_refused(value: T, findings: list[Finding], path: str = "") -> T:
    """The value, UNKNOWN in place of what its types refuse: a rule that came upon it would report it once more.

    Names stay, good or bad: paths tell the items of a list apart by them.
    """
    return _judge_fields(value, path, findings, bounds=True)


def _judge_fields(value: T, path: str, findings: list[Finding], *, bounds: bool) -> T:
    changed = {}
    for name, annotation in field_types(type(value)).items():
        before = getattr(value, name)
        after = _judge(before, annotation, join(path, name), findings, bounds=bounds)
        if after is not before and not (name == "name" and isinstance(before, str)):
            changed[name] = after
    return dataclasses.replace(value, **changed) if changed else value  # type: ignore[type-var]


def _judge(value: Any, annotation: Any, path: str, findings: list[Finding], *, bounds: bool = True) -> Any:
    """The value as far as the annotation accepts it, UNKNOWN in place of the rest."""
    said = shape(annotation)
    if value is UNKNOWN or (value is None and said.optional):
        return value
    if _is_token(value, said.form):
        late = _late_problem(said.form, value)
        if late is None:
            return value
        findings.append(Finding(path=path, problem=late[0], remedy=late[1]))
        return UNKNOWN
    match said.form:
        case Items(item, exact) if isinstance(value, tuple) or (not exact and _is_list(value)):
            return _judge_items(value, item, path, findings, bounds=bounds)
        case Names(key, item) if isinstance(value, Mapping) and isinstance(shape(item).form, (Fields, Made)):
            for each, held in value.items():
                _judge(each, key, path, findings, bounds=bounds)
                _judge(held, item, f"{path}[{show(each)}]", findings, bounds=bounds)
            return value
        case Fields(kind) if isinstance(value, kind):
            return _judge_fields(value, path, findings, bounds=bounds)
    problem = _problem(said.form, value) or (_out_of_bounds(value, said.bounds) if bounds else None)
    if problem is None:
        return value
    got, remedy = ("nothing", _MISSING) if value is None else (show(value), problem[1])
    findings.append(Finding(path=path, problem=f"{problem[0]}, got {got}", remedy=remedy))
    return UNKNOWN


def _judge_items(
    values: Sequence[Any], kind: Any, path: str, findings: list[Finding], *, bounds: bool
) -> Sequence[Any]:
    paths = item_paths(path, values)
    items = tuple(_judge(item, kind, paths[i], findings, bounds=bounds) for i, item in enumerate(values))
    return values if all(map(operator.is_, items, values)) else items


def _late_problem(form: Form, value: object) -> tuple[str, str] | None:
    """Why a token cannot stand here; None: it goes into the template as it is.

    A list, a flag, a choice and a path decide at synth what is made, where a token would count as one of their values.
    """
    kind = form.kind if isinstance(form, Leaf) else None
    choices = typing.get_args(kind)
    if kind is str:
        return None if isinstance(value, str) else _of_another_kind("text", "string")
    if kind in (int, float) or (choices and isinstance(choices[0], int)):
        return None if isinstance(value, float) else _of_another_kind("a number", "number")
    if choices:
        return _AT_SYNTH[0], f"{_AT_SYNTH[1]}: {', '.join(choices[:-1])} or {choices[-1]}"
    return _AT_SYNTH


def _of_another_kind(noun: str, way: str) -> tuple[str, str]:
    return f"must be {noun}, got a token of another kind", f"use the parameter's value_as_{way}, or Token.as_{way}"


def _problem(form: Form, value: object) -> tuple[str, str] | None:
    match form:
        case Made([kind]) if kind.__name__ == "IKey" and hasattr(value, "alias_name"):
            # CDK takes it for a key, and its ARN for the key's, which no policy does.
            return _ALIAS
        case Leaf(kind):
            return leaf_problem(kind, value)
        case Items(_, exact):
            return (
                ("must be a tuple", "write it as (a, b) or (a,)") if exact else ("must be a list", "write it as [a, b]")
            )
        case Names(key, item):
            return (
                None
                if _are_names(key, item, value)
                else (f"must be a mapping of {_in_a_word(key)} to {_in_a_word(item)}", "make one")
            )
        case Made(kinds) if any(_is_one(kind, value) for kind in kinds):
            return None
        case Made([kind]) if is_interface(kind):
            return f"must be an {kind.__name__}", _held(kind, value) or "make or import one"
        case Fields(kind) | Made([kind]):
            return f"must be of the class {kind.__name__}", _held(kind, value) or "make one"
        case Made(kinds):
            names = ["text" if kind is str else f"{_article(kind)} {kind.__name__}" for kind in kinds]
            return f"must be {', '.join(names[:-1])} or {names[-1]}", "give it one of these"


def _held(kind: Any, value: object) -> str | None:
    """The remedy where what was given has just what is wanted: a LustreFileSystem has its `mount`. None: it has not."""
    own: dict[str, object] = getattr(value, "__dict__", {})
    names = [name for name, held in own.items() if not name.startswith("_") and _is_one(kind, held)]
    return f"give it the .{names[0]} of this one" if len(names) == 1 else None


def _are_names(key: Any, item: Any, value: object) -> bool:
    return isinstance(value, Mapping) and all(_fits(key, each) and _fits(item, held) for each, held in value.items())


def _article(kind: Any) -> str:
    return "an" if kind.__name__[0] in "AEIO" else "a"


def _out_of_bounds(value: object, bounds: Iterable[Constraint]) -> tuple[str, str] | None:
    words = next(filter(None, (bound.problem(value) for bound in bounds)), None)
    return None if words is None else (words, "change it")


def _fits(kind: Any, value: object) -> bool:
    if value is UNKNOWN:
        return True
    if is_interface(kind):
        return _is_one(kind, value)
    leaf = Leaf(kind)
    return (_late_problem(leaf, value) if _is_token(value, leaf) else leaf_problem(kind, value)) is None


def _in_a_word(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return "/".join(typing.get_args(kind))
    return MAPPED.get(kind) or str(kind.__name__)


def _is_list(value: object) -> bool:
    """Whether a value is a list of things: text is one of characters, and never meant as such."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _is_token(value: object, form: Form) -> bool:
    """Whether CDK puts another value in the place of this one, and would have to know it."""
    match form:
        case Fields() | Made([_]):
            return False
        case Leaf(kind) | Made([kind, *_]):
            pass
        case _:
            kind = None
    if isinstance(value, (list, tuple)):
        # A list that is a token has one item, which says so.
        return any(isinstance(item, str) and "#{Token[" in item for item in value)
    if isinstance(value, (str, float)):
        return not is_known(value)
    # A parameter itself, mostly, in place of its value: what CDK resolves has this, and nothing else does.
    return kind in (str, int, float) and hasattr(type(value), "creation_stack")


def _is_one(kind: Any, value: object) -> bool:
    """Whether a value is of a class, or has what an interface of jsii asks for, which isinstance cannot tell."""
    return has_interface(value, kind) if is_interface(kind) else isinstance(value, kind)


def field_findings(value: object, path: str) -> Iterator[Finding]:
    """Bounds and patterns of a frozen value's own fields, at no depth."""
    for name, annotation in field_types(type(value)).items():
        field = getattr(value, name)
        if field is not None and is_known(field) and (problem := _out_of_bounds(field, shape(annotation).bounds)):
            yield Finding(path=join(path, name), problem=f"{problem[0]}, got {show(field)}", remedy=problem[1])
