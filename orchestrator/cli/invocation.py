"""One call of the command line: its arguments, what it stored, and its JSON document.

Once something is stored the command exits with 0, whatever fails later: a script that reads another exit code would run
the command again, and pay twice.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import traceback
from collections.abc import Collection, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from orchestrator.errors import InfeasibleError, OutputError, SpecError, TradewindError

if TYPE_CHECKING:
    from orchestrator.formats.documents import View

DEBUG_VARIABLE = "TRADEWIND_DEBUG"


class Invocation:
    """The arguments and the results of one command. With `--output json` it writes nothing to stderr, so that stdout
    and stderr together are still one document, which includes warnings and errors."""

    def __init__(self, arguments: Sequence[str] = (), commands: Collection[str] = ()) -> None:
        self.command = shlex.join(["tradewind", *arguments])
        self.json = _wants_json(arguments)
        self._state_folder = _state_folder(arguments)
        self._commands = commands
        self.stored = ""
        self._document: dict[str, Any] | None = None
        self._warnings: list[dict[str, Any]] = []
        self._streamed = False

    def is_stored(self, what: str) -> None:
        """Record that something was stored, as the sentence `what`: later failures become warnings."""
        self.stored = what

    def here(self, text: str) -> str:
        """`text` with the given state folder added to each command in it, so that pasted commands act on the same
        installation."""
        if not self._state_folder:
            return text
        named = rf"\btradewind (?=(?:{'|'.join(map(re.escape, self._commands))})(?![\w-]))"
        return re.sub(named, lambda _: f"tradewind --state-dir {shlex.quote(self._state_folder)} ", text)

    def answer(self, view: View, *, stream: bool) -> None:
        """Give a result as JSON: in a stream it is written at once, on one line; otherwise it is kept until the end."""
        from orchestrator.formats.documents import codec_of

        document = codec_of(type(view)).document(view)
        if not stream:
            self._document = document
            return
        self._streamed = True
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()

    def warn(self, text: str, hint: str = "") -> None:
        """Report a failure that does not change the exit code."""
        if self.json:
            self._warnings.append({"message": self.here(text), "hint": self.here(hint)})
        else:
            tell(f"warning: {text}" + (f"\nhint: {hint}" if hint else ""))

    def fail(self, error: Exception, code: int) -> int:
        """Report the error that ends the command, as text or in the document. Returns `code`."""
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exception(error)
        said = _error(error, code)
        said |= {part: self.here(said[part]) for part in ("message", "hint")}
        if self.json and not isinstance(error, OutputError):  # stdout cannot be written
            self._document = {**(self._document or {"schema": "tradewind/error/v1"}), "error": said}
            return code
        prefix = "" if isinstance(error, SpecError) else "error: " if _expected(error) else "unexpected error: "
        tell(f"{prefix}{said['message']}")
        if said["hint"]:
            tell(f"hint: {said['hint']}")
        return code

    def only_a_warning(self, error: Exception) -> bool:
        """Whether something was stored before `error`, which is then reported as a warning."""
        if not self.stored:
            return False
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exception(error)
        name = "" if isinstance(error, OSError) or hasattr(error, "hint") else f"{type(error).__name__}: "
        hint = getattr(error, "hint", "") or "check with tradewind doctor; continue with tradewind up"
        self.warn(f"{self.stored}, but: {name}{error}", hint)
        return True

    def end(self) -> None:
        """Write the document, if there is one."""
        if self._document is not None:
            warned = {"command_warnings": self._warnings} if self._warnings else {}
            document, self._document = {**self._document, **warned}, None
            sys.stdout.write(json.dumps(document, indent=None if self._streamed else 2) + "\n")
            sys.stdout.flush()


_current: ContextVar[Invocation] = ContextVar("the current command")


def begin(arguments: Sequence[str], commands: Collection[str]) -> Invocation:
    """Start a command; `commands` are the names of all commands."""
    invocation = Invocation(arguments, commands)
    _current.set(invocation)
    return invocation


def current() -> Invocation:
    """The current command."""
    return _current.get()


def _state_folder(arguments: Sequence[str]) -> str:
    """The value of `--state-dir`, which precedes the command; "" if it was not given."""
    folder, rest = "", list(arguments)
    while rest and rest[0].startswith("-"):
        option, _, value = rest.pop(0).partition("=")
        if option == "--state-dir":
            folder = value or (rest.pop(0) if rest else "")
    return folder


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether JSON is wanted. Reads the raw arguments, since a wrong option is reported before options are parsed."""
    typed = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    values = [after for option, after in pairwise(typed) if option == "--output"]
    values += [option.removeprefix("--output=") for option in typed if option.startswith("--output=")]
    return "json" in values


def _expected(error: Exception) -> bool:
    return isinstance(error, TradewindError) or hasattr(error, "format_message")


def _error(error: Exception, code: int) -> dict[str, Any]:
    """An error as a JSON object."""
    problems: tuple[Any, ...] = error.problems if isinstance(error, SpecError) else ()
    relaxations = error.relaxations if isinstance(error, InfeasibleError) else ()
    if isinstance(error, TradewindError):
        message, hint = str(error), error.hint
    elif _expected(error):  # from the option parser
        message, hint = error.format_message(), ""  # type: ignore[attr-defined]
    else:
        message = f"{type(error).__name__}: {error}"
        hint = "run it again with `tradewind --debug ...` and report the traceback"
    return {
        "code": code,
        "type": type(error).__name__,
        "message": message,
        "hint": hint,
        "problems": [
            {
                "file": each.path,
                "line": each.line or None,
                "column": each.column or None,
                "field": each.field,
                "message": each.message,
                "hint": each.hint,
            }
            for each in problems
        ],
        "relaxations": [asdict(each) for each in relaxations],
    }


def tell(text: str) -> None:
    """Write `text` to stderr. If stderr is closed or full, the command continues without it."""
    from orchestrator.cli.render.text import fitted, shown

    with suppress(OSError):
        if sys.stderr is not None:
            width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
            invocation = _current.get(None)
            text = text if invocation is None else invocation.here(text)
            sys.stderr.write(fitted(shown(text), width) + "\n")
            sys.stderr.flush()
