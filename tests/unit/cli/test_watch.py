"""`watch`: one screen on a terminal, lines in a pipe, documents as JSON; it ends with its job or with Ctrl-C."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import sqlite3
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import Result

from orchestrator.cli.render import render
from orchestrator.cli.render.screens.watch import LEVELS, sparkline
from orchestrator.cli.render.text import Screen
from orchestrator.cli.watching import Watcher
from orchestrator.client import Client
from orchestrator.config import load_config
from orchestrator.errors import NotFoundError
from orchestrator.model import Event
from orchestrator.prices.views import PriceSeries
from orchestrator.store import Store
from providers.clock import SystemClock
from tests.unit.services.recorded_history import Past

Run = Callable[..., Result]
MAIN = (sys.executable, "-c", "from orchestrator.cli import main; main()")
PATIENCE_S = 60.0


class Terminal:
    """A command on a pseudo-terminal, and the screen that a person would see."""

    def __init__(self, environment: dict[str, str], columns: int, rows: int, *arguments: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            settings = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(sys.executable, [*MAIN, *arguments], settings | {"TERM": "xterm-256color"})
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    def until(self, seen: Callable[[list[str]], bool]) -> list[str]:
        """The screen once it is as wanted."""
        while not seen(self.lines()):
            assert select.select([self._fd], [], [], PATIENCE_S)[0], self.lines()
            assert self._read(), self.lines()
        return self.lines()

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        os.write(self._fd, b"\x03")
        return self.end()

    def end(self) -> int:
        """All that it still writes; the exit code."""
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the command has ended
            return False
        self._stream.feed(data)
        self.written += data
        return bool(data)

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def terminal(environment: dict[str, str], columns: int, rows: int, *arguments: str) -> Iterator[Terminal]:
    shown = Terminal(environment, columns, rows, *arguments)
    try:
        yield shown
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(shown.pid, 9)
        with suppress(ChildProcessError):
            os.waitpid(shown.pid, 0)
        shown.close()


def _whole(lines: list[str]) -> bool:
    return any("simulated" in line for line in lines)


def _runs(lines: list[str]) -> bool:
    return any("conv  running" in line for line in lines)


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40)])
def test_the_live_view_fits_its_terminal_follows_its_size_and_ends_with_ctrl_c(
    environment: dict[str, str], columns: int, rows: int
) -> None:
    with terminal(environment, columns, rows, "watch") as shown:
        lines = shown.until(_whole)
        assert len([line for line in lines if line]) <= rows
        text = "\n".join(lines)
        assert "live: 2, ended: 1" in text
        assert "conv  running" in text
        assert "tradewind up" in text  # no control plane runs
        assert set(LEVELS) & set(text)  # the price of conv's offer
        assert lines[0].startswith("20")
        assert any("conv: first placement: done" in line for line in lines)
        shown.resize(70, 18)
        # A look may fall between the parts of a frame: what counts is that a whole one comes.
        shown.until(lambda now: now[0][:2] == "20" and now[0] != lines[0] and _whole(now) and _runs(now))
        assert shown.interrupt() == 0
        assert any("conv  running" in line for line in shown.lines())  # the last look stays


@pytest.mark.parametrize("columns", [60, 80])
def test_what_continues_a_paused_job_is_whole_in_the_live_view(
    environment: dict[str, str], state: Path, past: Past, columns: int
) -> None:
    name = "a-job-with-a-name-so-long-that-its-command-fits-no-line"
    said = f"paused before it started: its budget is too small; to continue: tradewind budget set {name} 3.00"
    with closing(sqlite3.connect(state / "tradewind.db")) as connection, connection:
        connection.execute(
            "UPDATE job SET state = 'paused', name = ?, spec = replace(spec, '\"lstm\"', ?) WHERE id = ?",
            (name, json.dumps(name), past.lstm),
        )
    with closing(Store.open(f"sqlite:///{state}/tradewind.db", SystemClock())) as store, store.write() as tx:
        tx.add_event(Event("ev_9", SystemClock().now_ms(), "job.paused", said, "control-plane", job_id=past.lstm))
    with terminal(environment, columns, 40, "watch") as shown:
        text = "".join("".join(shown.until(_whole)).split())
        assert f"{name}:{said}".replace(" ", "") in text
        assert shown.interrupt() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_it_leaves_the_terminal_as_it_was(environment: dict[str, str], number: int) -> None:
    with terminal(environment, 80, 24, "watch") as shown:
        shown.until(_whole)
        os.kill(shown.pid, number)
        assert shown.end() == 128 + number
        assert not shown.screen.cursor.hidden
        assert shown.written.rfind(b"\x1b[?1049l") > shown.written.rfind(b"\x1b[?1049h")


def test_it_continues_while_the_control_plane_comes_and_goes(environment: dict[str, str], state: Path) -> None:
    store = Store.open(f"sqlite:///{state}/tradewind.db", SystemClock())
    leadership = store.campaign("test")
    assert leadership is not None
    with terminal(environment, 80, 24, "watch") as shown:
        shown.until(lambda now: _whole(now) and not any("no control plane" in line for line in now))
        store.resign(leadership)
        shown.until(lambda now: any("no control plane" in line for line in now))
        assert shown.interrupt() == 0
    store.close()


def test_a_store_that_cannot_be_read_leaves_the_last_look_standing(environment: dict[str, str], state: Path) -> None:
    config = load_config({"state_dir": str(state), "providers.enabled": "fake"}, environ={})
    with Client(config) as client, closing(sqlite3.connect(state / "tradewind.db")) as connection:
        watcher = Watcher(client)
        before = watcher.look()
        connection.execute("ALTER TABLE event RENAME TO elsewhere")
        during = watcher.look()
        assert (during.jobs, bool(during.trouble)) == (before.jobs, True)
        assert during.trouble in render(during, Screen())
        connection.execute("ALTER TABLE elsewhere RENAME TO event")
        assert watcher.look().trouble == ""


def test_a_job_that_does_not_exist_is_not_watched(tradewind: Run) -> None:
    assert tradewind("watch", "nobody").exit_code == NotFoundError.exit_code


def test_in_a_pipe_it_prints_lines_and_ends_with_its_job(tradewind: Run) -> None:
    result = tradewind("watch", "gpt")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert any("migration.done" in line for line in lines)
    assert lines[-1].startswith("gpt finished 100%")
    assert "\x1b" not in result.stdout


def test_in_a_pipe_commands_name_the_state_folder_that_was_typed(tradewind: Run, state: Path, past: Past) -> None:
    with closing(Store.open(f"sqlite:///{state}/tradewind.db", SystemClock())) as store, store.write() as tx:
        said = "to continue: tradewind budget set gpt 3.00, then tradewind resume gpt"
        tx.add_event(Event("ev_9", SystemClock().now_ms(), "job.paused", said, "control-plane", job_id=past.gpt))
    shown = tradewind("--state-dir", str(state), "watch", "gpt").stdout
    typed = f"tradewind --state-dir {state}"
    assert f"to continue: {typed} budget set gpt 3.00, then {typed} resume gpt\n" in shown


def test_as_json_it_prints_a_document_per_change(tradewind: Run) -> None:
    (document,) = map(json.loads, tradewind("watch", "gpt", "--output", "json").stdout.splitlines())
    assert document["schema"] == "tradewind/watch/v1"
    assert [job["name"] for job in document["jobs"]] == ["gpt"]


def test_waiting_in_a_pipe_tells_on_stderr_what_happens(tradewind: Run) -> None:
    result = tradewind("wait", "gpt")
    assert result.exit_code == 0
    assert "gpt finished 100%" in result.stderr
    assert tradewind("wait", "gpt", "--output", "json").stderr == ""


POINTS = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 10**10)), min_size=1, max_size=8)


@given(POINTS, st.integers(1, 60))
def test_a_sparkline_is_as_wide_as_asked_and_shows_the_price_in_force(
    points: list[tuple[int, int]], width: int
) -> None:
    steps = sorted(points)
    series = PriceSeries("a/b/c/d/spot", None, 0, True, 100, tuple((at, at, price) for at, price in steps), ())
    drawn = sparkline(series, 0, 100, width)
    prices = [price for _, price in steps]
    assert len(drawn) == width
    if max(prices) > min(prices):
        assert LEVELS.index(drawn[-1]) == (prices[-1] - min(prices)) * 7 // (max(prices) - min(prices))
    assert drawn.lstrip(" ").count(" ") == 0
