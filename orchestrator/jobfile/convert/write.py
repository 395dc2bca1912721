"""Writes the text of a job file from its values, with comments. By YAML 1.2 it reads back as the same values.

The library's own writer follows other rules: it writes the text 1e-4 without quotes, which for us is a number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_BARE = re.compile(
    r"[A-Za-z_/][A-Za-z0-9_./@+-]*(:[A-Za-z0-9_./@+-]+)*|\.{1,2}(/[A-Za-z0-9_.@+-]+)*/?"
    r"|\d+(\.\d+)? [KMGTP]iB|\d+[smhdw]",
    re.ASCII,
)
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_WIDTH = 100


def write_job(job: Mapping[str, Any], header: Iterable[str], fill_in: Sequence[str]) -> str:
    """The text of a job file: `header` as comments at its top, `fill_in` as comments at the start of `train`."""
    lines = [*map(comment, header)]
    for key, value in job.items():
        if key == "train":
            lines += ["train:", *(f"  {comment(line)}" for line in fill_in)]
            lines += [line for name, item in value.items() for line in _field(name, item, 1)]
        else:
            lines += _field(key, value, 0)
    return "\n".join(lines) + "\n"


def comment(text: str) -> str:
    """One comment line; characters that cannot be printed become spaces."""
    return f"# {''.join(each if each.isprintable() else ' ' for each in text)}".rstrip()


def _field(key: str, value: Any, depth: int) -> list[str]:
    indent = "  " * depth
    if isinstance(value, str) and _is_block(value):
        return [f"{indent}{_scalar(key)}: |-", *(f"{indent}  {line}".rstrip() for line in value.split("\n"))]
    short = f"{indent}{_scalar(key)}: {_flow(value)}"
    plain = not isinstance(value, dict | list) or not value
    if plain or ((depth > 0 or not isinstance(value, dict) or not _nested(value)) and len(short) <= _WIDTH):
        return [short]
    if isinstance(value, dict):
        inner = [line for name, item in value.items() for line in _field(name, item, depth + 1)]
    else:
        inner = [f"{indent}  - {_flow(item)}" for item in value]
    return [f"{indent}{_scalar(key)}:", *inner]


def _is_block(text: str) -> bool:
    """Whether the text reads back unchanged from a block."""
    lines = text.split("\n")
    plain = all(line.isprintable() and "\ufeff" not in line and line == line.rstrip() for line in lines)
    return len(lines) > 1 and plain and lines[0] == lines[0].lstrip() != "" and lines[-1] != ""


def _nested(value: dict[str, Any]) -> bool:
    return len(value) > 1 or any(isinstance(item, dict | list) for item in value.values())


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)
    if not isinstance(value, str):
        return json.dumps(value)
    if _BARE.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return "".join(_escaped(each) for each in json.dumps(value, ensure_ascii=False))


def _escaped(character: str) -> str:
    """JSON text is valid YAML, except for characters that YAML allows only as an escape."""
    if character.isprintable() and character != "\ufeff":
        return character
    return f"\\U{ord(character):08X}"
