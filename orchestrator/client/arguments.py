"""Checks the arguments of the SDK's methods against their annotations, before a method uses them."""

from __future__ import annotations

import collections.abc
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TextIO, TypeVar, Union, get_args, get_origin, get_type_hints

from orchestrator.errors import UsageError

N = TypeVar("N")
_MANY = (collections.abc.Sequence, collections.abc.Iterable)
_UNIONS = (Union, UnionType)


def checked(namespace: type[N]) -> type[N]:
    """Make the public methods of a namespace raise UsageError for an argument that does not match its annotation.

    Where several values are expected, a single value (`paths="loss.csv"`) or any iterable is accepted. A call that does
    not match the signature raises TypeError, as usual in Python.
    """
    for name, method in list(vars(namespace).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(namespace, name, _checked(method))
    return namespace


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @wraps(method)
    def call(*arguments: object, **named: object) -> Any:
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError:
            return method(*arguments, **named)  # raises Python's own error
        kinds = _kinds(method)
        for name, value in bound.arguments.items():
            if name in kinds:
                bound.arguments[name] = _taken(value, kinds[name], method, name)
        return method(*bound.args, **bound.kwargs)

    return call


@cache
def _kinds(method: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of its parameters. A name that only a type checker knows allows any value, which is checked where
    it is read."""
    unknown: dict[str, Any] = {}
    while True:
        try:
            return get_type_hints(method, localns=unknown)
        except NameError as error:
            unknown[str(error.name)] = Any


def _taken(value: object, kind: Any, method: Callable[..., Any], name: str) -> object:
    """The argument as the method gets it. Raises UsageError."""
    for each in get_args(kind) if get_origin(kind) in _UNIONS else (kind,):
        if get_origin(each) not in _MANY:
            if _is(value, each):
                _require_span(value, method, name)
                return _plain(value, each)
            continue
        (element,) = get_args(each)
        if _is(value, element):
            return (value,)
        if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
            values = tuple(value)
            if all(_is(one, element) for one in values):
                return values
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - not a number
        raise UsageError(f"{name} of {method.__name__}() is not a number", hint="give a number, such as 2.5")
    wanted = method.__annotations__[name]
    raise UsageError(f"{name} of {method.__name__}() cannot be {value!a:.60}", hint=f"give a value of type {wanted}")


def _require_span(value: Any, method: Callable[..., Any], name: str) -> None:
    """Raises UsageError for a negative time. Parameters that are times have names that end with the unit."""
    if name.endswith("_s") and value is not None and value < 0:
        hint = "give a number of seconds, 0 or more"
        raise UsageError(f"{name} of {method.__name__}() cannot be {value!a:.60}", hint=hint)


def _plain(value: Any, kind: Any) -> object:
    """A number of another library as a Python number."""
    if kind is int and not isinstance(value, int):
        return int(value)
    return float(value) if kind is float and not isinstance(value, int | float) else value


def _is(value: object, kind: Any) -> bool:
    """Whether a value is of this kind. A number may be of any library, but must not be a bool or NaN."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in _UNIONS:
        return any(_is(value, each) for each in parts)
    if origin is Literal:
        return isinstance(value, tuple({type(each) for each in parts}))
    if origin is tuple:
        return isinstance(value, tuple) and _are(value, parts)
    if origin is collections.abc.Callable:
        return callable(value)
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, Real | Decimal) and not isinstance(value, bool) and value == value  # noqa: PLR0124
    if kind is Path:
        return isinstance(value, os.PathLike)
    if kind is TextIO:
        return hasattr(value, "write")
    return isinstance(value, kind)


def _are(values: tuple[object, ...], kinds: Sequence[Any]) -> bool:
    if kinds[-1] is ...:
        kinds = (kinds[0],) * len(values)
    return len(values) == len(kinds) and all(map(_is, values, kinds))
