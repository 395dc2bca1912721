"""Tests that the provider keeps Tradewind's contract, with a local server that speaks Harbour's protocol."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from providers import errors
from providers.base import LaunchSpec, Provider
from providers.clock import VirtualClock
from providers.registry import provider_factory
from providers.testing import ProviderContract

TYPES = [
    {
        "type": "a100",
        "gpu": "A100 80GB",
        "gpus": 1,
        "cores": 16,
        "memory_gb": 120,
        "spot": False,
        "usd_per_hour": "1.6",
    },
    {"type": "a100", "gpu": "A100 80GB", "gpus": 1, "cores": 16, "memory_gb": 120, "spot": True, "usd_per_hour": "0.7"},
    {"type": "tpu", "gpu": "unheard-of", "gpus": 1, "cores": 16, "memory_gb": 120, "spot": True, "usd_per_hour": "9"},
]
START_S, LAG_MS, PAGE_ROWS = 20, 20_000, 2
OFFER = "harbour/north//a100/on_demand"


class Refused(Exception):
    def __init__(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(code)
        self.status, self.code, self.headers = status, code, headers or {}


class Harbour:
    """The cloud: its machines by id. `refusals` are raised one by one, before a request has any effect. `lost` answers
    are not sent, after the request has taken effect."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock, self.machines, self.launched = clock, dict[str, dict[str, Any]](), dict[str, Any]()
        self.refusals, self.lost, self.began_ms = list[Refused](), 0, clock.now_ms()

    def answer(self, method: str, path: str, body: Any) -> Any:
        url, now_ms = urlsplit(path), self.clock.now_ms()
        query = {name: values for name, values in parse_qs(url.query).items() if values != [""]}
        if self.refusals:
            raise self.refusals.pop()
        for row in self.machines.values():
            self._pass(row, now_ms)
        if url.path == "/v1/types":
            return {"types": [{**row, "region": "north", "since_ms": self.began_ms} for row in TYPES]}
        if url.path == "/v1/account":
            return {"machines": {"limit": 8, "used": sum(row["ended_ms"] is None for row in self.machines.values())}}
        if method == "POST":
            return {"machines": self._launch(body, now_ms)}
        if method == "PATCH":
            for row in (self.machines[each] for each in body["ids"] if each in self.machines):
                row["dies_ms"] = now_ms + 1000 * body["time_to_live_s"]
            return {}
        if method == "DELETE":
            if (name := unquote(url.path.split("/")[-1])) not in self.machines:
                raise Refused(404, "unknown_machine")
            self._end(self.machines[name], now_ms, "deleted")
            return {}
        return self._page([row for row in self.machines.values() if now_ms >= row["shown_ms"]], query)

    def _launch(self, body: dict[str, Any], now_ms: int) -> list[Any]:
        if body["token"] in self.launched:
            before, ids = self.launched[body["token"]]
            if before != body:
                raise Refused(409, "key_reused")
            return [self.machines[each] for each in ids]
        if body["type"] not in {row["type"] for row in TYPES} or body["region"] != "north":
            raise Refused(404, "unknown_type")
        ids = [f"m-{len(self.machines) + number}" for number in range(body["count"])]
        lives_s = body["time_to_live_s"]
        for each in ids:
            self.machines[each] = {
                **{name: body[name] for name in ("offer_id", "token", "tags", "region")},
                **{"id": each, "state": "starting", "starts_ms": now_ms + START_S * 1000, "shown_ms": now_ms + LAG_MS},
                **{"started_ms": None, "ended_ms": None, "why_ended": None, "reclaimed_at_ms": None},
                "dies_ms": None if lives_s is None else now_ms + 1000 * lives_s,
            }
        self.launched[body["token"]] = body, ids
        return [self.machines[each] for each in ids]

    def _page(self, rows: list[dict[str, Any]], query: dict[str, list[str]]) -> Any:
        for name in ("id", "token", "region"):
            rows = [row for row in rows if name not in query or row[name] in query[name]]
        for tag in query.get("tag", []):
            rows = [row for row in rows if tag in {f"{key}:{value}" for key, value in row["tags"].items()}]
        first = int(query.get("page", ["0"])[0])
        more = first + PAGE_ROWS < len(rows)
        return {"machines": rows[first : first + PAGE_ROWS], "next": str(first + PAGE_ROWS) if more else None}

    def _pass(self, row: dict[str, Any], now_ms: int) -> None:
        if row["started_ms"] is None and row["ended_ms"] is None and now_ms >= row["starts_ms"]:
            row |= {"state": "running", "started_ms": row["starts_ms"]}
        if row["dies_ms"] is not None and now_ms >= row["dies_ms"]:
            self._end(row, row["dies_ms"], "expired")

    def _end(self, row: dict[str, Any], at_ms: int, why: str) -> None:
        if row["ended_ms"] is None:
            row |= {"ended_ms": at_ms, "why_ended": why}
            if row["started_ms"] is None:
                row["started_ms"] = at_ms


