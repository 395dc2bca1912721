"""What a command has stored for good. From there on it ends with 0, whatever fails: a script that reads another exit
code would do it once more, and pay twice. What fails is a warning.
"""

import os
import traceback
from contextvars import ContextVar

from orchestrator.cli.output import tell

DEBUG_VARIABLE = "TRADEWIND_DEBUG"

_what: ContextVar[str] = ContextVar("what is stored", default="")


def nothing_is_stored() -> None:
    """A command begins."""
    _what.set("")


def is_stored(what: str) -> None:
    """`what`, a sentence, is true from now on, whatever becomes of this command."""
    _what.set(what)


def something_is_stored() -> bool:
    return _what.get() != ""


def only_a_warning(error: Exception) -> bool:
    """Whether `error` comes after something was stored; then it is told as a warning."""
    if not something_is_stored():
        return False
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)
    name = "" if isinstance(error, OSError) or hasattr(error, "hint") else f"{type(error).__name__}: "
    hint = getattr(error, "hint", "") or "look at it: tradewind doctor; go on: tradewind up"
    tell(f"warning: {_what.get()}, but: {name}{error}\nhint: {hint}")
    return True
