"""Output: the one place that writes. Data goes to stdout, everything else to stderr.

Nothing that a job, a feed or a file says can steer the terminal: control characters are shown, not sent.
Understandable without colour; colour only on a terminal and never with NO_COLOR.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.formats.documents import View


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


class Ticker(Protocol):
    """Shows how far something is."""

    def __call__(self, text: str, done: int, total: int | None) -> None: ...


class Output:
    """Writes the results of one command in one format."""

    def __init__(self, output: Format = Format.TABLE) -> None:
        self.format = output

    def show(self, view: View, *, stream: bool = False) -> None:
        """A result, to stdout; one of a stream is a single line of JSON."""
        if self.format is Format.JSON:
            from orchestrator.formats.documents import dumps

            self.data(dumps(view, indent=None if stream else 2))
        else:
            from orchestrator.cli.render import render

            self.data(render(view, color=self.color, terminal=sys.stdout.isatty()))

    def data(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Anything that is not the result, to stderr."""
        tell(text)

    @property
    def color(self) -> bool:
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    @property
    def live(self) -> bool:
        """Whether somebody watches stderr."""
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def can_ask(self) -> bool:
        """Whether somebody can answer."""
        return sys.stdin.isatty()

    def confirm(self, question: str) -> bool:
        """Ask on the terminal; anything but y or yes is no. Raises UsageError when nobody can answer."""
        if not self.can_ask:
            raise UsageError("this asks before it acts, and stdin is no terminal", hint="add --yes")
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    @contextmanager
    def progress(self) -> Iterator[Ticker]:
        """A bar on a terminal; elsewhere nothing."""
        if not self.live:
            yield lambda _text, _done, _total: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        from orchestrator.cli.render.text import clean

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda text, done, total: bar.update(task, description=clean(text), completed=done, total=total)


def tell(text: str) -> None:
    """To stderr. Where that is closed or full there is nobody to tell, and what is done goes on."""
    from orchestrator.cli.render.text import shown

    with suppress(OSError):
        if sys.stderr is not None:
            sys.stderr.write(shown(text) + "\n")
            sys.stderr.flush()
