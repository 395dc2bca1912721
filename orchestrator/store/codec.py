"""Frozen dataclasses as JSON and back, exactly and strictly. Must not know which ones, nor where the text is kept.

Encoding needs no hints. Decoding follows the type hints: an unknown field, a missing one without a default, or a value
of another type is an error, never a guess. Floats survive bit by bit (infinities as Python's JSON writes them); tuples
become lists and come back as tuples; a missing field with a default takes it, so that older documents stay readable.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, Generic, TypeVar

from orchestrator.errors import UnreadableRowError

T = TypeVar("T")
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
_Decode = Callable[[Any], Any]


class CodecError(ValueError):
    """A value or a document that does not fit; `path` names the field."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path.lstrip('.') or 'document'}: {super().__str__()}"

    def below(self, step: str) -> CodecError:
        """The same error, seen from one level further up."""
        return CodecError(str(self.args[0]), step + self.path)


@dataclasses.dataclass(frozen=True)
class Codec(Generic[T]):
    """Documents of one dataclass: JSON text that begins with `{"schema": "<name>/<version>"`."""

    type: type[T]
    name: str
    version: int

    def dumps(self, value: T) -> str:
        """Raises CodecError for a value that JSON cannot carry."""
        document = encode(value)
        assert isinstance(document, dict)
        return json.dumps({"schema": f"{self.name}/{self.version}", **document}, separators=(",", ":"))

    def loads(self, text: str) -> T:
        """Raises UnreadableRowError for a document that does not fit, or says that it is of a newer version."""
        try:
            document = _require(dict, json.loads(text))
            name, _, version = str(document.pop("schema", "")).partition("/")
            if name != self.name or not version.isdecimal():
                raise CodecError(f"is no {self.name}")
            if int(version) > self.version:
                # whether the store is of a newer version, its revision says: this is one row, which may be damaged
                raise CodecError(f"says that a newer version wrote it (schema {version})")
            return decode(self.type, document)
        except (ValueError, TypeError, RecursionError) as error:  # TypeError: it is no text
            raise UnreadableRowError("a", self.name, str(error)) from error


def encode(value: object) -> Json:
    """Dataclasses, mappings with string keys, tuples, lists, enums and scalars as JSON. Raises CodecError."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return encode(value.value)
    for scalar in (str, int, float):
        if isinstance(value, scalar):
            return scalar(value)  # also a float64 of numpy, which is a float
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _encode_at(f".{field.name}", getattr(value, field.name)) for field in _fields(type(value))}
    if isinstance(value, Mapping):
        for key in value:
            if type(key) is not str:
                raise CodecError(f"{key!r} is no text, so it cannot be a key")
        return {key: _encode_at(f"[{key!r}]", item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_encode_at(f"[{index}]", item) for index, item in enumerate(value)]
    raise CodecError(f"{type(value).__name__} has no JSON form")


def decode(type_: type[T], document: Json) -> T:
    """The inverse of `encode`. Raises CodecError."""
    return typing.cast(T, _decoder(typing.cast(Any, type_))(document))


def _encode_at(step: str, value: object) -> Json:
    try:
        return encode(value)
    except CodecError as error:
        raise error.below(step) from None


@cache
def _fields(type_: type) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(type_)


@cache
def _decoder(type_: Any) -> _Decode:
    """A function that decodes `type_`, put together once per type."""
    origin, args = typing.get_origin(type_), typing.get_args(type_)
    if origin in (typing.Union, types.UnionType):
        if all(arg in _SCALARS for arg in args):
            return _scalar(tuple(allowed for arg in args for allowed in _SCALARS[arg]), str(type_))
        return _any_of(tuple(_decoder(arg) for arg in args), str(type_))
    if origin is typing.Literal:
        return _one_of(args)
    if origin is tuple:
        return _list_of(_decoder(args[0]), tuple) if args[1:] == (...,) else _tuple_of(tuple(map(_decoder, args)))
    if origin is list:
        return _list_of(_decoder(args[0]), list)
    if type_ is Any:
        return lambda value: value
    if origin is not None and issubclass(origin, Mapping) and args[0] is str:
        return _dict_of(_decoder(args[1]))
    if isinstance(type_, type) and dataclasses.is_dataclass(type_):
        return _dataclass(type_)
    if isinstance(type_, type) and issubclass(type_, Enum):
        return _enum(type_)
    if type_ in _SCALARS:
        return _scalar(_SCALARS[type_], type_.__name__)
    raise TypeError(f"no codec for {type_}")


_SCALARS: dict[Any, tuple[type, ...]] = {
    str: (str,),
    int: (int,),
    bool: (bool,),
    float: (float, int),  # an int stays an int: 3600 must not come back as 3600.0
    type(None): (type(None),),
}


def _scalar(allowed: tuple[type, ...], name: str) -> _Decode:
    def run(value: Any) -> Any:
        if type(value) not in allowed:
            raise CodecError(f"{value!r} is no {name}")
        return value

    return run


def _one_of(values: tuple[Any, ...]) -> _Decode:
    def run(value: Any) -> Any:
        if value not in values:
            raise CodecError(f"{value!r} is none of {', '.join(map(str, values))}")
        return value

    return run


def _enum(type_: type[Enum]) -> _Decode:
    def run(value: Any) -> Enum:
        try:
            return type_(value)
        except ValueError as error:
            raise CodecError(str(error)) from None

    return run


def _any_of(options: tuple[_Decode, ...], name: str) -> _Decode:
    def run(value: Any) -> Any:
        errors = []
        for option in options:
            try:
                return option(value)
            except CodecError as error:
                errors.append(error)
        deepest = max(errors, key=lambda error: len(error.path))  # the option that came furthest explains best
        raise deepest if deepest.path else CodecError(f"{value!r} is no {name}")

    return run


def _list_of(item: _Decode, make: Callable[[list[Any]], Any]) -> _Decode:
    def run(value: Any) -> Any:
        return make([_at(f"[{index}]", item, element) for index, element in enumerate(_require(list, value))])

    return run


def _tuple_of(items: tuple[_Decode, ...]) -> _Decode:
    def run(value: Any) -> tuple[Any, ...]:
        if len(_require(list, value)) != len(items):
            raise CodecError(f"needs {len(items)} elements, has {len(value)}")
        return tuple(_at(f"[{i}]", item, element) for i, (item, element) in enumerate(zip(items, value, strict=True)))

    return run


def _dict_of(item: _Decode) -> _Decode:
    def run(value: Any) -> dict[str, Any]:
        return {key: _at(f"[{key!r}]", item, element) for key, element in _require(dict, value).items()}

    return run


def _dataclass(type_: type) -> _Decode:
    hints = typing.get_type_hints(type_)
    decoders = {field.name: _decoder(hints[field.name]) for field in _fields(type_)}
    required = {
        field.name
        for field in _fields(type_)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }

    def run(value: Any) -> Any:
        if unknown := _require(dict, value).keys() - decoders.keys():
            raise CodecError(f"unknown field {min(unknown)!r}")
        if missing := required - value.keys():
            raise CodecError(f"missing field {min(missing)!r}")
        name, fields = "", {}
        try:
            for name, element in value.items():
                fields[name] = decoders[name](element)
        except CodecError as error:
            raise error.below(f".{name}") from None
        return type_(**fields)

    return run


def _require(type_: type, value: Any) -> Any:
    if type(value) is not type_:
        raise CodecError(f"{value!r} is no {type_.__name__}")
    return value


def _at(step: str, run: _Decode, value: Any) -> Any:
    try:
        return run(value)
    except CodecError as error:
        raise error.below(step) from None
