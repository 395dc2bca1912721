"""Text of strangers steers no terminal."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.unit.cli.conftest import Run
from tests.unit.services.recorded_history import Past

STRANGE = "\x1b]0;title\x07\x1b[2J\x9b31m\x00\u202e[bold red]tail"


def test_what_a_stranger_wrote_steers_no_terminal(tradewind: Run, state: Path, past: Past) -> None:
    with closing(sqlite3.connect(state / "tradewind.db")) as connection, connection:
        connection.execute(
            "UPDATE job SET name = ?, spec = replace(spec, '\"conv\"', ?)", (STRANGE, json.dumps(STRANGE))
        )
        connection.execute("UPDATE migration SET error = ?", (STRANGE,))
    for command in (("queue", "--all"), ("status", past.conv), ("events",), ("explain", past.conv), ("report",)):
        result = tradewind(*command)
        assert result.exit_code == 0, result.stderr
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", result.output), command
    assert "[bold red]tail" in tradewind("queue", "--all").stdout  # no markup, and nothing of it lost
    failed = tradewind("status", "no\x1b[2Jbody")
    assert failed.exit_code == 2
    assert "no\\x1b[2Jbody" in failed.stderr


def test_only_our_own_colours_are_sent() -> None:
    from orchestrator.cli.render.text import Screen, shown
    from orchestrator.formats.hidden import visible

    painted = Screen(True)("fine", "green")
    assert shown(f"{painted}\n\ta\x1b[5mb\x9bc") == f"{painted}\n\ta\\x1b[5mb\\x9bc"
    assert visible("\x1b[32m\u202e\r\n\U000e0001") == "\\x1b[32m\\u202e\\x0d\\x0a\\U000e0001"
    assert visible("as it is: \u4e2d\u6587, \u00e9, \t tab") == "as it is: \u4e2d\u6587, \u00e9, \t tab"


def test_text_of_strangers_cannot_rewrite_the_screen() -> None:
    from orchestrator.cli.render.table import Column, numbers, table
    from orchestrator.cli.render.text import Screen, clean

    assert clean("a\x1b[2Jb\nc\u202ed") == "a [2Jb c d"
    plain = table((Column("name"), numbers("n")), [("\u4e2d\u6587", "1"), ("abc", "10")], Screen())
    assert plain.splitlines() == ["name   n", "\u4e2d\u6587   1", "abc   10"]
    assert "\x1b[32m" in table((Column("", state=True), Column("")), [("ok", "x")], Screen(True))
