"""The program sent to a host's Python: Tradewind's modules as text, a check of the Python version, and one request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from providers.static.on_host import ANSWER

LEAST_PYTHON = (3, 11)
_MODULES = (
    *("providers.errors", "providers.clock", "providers.processes"),
    *("providers.static.slots", "providers.static.turns", "providers.static.shared_memory", "providers.static.on_host"),
)
_BEGIN = "# tradewind"
_PROGRAM = """{begin}
import sys
if sys.version_info < {least!r}:
    print({answer!r} + '{{"error": "python", "message": "%d.%d"}}' % sys.version_info[:2])
    sys.exit(0)
import types
for name, text in {sources!r}:
    module = sys.modules[name] = types.ModuleType(name)
    if text is not None:
        exec(compile(text, name, "exec"), module.__dict__)
sys.modules["providers.static.on_host"].main({request!r})
"""
_LOADER = (
    "import sys; text = sys.stdin.read(); "
    f"exec(text) if text.startswith({_BEGIN!r}) else print({ANSWER!r} + {{answer!r}})"
)
"""A login shell that asks its user something would read the beginning of the input that is meant for this program."""


def loader() -> str:
    """The Python program that reads `program`'s text from its standard input, and executes it if it is complete."""
    return _LOADER.format(answer=json.dumps({"error": "shell", "message": ""}))


def program(request: Mapping[str, Any]) -> str:
    """A Python program that carries out one request of providers.static.on_host."""
    return _PROGRAM.format(
        begin=_BEGIN, least=LEAST_PYTHON, answer=ANSWER, sources=_sources(), request=json.dumps(request)
    )


def answer_in(output: str) -> Mapping[str, Any] | None:
    """The answer in a host's output, which may include a greeting; None if there is no answer."""
    lines = [line for line in output.splitlines() if line.startswith(ANSWER)]
    try:
        found = json.loads(lines[-1].removeprefix(ANSWER)) if lines else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@cache
def _sources() -> tuple[tuple[str, str | None], ...]:
    packages: tuple[tuple[str, str | None], ...] = (("providers", None), ("providers.static", None))
    return (*packages, *((name, _source(name)) for name in _MODULES))


def _source(name: str) -> str:
    package, _, module = name.rpartition(".")
    return files(package).joinpath(f"{module}.py").read_text(encoding="utf-8")
