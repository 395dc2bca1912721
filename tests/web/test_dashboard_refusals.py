"""What the dashboard refuses: strange addresses and hosts, and stores that it cannot read. Each has a page."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from fastapi import FastAPI

from orchestrator.web.app import create_app
from orchestrator.web.page_frame import address
from orchestrator.web.site import Site
from tests.web.dashboard import HOSTILE, Served

BAD = {
    "/jobs/job_0": 404,
    "/jobs?group=no-such": 404,
    "/nothing": 404,
    "/jobs?skip=-1": 422,
    "/jobs?sort=random": 422,
    "/jobs?state=asleep": 422,
    "/jobs?limit=-1": 422,
    "/jobs?cursor=zzz": 422,
    "/costs?colour=red": 422,
    "/health?x=1": 422,
    "/costs?month=2026-10&month=2026-11": 422,
    "/jobs?q=a&q=b": 422,
    "/jobs?q=%00": 422,
    "/ledger?owner=a%00b": 422,
    "/?month=2026-13": 400,
    "/?month=99999-01": 400,
    "/static/../../app.py": 404,
    "/static/vendor/vendor.toml": 404,
    "/theme/blue": 422,
    "/costs?since=9999-12-30&until=9999-12-31T23:59:00-12:00": 400,
    "/migrations?since=9999999d": 400,
}


@pytest.mark.parametrize(("path", "status"), BAD.items())
def test_an_address_that_makes_no_sense_has_a_page_that_says_so(fleet: Served, path: str, status: int) -> None:
    found, headers, body = fleet.get(path)
    assert found == status
    assert headers["content-type"].startswith("text/html")
    assert b"<h1>" in body
    assert b"Traceback" not in body


def test_a_parameter_that_a_page_does_not_have_is_named_beside_those_that_it_has(fleet: Served) -> None:
    _, _, body = fleet.get("/jobs.json?limit=-1")
    message = "limit: /jobs has no such parameter; it has group, project, q, skip, sort, state"
    assert json.loads(body)["error"]["message"] == message


@pytest.mark.parametrize(
    "given", ["/jobs?skip=50&sort=name", "/ledger?kind=egress&cursor=abc", "/migrations?before=mig_0"]
)
def test_a_csv_refuses_the_parameters_of_pages_and_no_page_links_to_it_with_them(fleet: Served, given: str) -> None:
    path, _, query = given.partition("?")
    status, _, body = fleet.get(f"{path}.csv?{query}")
    paging = next(each for each in ("skip", "cursor", "before") if f"{each}=" in query)
    assert status == 422
    assert json.loads(body)["error"]["message"].startswith(f"{paging}: {path}.csv has no such parameter; it has ")
    shown = {"skip": given, "before": "/migrations?since=90d"}.get(paging, "/ledger?kind=compute&since=90d")
    if paging != "skip":  # the second page, as the first one links to it
        older = re.search(r'rel="next" href="([^"]*)"', fleet.get(shown)[2].decode())
        assert older is not None
        shown = unescape(older[1])
    assert f"{paging}=" in shown
    linked = re.search(r'href="([^"]*\.csv[^"]*)"', fleet.get(shown)[2].decode())
    assert linked is not None
    assert fleet.get(unescape(linked[1]))[0] == 200
    assert "?" in linked[1]


@pytest.mark.parametrize(
    "path",
    ["/", "/jobs?q=a", "/jobs.json", "/jobs.csv", "/health.json", "/static/icon.svg", "/nothing", "/jobs?skip=-1"],
)
def test_head_is_answered_with_the_headers_of_get(fleet: Served, path: str) -> None:
    status, headers, body = fleet.get(path)
    assert body
    given = fleet.get(path, method="HEAD")
    assert (given[0], given[2]) == (status, b"")
    assert given[1]["content-type"] == headers["content-type"]
    assert int(given[1]["content-length"]) > 0
    assert given[1]["content-security-policy"] == headers["content-security-policy"]


def test_head_of_the_stream_of_changes_ends_at_once(fleet: Served) -> None:
    status, headers, body = fleet.get("/live", method="HEAD")
    assert (status, headers["content-type"], body) == (200, "text/event-stream; charset=utf-8", b"")


def test_a_parameter_that_is_given_twice_is_named_unless_it_is_a_list(fleet: Served) -> None:
    _, _, body = fleet.get("/costs.json?month=2026-10&month=2026-11")
    assert json.loads(body)["error"]["message"] == "month: may be given only once"
    offers = "offer=aws/us-east-1/us-east-1a/p3.2xlarge/spot&offer=aws/us-east-1/us-east-1b/p3.2xlarge/spot"
    assert fleet.get(f"/market.json?{offers}")[0] == 200


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("/jobs.json?skip=-1", 'skip: must be at least 0, not "-1"'),
        ("/jobs.json?skip=x", 'skip: must be a whole number, not "x"'),
        ("/jobs.json?sort=random", "sort: must be one of 'newest', 'oldest', 'cost' or 'name', not \"random\""),
        (f"/jobs.json?q={'x' * 201}", "q: must have at most 200 characters"),
        ("/ledger.json?limit=0", 'limit: must be at least 1, not "0"'),
    ],
)
def test_a_value_that_a_parameter_cannot_have_is_named_with_what_is_expected(
    fleet: Served, query: str, message: str
) -> None:
    status, _, body = fleet.get(query)
    assert (status, json.loads(body)["error"]["message"]) == (422, message)


def test_the_twins_answer_errors_as_documents(fleet: Served) -> None:
    status, headers, body = fleet.get("/jobs/job_0.json")
    assert (status, headers["content-type"]) == (404, "application/json")
    assert "job_0" in json.loads(body)["error"]["message"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:80@evil.example", "localhost.evil.example", "localhost:x"])
def test_a_foreign_name_of_this_machine_is_refused(fleet: Served, host: str) -> None:
    """DNS rebinding: a page of somebody else whose name points to 127.0.0.1."""
    status, _, body = fleet.get("/", Host=host)
    assert status == 421
    assert b"Tradewind</a>" not in body
    assert fleet.get("/health.json", Host="LOCALHOST:1")[0] == 200


def test_every_answer_forbids_what_a_page_does_not_need(fleet: Served) -> None:
    for path in ("/", "/jobs.json", "/nothing", "/static/app.js"):
        _, headers, _ = fleet.get(path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def answers(app: FastAPI, path: str, received: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What an application sends for a request of which it receives this."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return received.pop(0) if len(received) > 1 else received[0]

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [(b"host", b"localhost")]}
    asked: Any = {**scope, "http_version": "1.1", "server": None, "scheme": "http"}
    with ThreadPoolExecutor(1) as pool:  # in this thread runs the loop of the browser tests
        pool.submit(lambda: asyncio.run(app(asked, receive, send))).result()
    return sent


def test_a_page_that_fails_has_a_page_too_with_the_same_headers(fleet: Served) -> None:
    def broken() -> None:
        raise ValueError("a password")

    app = create_app(Site(fleet.client))
    app.add_api_route("/broken", broken)
    start, *parts = answers(app, "/broken", [{"type": "http.request"}])
    headers = dict(start["headers"])
    assert start["status"] == 500
    assert b"default-src 'none'" in headers[b"content-security-policy"]
    assert headers[b"cache-control"] == b"no-store"
    assert b"password" not in b"".join(each["body"] for each in parts)


def test_a_reader_who_leaves_early_is_no_error(fleet: Served, caplog: pytest.LogCaptureFixture) -> None:
    for path in ("/health.json", "/static/icon.svg", "/jobs"):
        answers(create_app(Site(fleet.client)), path, [{"type": "http.disconnect"}])
    assert caplog.records == []


@pytest.mark.parametrize("path", ["/costs?by=day&owner=A", "/market?gpu=L4&cloud=A"])
def test_a_command_on_a_page_can_be_pasted_whatever_the_filters_are(fleet: Served, path: str) -> None:
    attack = "$(touch x); a b'"
    _, _, body = fleet.get(path.replace("=A", f"={quote(attack)}"))
    shown = re.findall(r'<span class="cmd">([^<]*)</span>', body.decode())
    words = shlex.split(unescape(shown[0]))
    asked = parse_qs(urlsplit(path).query)
    assert words[0] == "tradewind"
    assert words.count(attack) == sum(values == ["A"] for values in asked.values())
    assert "touch" not in " ".join(each for each in words if each != attack)


@pytest.mark.parametrize("state", ["", "open", "ended", "queued"])
@pytest.mark.parametrize("q", ["", "a"])
@pytest.mark.parametrize("project", ["", HOSTILE[0]])
@pytest.mark.parametrize("group", ["", HOSTILE[0]])
def test_the_command_below_the_jobs_lists_the_same_ones(
    fleet: Served, state: str, q: str, project: str, group: str
) -> None:
    path = address("/jobs", state=state, q=q, project=project, group=group)
    shown = re.findall(r'<span class="cmd">([^<]*)</span>', fleet.get(path)[2].decode())
    if q or state in ("ended", "queued"):  # the command has no such filters
        assert shown == []
        return
    words = shlex.split(unescape(shown[0]))
    assert words[:2] == ["tradewind", "queue"]
    ended = "--all" in words
    options = [word for word in words[2:] if word != "--all"]
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert given.keys() <= {"--project", "--group"}
    listed = fleet.client.jobs.list(ended=ended, project=given.get("--project"), group=given.get("--group"), limit=None)
    document = fleet.json(path.replace("/jobs", "/jobs.json"))
    assert len(listed.jobs) == document["count"] > 0
    assert {each["id"] for each in document["jobs"]} <= {each.id for each in listed.jobs}


def test_a_page_beyond_the_last_job_says_so_and_leads_back(fleet: Served) -> None:
    count = fleet.json("/jobs.json")["count"]
    assert 50 < count <= 100
    for path, said, back in (
        ("/jobs?skip=999", f"it has only {count} jobs.", "/jobs?sort=newest&amp;skip=50"),
        (address("/jobs", group=HOSTILE[0], skip=1), "it has only 1 job.", "sort=newest"),
    ):
        _, _, body = fleet.get(path)
        page = body.decode()
        assert said in page
        assert "No job matches" not in page
        assert re.search(r'rel="prev" href="([^"]*)"', page)[1].endswith(back)  # type: ignore[index]
        assert not re.search(r"\d+ to \d+ of", page)


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example", "jobs"])
def test_the_choice_of_a_theme_leads_nowhere_else(fleet: Served, target: str) -> None:
    from orchestrator.web.routes.frame import local

    assert not local(target)
    assert local("/jobs?sort=cost")
