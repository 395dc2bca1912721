"""The only module that writes output. Data goes to stdout, everything else to stderr.

Nothing in the output of a job, a feed or a file can control the terminal: control characters are shown, not sent.
Colour is used only on a terminal and never with NO_COLOR; the text can be understood without it.
orchestrator.cli.render turns views into text.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from orchestrator.cli.asking import answer
from orchestrator.cli.invocation import current, tell
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.cli.render.text import Screen
    from orchestrator.formats.documents import View


class Format(StrEnum):
    """Values of `--output`."""

    TABLE = "table"
    JSON = "json"


class Ticker(Protocol):
    """Shows progress."""

    def __call__(self, text: str, done: int, total: int | None) -> None:
        """Show `text`; `done` of `total` steps (None: unknown)."""


class Output:
    """Writes the results of one command in one format. `wide` and `why` say how much a table shows; `file` is the job
    file that hints name; `again` is the command to repeat for more results (None: the command as typed)."""

    def __init__(
        self,
        output: Format = Format.TABLE,
        *,
        wide: bool = False,
        why: bool = False,
        file: Path | str | None = None,
        again: str | None = None,
    ) -> None:
        self.format = output
        self._wide, self._why = wide, why
        self._file = "" if file is None else shlex.quote(str(file))
        self._again = again

    def show(self, view: View, *, stream: bool = False) -> None:
        """Write a result to stdout; in a stream, as one line of JSON."""
        if self.format is Format.JSON:
            current().answer(view, stream=stream)
        else:
            from orchestrator.cli.render import is_verbatim, render

            text = render(view, self.screen(sys.stdout), terminal=sys.stdout.isatty())
            self.data(text if is_verbatim(view) else current().here(text))

    def name_no_job_file(self) -> None:
        """The file is not a job file, so hints must not name it as one."""
        self._file = ""

    def review(self, view: View) -> None:
        """Write what the user is asked to agree to, on stderr."""
        from orchestrator.cli.render import render

        tell(render(view, self.screen(sys.stderr)))

    def screen(self, stream: TextIO | None = None) -> Screen:
        """The screen of a stream: as wide as its terminal, or as COLUMNS says; unlimited in a pipe."""
        from orchestrator.cli.render.text import Screen

        stream = sys.stdout if stream is None else stream
        terminal = stream is not None and stream.isatty()
        color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        width = shutil.get_terminal_size().columns if terminal or os.environ.get("COLUMNS") else None
        command = current().command if self._again is None else self._again
        return Screen(color, width, wide=self._wide, why=self._why, command=command, file=self._file)

    def data(self, text: str) -> None:
        """Write `text` to stdout."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Write a note to stderr; nothing with `--output json`."""
        if self.format is Format.TABLE:
            tell(text)

    def warn(self, text: str, hint: str = "") -> None:
        """Report a problem that does not change the exit code: on stderr, or in the document."""
        current().warn(text, hint)

    @property
    def live(self) -> bool:
        """Whether stderr is a terminal."""
        return self.format is Format.TABLE and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def can_ask(self) -> bool:
        """Whether the user can be asked."""
        return sys.stdin.isatty()

    def confirm(self, question: str) -> bool:
        """Ask on the terminal; anything but y or yes is no. Raises UsageError if the user cannot be asked."""
        if not self.can_ask:
            raise UsageError("this command asks for confirmation, and stdin is not a terminal", hint="add --yes")
        return answer(f"{question} [y/N] ").lower() in ("y", "yes")

    def ask(self, question: str, default: str = "") -> str:
        """Ask on the terminal; an empty answer means `default`."""
        return answer(f"{question}{f' [{default}]' if default else ''}: ") or default

    @contextmanager
    def after_ctrl_c(self, what: str) -> Iterator[None]:
        """If Ctrl-C ends the block, say what continues or is incomplete."""
        try:
            yield
        except KeyboardInterrupt:
            self.note(f"\n{what}")
            raise

    @contextmanager
    def progress(self) -> Iterator[Ticker]:
        """A progress bar on a terminal; elsewhere nothing."""
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