class Handler(BaseHTTPRequestHandler):
    cloud: Harbour

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body, headers = json.loads(self.rfile.read(size)) if size else None, dict[str, str]()
        try:
            if self.headers["Authorization"] != "Bearer right":
                raise Refused(401, "invalid_api_key")
            status, answer = 200, self.cloud.answer(self.command, self.path, body)
        except Refused as refused:
            status, answer, headers = refused.status, {"code": refused.code, "message": "no"}, refused.headers
        if self.cloud.lost:
            self.cloud.lost -= 1
            return
        data = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_PATCH = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def serving(cloud: Harbour) -> Iterator[str]:
    """The address at which the cloud answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), type("OfThisCloud", (Handler,), {"cloud": cloud})) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def harbour(monkeypatch: pytest.MonkeyPatch) -> Iterator[Harbour]:
    cloud = Harbour(VirtualClock(start_ms=1_790_000_000_000))
    with serving(cloud) as url:
        monkeypatch.setenv("HARBOUR_URL", url)
        monkeypatch.setenv("HARBOUR_API_KEY", "right")
        yield cloud


def connect(cloud: Harbour) -> Provider:
    """Load the provider as Tradewind does: by the name in the entry point."""
    return provider_factory("harbour")(cloud.clock)


class TestHarbour(ProviderContract):
    offer_id = OFFER

    @pytest.fixture(autouse=True)
    def _cloud(self, harbour: Harbour) -> None:
        self.cloud = harbour

    def connect(self) -> Provider:
        return connect(self.cloud)

    def now_ms(self) -> int:
        return self.cloud.clock.now_ms()

    def advance(self, market_s: float) -> None:
        self.cloud.clock.advance(market_s)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (503, "no_capacity", errors.CapacityError),
        (403, "quota_exceeded", errors.QuotaError),
        (403, "forbidden", errors.PermissionDeniedError),
        (401, "invalid_api_key", errors.AuthError),
        (404, "unknown_type", errors.NotFoundError),
        (503, "maintenance", errors.UnavailableError),
        (400, "something_new", errors.ProviderError),
    ],
)
def test_each_code_is_an_error_of_ours(harbour: Harbour, status: int, code: str, kind: type[Exception]) -> None:
    harbour.refusals = [Refused(status, code)]
    with pytest.raises(errors.ProviderError, match=code) as caught:
        connect(harbour).launch(LaunchSpec("t", OFFER, ""))
    assert type(caught.value) is kind
    assert not harbour.machines


def test_a_throttled_call_says_how_long_to_wait(harbour: Harbour) -> None:
    harbour.refusals = [Refused(429, "slow_down", {"Retry-After": "7"})]
    with pytest.raises(errors.ThrottledError) as caught:
        connect(harbour).offers()
    assert caught.value.retry_after_s == 7


def test_a_launch_whose_answer_is_lost_is_repeated_without_a_second_machine(harbour: Harbour) -> None:
    provider, spec = connect(harbour), LaunchSpec("t", OFFER, "")
    harbour.lost = 1
    with pytest.raises(errors.UnavailableError):
        provider.launch(spec)
    assert provider.launch(spec) == ("m-0",)
    assert len(harbour.machines) == 1


def test_no_key_and_a_wrong_one_say_what_to_do(harbour: Harbour, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARBOUR_API_KEY", "wrong")
    with pytest.raises(errors.AuthError) as caught:
        connect(harbour).offers()
    assert "HARBOUR_API_KEY" in caught.value.hint
    monkeypatch.delenv("HARBOUR_API_KEY")
    with pytest.raises(errors.NoCredentialsError):
        connect(harbour).offers()
