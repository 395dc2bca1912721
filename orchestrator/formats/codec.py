"""The codec: converts frozen dataclasses to JSON and back without loss, for the store, plan files, `--output json` and
sockets.

msgspec converts between dataclasses and plain values, by their type hints. Python's json module writes the text,
because msgspec's JSON supports neither infinity and NaN nor lone surrogates, which file names can contain. A float
field that holds an int is read back as the equal float; tuples are written as lists and read back as tuples; a missing
field takes its default, so that older documents stay readable.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import count
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")
_DIGITS = "0123456789"
_NESTED = (dict, list)
_COMPACT = (",", ":")


class CodecError(ValueError):
    """An invalid value or document; `path` names the field ("" is the whole document), `reason` says what is wrong."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path or 'document'}: {reason}")
        self.path = path
        self.reason = reason


@dataclasses.dataclass(frozen=True)
class Codec(Generic[T]):
    """Documents of one dataclass: JSON objects whose first key is `schema`, a name that ends in the version."""

    type: type[T]
    schema: str

    def document(self, value: T) -> dict[str, Any]:
        """The schema and the fields as JSON types. Raises CodecError."""
        return {"schema": self.schema, **encode(value)}

    def dumps(self, value: T, *, indent: int | None = None) -> str:
        """The document as text. Raises CodecError."""
        return json.dumps(self.document(value), indent=indent, separators=_COMPACT if indent is None else None)

    def loads(self, text: str | bytes) -> T:
        """The inverse of `dumps`, for documents of this or an older version. Raises CodecError."""
        document = _parsed(text)
        schema = str(document.pop("schema", "")) if type(document) is dict else ""
        name = self.schema.rstrip(_DIGITS)
        version = schema.removeprefix(name)
        if version == schema or not version.isdecimal():
            raise CodecError(f"is not a {self.schema} document")
        if len(version) > 9 or int(version) > int(self.schema.removeprefix(name)):
            raise CodecError(f"was written by a newer version ({schema[:80]})")
        return decode(self.type, document)


def dumps(value: object) -> str:
    """JSON text without a schema, for columns and for messages between processes of one version. Raises CodecError."""
    return json.dumps(encode(value), separators=_COMPACT)


def dumps_brief(value: object) -> str:
    """The same without fields that have their default value: a process of an older version can read it, unless it uses
    new fields. Raises CodecError."""
    return json.dumps(_brief(value), separators=_COMPACT)


def loads(type_: type[T], text: str | bytes) -> T:
    """The inverse of `dumps`. Raises CodecError."""
    return decode(type_, _parsed(text))


def encode(value: object) -> Any:
    """Dataclasses, mappings, sequences, enums and scalars as JSON types. Raises CodecError."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_plain)
    except (TypeError, RecursionError) as error:
        raise CodecError(f"{type(value).__name__} has no JSON form: {error}") from error


def decode(type_: type[T], plain: Any) -> T:
    """The inverse of `encode`. Raises CodecError for an unknown field, a missing field without a default and a value of
    another type."""
    try:
        value = msgspec.convert(plain, type_)
    except (msgspec.ValidationError, RecursionError, UnicodeError) as error:  # UnicodeError: a lone surrogate
        reason, _, path = str(error).partition(" - at `$")
        raise CodecError(reason[:1].lower() + reason[1:], path.removesuffix("`").lstrip(".")) from error
    holds_dataclasses = _holds_dataclasses(typing.cast(Any, type_))
    if holds_dataclasses and (unknown := _unknown(plain, value)) is not None:
        raise CodecError("unknown field", unknown.lstrip("."))
    return value


def _brief(value: object) -> Any:
    if dataclasses.is_dataclass(value):
        fields = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: _brief(held) for field, held in fields if field.default != held}
    if isinstance(value, list | tuple):
        return [_brief(item) for item in value]
    return encode(value)


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:  # TypeError: not text
        raise CodecError(f"is not JSON: {error}") from error


def _plain(value: object) -> Any:
    """Converts types that msgspec does not support: subclasses of scalars, such as numpy's float64, and mapping
    proxies."""
    for scalar in (str, int, float):
        if isinstance(value, scalar):
            return scalar(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"it contains a {type(value).__name__}")


def _unknown(plain: Any, value: Any) -> str | None:
    """The path of a field in `plain` that the decoded `value` lacks, or None: msgspec drops unknown fields."""
    parts: Iterable[tuple[object, Any, Any]] = ()
    if type(plain) is dict and (fields := _fields(value.__class__)) is not None:
        names, nesting = fields
        if extra := plain.keys() - names:
            return f".{min(extra)}"
        parts = [(name, plain[name], getattr(value, name)) for name in nesting if name in plain]
    elif type(plain) is dict and type(value) is dict:
        parts = zip(plain, plain.values(), value.values(), strict=True)
    elif type(plain) is list and type(value) in (tuple, list):
        parts = zip(count(), plain, value)
    for step, item, part in parts:
        if type(item) in _NESTED and (found := _unknown(item, part)) is not None:
            return (f"[{step}]" if type(step) is int else f".{step}") + found
    return None


@cache
def _fields(type_: type) -> tuple[frozenset[str], tuple[str, ...]] | None:
    """The fields of a dataclass and those that can contain dataclasses; None for another type."""
    if not dataclasses.is_dataclass(type_):
        return None
    hints = typing.get_type_hints(type_)
    names = [field.name for field in dataclasses.fields(type_)]
    return frozenset(names), tuple(name for name in names if _holds_dataclasses(hints[name]))


@cache
def _holds_dataclasses(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint) or any(map(_holds_dataclasses, typing.get_args(hint)))
