"""Validates whole values by their annotations: a configuration, or the arguments of a construct.

Python checks no types at run time. Without this, one group in place of a list of groups would end in an AttributeError deep
in the library. Everything public is validated here first.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import typing
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from .._cdk_private import has_interface, is_interface
from ..errors import Finding, raise_errors
from .annotations import Either, Fields, Form, Items, JsonObject, Leaf, Made, Names, field_types, shape
from .bounds import Constraint
from .known import UNKNOWN, is_known, is_list_token
from .plain import MAPPED, json_finding, leaf_problem
from .problem import Problem
from .words import item_paths, join, show

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

KNOWN_LATE = "is known at deployment only, and is needed at synthesis"


def check_value(value: object, annotation: Any, path: str) -> Iterator[Finding]:
    """Validate a value by its annotation, at any depth."""
    findings: list[Finding] = []
    _validate(value, annotation, path, findings)
    yield from findings


def check_kinds(value: object, annotation: Any, path: str) -> Iterator[Finding]:
    """Like `check_value`, without bounds and patterns. If it finds nothing, a rule can read every field."""
    findings: list[Finding] = []
    _validate(value, annotation, path, findings, bounds=False)
    yield from findings


def check_arguments(function: Callable[..., object], /, **arguments: object) -> Iterator[Finding]:
    """Validate arguments of a function, given by name, by its signature."""
    annotations = typing.get_type_hints(function, include_extras=True)
    for name, value in arguments.items():
        yield from check_value(value, annotations[name], name)


def check_call(
    function: Callable[..., object], given: Mapping[str, object], *, apart: Collection[str] = ()
) -> Iterator[Finding]:
    """Validate all keyword-only arguments of a function, so that a new argument needs no line of its own.

    `given`: the function's `locals()`. `apart`: the arguments that are validated as fields of a configuration.
    """
    names = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in apart
    ]
    yield from check_arguments(function, **{name: given[name] for name in names})


def explains_arguments(**moved: str) -> Callable[[F], F]:
    """Make a function name the place of an argument that it does not have, which is often a field of a value that it takes.

    `moved`: by an argument that an earlier version had and no value has, what to write now.
    """

    def decorate(function: F) -> F:
        parameters = inspect.signature(function).parameters

        @functools.wraps(function)
        def explained(*given: Any, **named: Any) -> Any:
            unknown = [name for name in named if name not in parameters]
            findings = [_unknown_argument(function, name, moved.get(name)) for name in unknown]
            raise_errors(findings, function.__qualname__.partition(".")[0])
            return function(*given, **named)

        return typing.cast(F, explained)

    return decorate


def _unknown_argument(function: Callable[..., object], name: str, instead: str | None) -> Finding:
    annotations = typing.get_type_hints(function, include_extras=True)
    fields = (
        [instead]
        if instead
        else [
            f"{argument}={kind.__name__}({name}=…)"
            for argument, annotation in annotations.items()
            for kind in _values_of(shape(annotation).form)
            if name in field_types(kind)
        ]
    )
    arguments = [
        each for each in annotations if not each.startswith("_") and each not in ("scope", "construct_id", "return")
    ]
    return Finding(
        code="argument-unknown",
        path=name,
        problem="is not an argument",
        remedy=f"write {' or '.join(fields)}" if fields else f"use one of {', '.join(arguments)}",
    )


def _values_of(form: Form) -> list[type]:
    """The classes of frozen values that an argument accepts."""
    match form:
        case Fields(kind) | Either(_, kind):
            return [kind]
        case Made(kinds):
            return [kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
        case _:
            return []


def require_arguments(
    function: Callable[..., object], where: str | Callable[[], str] = "", /, **arguments: object
) -> None:
    """Raise ConfigError if arguments of a function, given by name, do not match its signature.

    `where`: the construct's path, with which the message begins, or a function that returns it. Empty: no path.
    """
    raise_errors(check_arguments(function, **arguments), where)


def check_config(value: T, path: str = "", *rules: Callable[[T], Iterable[Finding]]) -> Iterator[Finding]:
    """Validate a configuration by its types, at any depth, and then by rules, which get UNKNOWN for what the types refuse."""
    refused: list[Finding] = []
    known = without_refused(value, refused, path)
    yield from refused
    for rule in rules:
        yield from rule(known)


def check_at_synth(value: object, path: str, remedy: str, *, kinds: tuple[type, ...] = (str,)) -> Iterator[Finding]:
    """Refuse a token where synthesis needs the value. `kinds`: the types that the annotation allows; another check refuses tokens
    of other types."""
    if isinstance(value, kinds) and not is_known(value):
        yield Finding(code="argument-known-at-deployment-only", path=path, problem=KNOWN_LATE, remedy=remedy)


def check_repeated(values: object, path: str) -> Iterator[Finding]:
    """Duplicates in a list. Anything that is not a tuple is reported by its type."""
    known = [value for value in values if is_known(value)] if isinstance(values, tuple) else []
    for value, count in Counter(known).items():
        if count > 1:
            yield Finding(
                code="value-duplicated", path=path, problem=f"{show(value)} is duplicated", remedy="name it once"
            )


def as_tuple(value: Sequence[T]) -> tuple[T, ...]:
    """A list as a tuple, which is what the frozen values have. Anything else is returned as it is, and its type is reported."""
    return tuple(value) if _is_list(value) else typing.cast(tuple[T, ...], value)


def without_refused(value: T, findings: list[Finding], path: str = "") -> T:
    """The value with UNKNOWN in place of what its types refuse, so that rules do not report it again.

    Invalid names stay, since the paths of list items contain them.
    """
    return _validate_fields(value, path, findings, bounds=True)


def _validate_fields(value: T, path: str, findings: list[Finding], *, bounds: bool) -> T:
    changed = {}
    for name, annotation in field_types(type(value)).items():
        before = getattr(value, name)
        after = _validate(before, annotation, join(path, name), findings, bounds=bounds)
        if after is not before and not (name == "name" and isinstance(before, str)):
            changed[name] = after
    return dataclasses.replace(value, **changed) if changed else value  # type: ignore[type-var]


def _validate(value: Any, annotation: Any, path: str, findings: list[Finding], *, bounds: bool = True) -> Any:
    """The value as far as the annotation accepts it, UNKNOWN in place of the rest."""
    expected = shape(annotation)
    if value is UNKNOWN or (value is None and expected.optional):
        return value
    if _is_token(value, expected.form):
        return _unless(_token_finding(expected.form, value, path), value, findings)
    match expected.form:
        case Items(item, exact) if isinstance(value, tuple) or (not exact and _is_list(value)):
            return _validate_items(value, item, path, findings, bounds=bounds)
        case Names(key, item) if isinstance(value, Mapping) and isinstance(shape(item).form, (Either, Fields, Made)):
            return _validate_names(value, key, item, path, findings, bounds=bounds)
        case form if type(value) in _values_of(form):
            return _validate_fields(value, path, findings, bounds=bounds)
        case JsonObject():
            return _unless(json_finding(value, path), value, findings)
    problem = _problem(expected.form, value) or (_out_of_bounds(value, expected.bounds) if bounds else None)
    return _unless(problem.at(path, value) if problem else None, value, findings)


def _unless(finding: Finding | None, value: Any, findings: list[Finding]) -> Any:
    """The value, or UNKNOWN if there is a finding, which is added."""
    if finding is None:
        return value
    findings.append(finding)
    return UNKNOWN


def _validate_items(
    values: Sequence[Any], kind: Any, path: str, findings: list[Finding], *, bounds: bool
) -> Sequence[Any]:
    paths = item_paths(path, values)
    items = tuple(_validate(item, kind, paths[i], findings, bounds=bounds) for i, item in enumerate(values))
    return values if all(map(operator.is_, items, values)) else items


def _validate_names(
    values: Mapping[Any, Any], key: Any, item: Any, path: str, findings: list[Finding], *, bounds: bool
) -> Any:
    found = {}
    for name, held in values.items():
        # A cluster file writes a name as a key of its own. What only Python code can give is named as Python code names it.
        in_file = isinstance(name, str) and isinstance(shape(item).form, Either | Fields)
        item_path = join(path, name) if in_file else f"{path}[{show(name)}]"
        _validate(name, key, item_path if in_file else path, findings, bounds=bounds)
        found[name] = _validate(held, item, item_path, findings, bounds=bounds)
    return values if all(found[name] is values[name] for name in found) else found


def _token_finding(form: Form, value: object, path: str) -> Finding | None:
    """Why a token cannot be used here. None: it goes into the template as it is.

    A list, a flag, a choice and a path decide at synthesis what is created. A token would count as one of their values.
    """
    match form:
        case Leaf(kind) | Either(kind, _):
            pass
        case _:
            kind = None
    choices = typing.get_args(kind)
    if kind is str:
        return None if isinstance(value, str) else _of_another_kind("text", "string", path)
    if kind in (int, float) or (choices and isinstance(choices[0], int)):
        return None if isinstance(value, float) else _of_another_kind("a number", "number", path)
    if choices:
        first, last = ", ".join(choices[:-1]), choices[-1]
        return Finding(
            code="choice-known-at-deployment-only",
            path=path,
            problem=KNOWN_LATE,
            remedy=f"write it out: {first} or {last}",
        )
    return Finding(code="value-known-at-deployment-only", path=path, problem=KNOWN_LATE, remedy="write it out")


def _of_another_kind(noun: str, way: str, path: str) -> Finding:
    return Finding(
        code="token-of-wrong-type",
        path=path,
        problem=f"must be {noun}, got a token of another type",
        remedy=f"use the parameter's value_as_{way}, or Token.as_{way}",
    )


def _plain_problem(form: Leaf | Either, value: object) -> Problem | None:
    if isinstance(form, Leaf):
        return leaf_problem(form.kind, value)
    problem = leaf_problem(form.plain, value)
    return problem and dataclasses.replace(problem, problem=f"{problem.problem}, or {form.kind.__name__}(…)")


def _problem(form: Leaf | Items | Names | Fields | Either | Made, value: object) -> Problem | None:
    match form:
        case Made([kind]) if kind.__name__ == "IKey" and hasattr(value, "alias_name"):
            # CDK accepts an alias as a key and uses the alias' ARN, which no policy accepts.
            return Problem(
                code="key-is-an-alias",
                problem="must be a key, not an alias",
                remedy="give it the key itself, by Key.from_lookup or Key.from_key_arn",
            )
        case Leaf() | Either():
            return _plain_problem(form, value)
        case Items(_, True):
            return Problem(code="value-not-a-tuple", problem="must be a tuple", remedy="write it as (a, b) or (a,)")
        case Items():
            return Problem(code="argument-not-a-list", problem="must be a list", remedy="write it as [a, b]")
        case Names(key, item):
            return None if _are_names(key, item, value) else _not_a_mapping(key, item)
        case Made(kinds):
            return None if any(_is_one(kind, value) for kind in kinds) else _of_wrong_class(kinds, value)
        case Fields(kind):
            return _of_wrong_class([kind], value)


def _of_wrong_class(kinds: Sequence[Any], value: object) -> Problem:
    match kinds:
        case [kind] if is_interface(kind):
            remedy = _held(kind, value) or "create or import one"
            return Problem(code="argument-without-interface", problem=f"must be an {kind.__name__}", remedy=remedy)
        case [kind]:
            class_name = kind.__name__
            remedy = _held(kind, value) or f"create {_article(kind)} {class_name}"
            return Problem(code="argument-of-wrong-class", problem=f"must be of the class {class_name}", remedy=remedy)
    names = ["text" if kind is str else f"{_article(kind)} {kind.__name__}" for kind in kinds]
    first, last = ", ".join(names[:-1]), names[-1]
    return Problem(code="argument-of-no-class", problem=f"must be {first} or {last}", remedy="give it one of these")


def _not_a_mapping(key: Any, item: Any) -> Problem:
    key_type, value_type = _in_a_word(key), _in_a_word(item)
    return Problem(
        code="argument-not-a-mapping",
        problem=f"must be a mapping of {key_type} to {value_type}",
        remedy="write it as {key: value}",
    )


def _held(kind: Any, value: object) -> str | None:
    """The remedy if an attribute of the value has the right type, such as `mount` of a LustreFileSystem. None: no attribute has."""
    own: dict[str, object] = getattr(value, "__dict__", {})
    names = [name for name, held in own.items() if not name.startswith("_") and _is_one(kind, held)]
    return f"give it the .{names[0]} of this one" if len(names) == 1 else None


def _are_names(key: Any, item: Any, value: object) -> bool:
    return isinstance(value, Mapping) and all(_fits(key, each) and _fits(item, held) for each, held in value.items())


def _article(kind: Any) -> str:
    return "an" if kind.__name__[0] in "AEIO" else "a"


def _out_of_bounds(value: object, bounds: Iterable[Constraint]) -> Problem | None:
    return next(filter(None, (bound.problem(value) for bound in bounds)), None)


def _fits(kind: Any, value: object) -> bool:
    if value is UNKNOWN:
        return True
    if is_interface(kind):
        return _is_one(kind, value)
    if isinstance(form := shape(kind).form, Either):
        return isinstance(value, form.kind) or _fits(form.plain, value)
    leaf = Leaf(kind)
    return (_token_finding(leaf, value, "") if _is_token(value, leaf) else leaf_problem(kind, value)) is None


def _in_a_word(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return "/".join(typing.get_args(kind))
    if isinstance(form := shape(kind).form, Either):
        return f"{MAPPED[form.plain]} or {form.kind.__name__}"
    return MAPPED.get(kind) or str(kind.__name__)


def _is_list(value: object) -> bool:
    """Whether a value is a list. Text is a sequence, too, and does not count."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _is_token(value: object, form: Form) -> bool:
    """Whether the value is a token of CDK, whose value is known at deployment only."""
    match form:
        case Fields() | Made([_]):
            return False
        case Leaf(kind) | Either(kind, _) | Made([kind, *_]):
            pass
        case _:
            kind = None
    if isinstance(value, (list, tuple)):
        return is_list_token(value)
    if isinstance(value, (str, float)):
        return not is_known(value)
    # Usually a parameter in place of its value. Only what CDK resolves has this attribute.
    return kind in (str, int, float) and hasattr(type(value), "creation_stack")


def _is_one(kind: Any, value: object) -> bool:
    """Whether a value is of a class or has the members of a jsii interface, for which isinstance does not work."""
    return has_interface(value, kind) if is_interface(kind) else isinstance(value, kind)


def field_findings(value: object, path: str) -> Iterator[Finding]:
    """Validate bounds and patterns of a frozen value's own fields, without the values in them."""
    for name, annotation in field_types(type(value)).items():
        field = getattr(value, name)
        if field is not None and is_known(field) and (problem := _out_of_bounds(field, shape(annotation).bounds)):
            yield problem.at(join(path, name), field)
