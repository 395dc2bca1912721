"""An empty store, one that a newer version has upgraded or that is gone, no control plane, a period of a century: each
has a page that says what is the matter."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from logging import INFO
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser

from orchestrator.client import Client
from orchestrator.config import load_config
from orchestrator.installation import open_installation
from orchestrator.model import Event, Job, JobSpec, TrainSpec
from orchestrator.services.caller import Caller
from orchestrator.web.serve import serving
from orchestrator.web.site import Site
from tests.web.dashboard import Served, add_hostile
from tests.web.inspection import complaints_on_a_telephone, telephone

PAGES = (
    "/",
    "/jobs",
    "/costs",
    "/ledger",
    "/market",
    "/market/frontier",
    "/migrations",
    "/plans",
    "/policies",
    "/health",
)
HOUR_MS = 3_600_000


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Served]:
    config = load_config({"state_dir": str(tmp_path / "state")}, environ={}, cwd=tmp_path)
    with closing(open_installation(config, starts=True)) as made:
        client = Client.over(made, Caller("tester"))
        with serving(Site(client)) as url:
            yield Served(url, client, made)


def database(served: Served) -> Path:
    return served.installation.config.state_dir / "tradewind.db"


@pytest.mark.parametrize("path", PAGES)
def test_a_page_without_data_says_so(empty: Served, path: str) -> None:
    status, _, body = empty.get(path)
    assert status == 200
    assert any(each in body for each in (b"No ", b"no jobs yet", b"Nothing ")), body.decode()
    for twin in (".json", ".csv"):
        assert empty.get(("/overview" if path == "/" else path) + twin)[0] == 200


def test_long_words_of_errors_wrap_on_a_telephone(empty: Served, browser: Browser) -> None:
    job_id = add_hostile(empty.installation, "long", 1)
    with empty.installation.store.write() as tx:
        tx.set_job_state(job_id, "failed")
        tx.set_job_facts(job_id, error=f"ValueError: {'x' * 400}", quarantine=f"cannot write {'/a_folder' * 40}")
    with telephone(browser) as page:
        for path in (f"/jobs/{job_id}", "/jobs?state=failed", "/health", "/"):
            assert complaints_on_a_telephone(page, empty.url + path) == [], path


def test_a_store_that_a_newer_version_has_upgraded_meanwhile(empty: Served) -> None:
    with closing(sqlite3.connect(database(empty))) as connection:
        connection.execute("UPDATE schema_revision SET version_num = '20991231_0000_ffffff'")
        connection.commit()
    status, headers, body = empty.get("/")
    assert (status, headers["content-type"].split(";")[0]) == (503, "text/html")
    assert b"A newer store" in body
    assert b"restart with the version that upgraded it" in body
    status, _, body = empty.get("/costs.json")
    assert status == 503
    assert "was upgraded while it was in use" in json.loads(body)["error"]["message"]


def test_a_dashboard_that_ends_closes_the_streams_of_open_pages(
    empty: Served, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(Site(empty.client)) as url:
        stream = urlopen(f"{url}/live", timeout=30)
        assert stream.readline() == b"event: hello\n"
    stream.read()  # it ends
    assert [each for each in caplog.records if each.levelno > INFO] == []
    assert capfd.readouterr().err == ""


def test_a_store_that_is_gone(empty: Served) -> None:
    database(empty).rename(database(empty).with_suffix(".away"))
    status, _, body = empty.get("/jobs")
    assert status == 503
    assert b"The store does not answer" in body
    assert b"Try again" in body


def test_without_a_control_plane_the_first_page_says_how_old_it_is(empty: Served) -> None:
    at_ms = empty.installation.clock.now_ms() - 30 * HOUR_MS
    job = Job("job_A", JobSpec("left", TrainSpec("a:b", None, {}, "/", {}, (), 100, None)), "me", at_ms, "running")
    with empty.installation.store.write() as tx:
        tx.add_job(job)
        tx.add_event(Event("ev_A", at_ms, "job.submitted", "submitted", "user:me", job.id))
    (incident,) = [each for each in empty.json("/overview.json")["incidents"] if each["level"] == "error"]
    assert incident["remedy"] == "tradewind up"
    assert incident["what"].startswith("No control plane is running here")
    assert "The newest event is 30." in incident["what"]
    assert incident["what"].encode() in empty.get("/")[2]


def test_of_a_run_that_was_aborted_a_page_does_not_say_that_it_has_yet_to_train(empty: Served) -> None:
    job_id = add_hostile(empty.installation, "aborted", 1)
    page = empty.get(f"/jobs/{job_id}")[2]
    assert b'data-l="trained">never</td>' in page
    assert b"not yet" not in page


def test_the_first_page_counts_budgets_of_jobs_without_a_forecast(empty: Served) -> None:
    now_ms, train = empty.installation.clock.now_ms(), TrainSpec("a:b", None, {}, "/", {}, (), 100, None)
    assert b"No open job has a budget." in empty.get("/")[2]
    with empty.installation.store.write() as tx:
        for name in ("first", "second"):
            tx.add_job(Job(f"job_{name}", JobSpec(name, train, budget_nano_usd=10**9), "me", now_ms, "paused"))
    expected = empty.json("/overview.json")["expected"]
    assert (expected["budgeted"], expected["unknown"], expected["without_forecast"]) == (0, 2, 2)
    page = empty.get("/")[2]
    assert b"No open job has a budget." not in page
    assert b"2 without a forecast, 2 of them with a budget" in page


@pytest.mark.parametrize("path", ["/costs", "/market"])
def test_a_period_of_a_century_is_refused_with_the_longest_one(empty: Served, path: str) -> None:
    status, _, body = empty.get(f"{path}?since=1926-01-01&until=2026-01-01")
    assert status == 400
    assert b"at most 3660 days" in body
