"""Listings page by page: by the command that each page ends with, and by the cursor in its JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

import pytest
from typer.testing import Result

from orchestrator.errors import UsageError
from tests.unit.services.recorded_history import Past

Run = Callable[..., Result]
HISTORY = ("prices", "history", "--provider", "fake", "--limit", "3")
LISTINGS = {
    "queue": (("queue", "--all", "--limit", "1"), "jobs", "id"),
    "events": (("events", "--limit", "3"), "events", "id"),
    "offers": (("offers", "--cloud", "fake", "--limit", "7"), "offers", "id"),
    "prices history": (HISTORY, "series", "offer_id"),
}


@pytest.mark.parametrize("listing", sorted(LISTINGS))
def test_every_row_is_on_one_page_of_a_listing_as_json(tradewind: Run, past: Past, listing: str) -> None:
    command, rows, key = LISTINGS[listing]
    bare = command[: command.index("--limit")]
    whole = json.loads(tradewind(*bare, "--limit", "100", "--output", "json").stdout)
    assert whole["next_cursor"] is None
    seen: list[str] = []
    cursor: tuple[str, ...] = ()
    while True:
        page = json.loads(tradewind(*command, *cursor, "--output", "json").stdout)
        assert 0 < len(page[rows]) <= int(command[-1])
        seen += [row[key] for row in page[rows]]
        if page["next_cursor"] is None:
            break
        cursor = ("--cursor", page["next_cursor"])
    assert len(seen) > int(command[-1])
    assert sorted(seen) == sorted(row[key] for row in whole[rows])


@pytest.mark.parametrize("listing", sorted(LISTINGS))
def test_a_page_ends_with_the_command_for_the_next_one(tradewind: Run, past: Past, listing: str) -> None:
    command, rows, _ = LISTINGS[listing]
    first = json.loads(tradewind(*command, "--output", "json").stdout)
    texts = [tradewind(*command, "--cursor", first["next_cursor"]).stdout]
    count = 1
    while following := [
        line for line in texts[-1].splitlines() if line.startswith(("next page: ", "earlier events: "))
    ]:
        (line,) = following
        pasted = shlex.split(line[line.index("tradewind ") :])
        shown = tradewind(*pasted[1:])
        assert shown.exit_code == 0, shown.output
        texts.append(shown.stdout)
        count += 1
    whole = json.loads(tradewind(*command[: command.index("--limit")], "--limit", "100", "--output", "json").stdout)
    assert len(set(texts)) == count == -(-len(whole[rows]) // int(command[-1])) - 1


def test_a_page_of_jobs_says_that_its_sum_is_of_the_page(tradewind: Run, past: Past) -> None:
    assert "1 job on this page" in tradewind("queue", "--all", "--limit", "1").stdout
    assert "on this page" not in tradewind("queue", "--all").stdout


def test_a_cursor_with_other_options_or_with_follow_is_a_mistake_in_usage(tradewind: Run, past: Past) -> None:
    cursor = json.loads(tradewind("queue", "--all", "--limit", "1", "--output", "json").stdout)["next_cursor"]
    for command in (
        ("queue", "--cursor", cursor),
        ("queue", "--all", "--cursor", "x"),
        ("queue", "--all", "--cursor", ""),
        ("events", "--cursor", cursor),
        ("events", "--follow", "--cursor", cursor),
    ):
        result = tradewind(*command)
        assert (result.exit_code, bool(result.stdout)) == (UsageError.exit_code, False), result.output
        assert "hint: " in result.stderr
