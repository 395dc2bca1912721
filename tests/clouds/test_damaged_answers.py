"""Whatever a provider sends, a poll ends with a result: damage is flagged or named, and never a fault of ours."""

from __future__ import annotations

import copy
import gzip
import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from providers.aws.prices.on_demand import OnDemandPrices, _add, _by_family, _products
from providers.azure.prices.retail import RetailPrices
from providers.collect.facts import Finding, Flag
from providers.collect.http import Http, Patience, retry_after_s
from providers.collect.schedule import Schedule
from providers.collect.wire import Ended, decode, encode
from providers.errors import (
    MAX_RETRY_AFTER_S,
    AuthError,
    CutOffError,
    FormatError,
    ThrottledError,
    UnavailableError,
)
from providers.feed.source import Feed
from providers.gcp.prices.list_prices import ListPrices
from providers.gcp.prices.skus import parts_of, price_list
from providers.gcp.session import Connections
from tests.clouds.aws import price_file
from tests.clouds.azure import loopback_tls, row
from tests.clouds.gcp import GcpCloud, GcpZone, a2_skus
from tests.clouds.server import Fault, LoopbackServer, Response, serving

NOW = 1_790_000_000_000
FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
GARBAGE: list[Any] = [None, "", "x", -1, 1e308, [], {}, True, [None], {"a": 1}, "\u0000", "NaN", "1e400", 10**30]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path into a JSON value."""
    inner: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


@st.composite
def damaged(draw: Callable[..., Any], whole: Any) -> Any:
    """`whole` with one value lost or replaced by garbage."""
    value = copy.deepcopy(whole)
    place = draw(st.sampled_from(places(whole)[1:]))
    holder = value
    for key in place[:-1]:
        holder = holder[key]
    if draw(st.booleans()):
        del holder[place[-1]]
    else:
        holder[place[-1]] = draw(st.sampled_from(GARBAGE))
    return value


RETAIL = {"Items": [row("eastus", "Standard_ND96isr_H100_v5", 98.0), row("eastus", "Standard_NC6s_v3", 3.0)]}


@FEW
@given(damaged({**RETAIL, "NextPageLink": None}))
def test_law_damaged_retail_prices(server: LoopbackServer, body):
    server.serve(lambda request: Response(body=json.dumps(body).encode()))
    source = RetailPrices(url=server.url, attempts=1, read_s=1.0)
    result = source.poll("eastus", NOW, None)
    assert all(0 < point.nano_usd_per_hour <= 10**14 for point in result.points)


@FEW
@given(damaged(a2_skus(["us-central1"])))
def test_law_damaged_skus(skus):
    finding = Finding("us-central1")
    prices = price_list(parts_of(skus, finding), 4_000_000_000_000, finding)
    assert all(rate > 0 for table in (prices.cores, prices.ram, prices.gpus, prices.ssd) for rate in table.values())
    assert {flagged.flag for flagged in finding.result().flagged} <= {Flag.MALFORMED, Flag.CURRENCY, Flag.AMBIGUOUS}


PRODUCT = {
    "product": {"attributes": {"instanceType": "p4d.24xlarge", "vcpu": "96", "memory": "1,152 GiB", "gpu": "8"}},
    "terms": {
        "OnDemand": {
            "term": {
                "effectiveDate": "2024-01-01T00:00:00Z",
                "priceDimensions": {"price": {"unit": "Hrs", "pricePerUnit": {"USD": "32.77"}}},
            }
        }
    },
}


@FEW
@given(damaged(PRODUCT) | st.just(PRODUCT))
@example({**PRODUCT, "product": {"attributes": {**PRODUCT["product"]["attributes"], "gpu": "1e400"}}})
def test_law_a_damaged_product(product):
    finding = Finding("us-east-1")
    for found in _products(json.dumps(product), finding):
        _add(finding, _by_family(found), ["use1-az1"], found, NOW, "test")
    result = finding.result()
    assert all(0 < point.nano_usd_per_hour <= 10**14 for point in result.points)
    assert product is not PRODUCT or len(result.points) == 1


def test_a_price_by_another_unit_than_the_hour_is_counted_with_its_reason():
    finding = Finding("us-east-1")
    for found in _products(json.dumps(PRODUCT).replace('"Hrs"', '"Hours"'), finding):
        _add(finding, _by_family(found), ["use1-az1"], found, NOW, "test")
    (flagged,) = finding.result().flagged
    assert (flagged.flag, flagged.detail) == (Flag.MALFORMED, "32.77 USD per 'Hours'")


@FEW
@given(st.data())
def test_law_a_price_list_with_a_damaged_byte(server: LoopbackServer, data):
    text = bytearray(price_file({"p4d.24xlarge": "21.9", "p5.48xlarge": "55.0"}).encode())
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    server.serve(lambda request: Response(body=bytes(text)))
    result = OnDemandPrices(account=False, files=server.url, attempts=1).poll("us-east-1", NOW, None)
    assert result.error is None or isinstance(result.error, FormatError)
    assert all(0 < point.nano_usd_per_hour <= 10**14 for point in result.points)


@FEW
@given(st.binary(max_size=200))
def test_law_a_feed_of_any_bytes(tmp_path, data):
    header = b"provider,region,instance_type,gpu_count,capacity_type,price_per_hour\n"
    for name in ("f.csv", "f.csv.gz", "f.parquet"):
        (tmp_path / name).write_bytes(header + data if name == "f.csv" else data)
        result = Feed(at=str(tmp_path / name)).poll("all", NOW, None)
        assert result.error is None or isinstance(result.error, FormatError | CutOffError), result.error


@pytest.mark.parametrize(
    "body",
    [b'{"items": "x"}', b'{"items": [{"guestCpus": "many"}]}', b"<html>"],
    ids=["text", "type", "html"],
)
def test_machine_types_that_are_none_are_named(server: LoopbackServer, body):
    google = GcpCloud({"us-central1-a": GcpZone()}, a2_skus(["us-central1"]))
    server.serve(google)
    server.faults = [Fault(lambda request: "machineTypes" in request.path, None, Response(body=body))]
    connections = Connections("p", server.url, call_s=1.0, patience_s=0.0)
    source = ListPrices(billing=server.url, attempts=1, connections=connections)
    assert isinstance(source.poll("us-central1", NOW, None).error, FormatError | CutOffError)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        *[("7", 7.0), ("0", 0.0), (" 7.5 ", 7.5), ("Mon, 21 Sep 2026 14:14:20 GMT", 60.0)],
        *[("Mon, 21 Sep 2026 14:14:20", 60.0), ("Mon, 21 Sep 2026 13:00:00 GMT", 0.0)],
        *[("", None), ("soon", None), ("nan", None), ("-5", None), ("-inf", None), ("\u00b2", None)],
        *[("99999999", 21600.0), ("inf", 21600.0), ("1e400", 21600.0), ("9" * 5000, 21600.0)],
        ("Fri, 31 Dec 9999 23:59:59 GMT", 21600.0),
        ("Fri, 31 Dec 9999 23:59:59 -2359", 21600.0),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date_and_never_more_than_six_hours(header, seconds):
    """A date counts from the answer's own: both are of the server's clock."""
    assert retry_after_s({"retry-AFTER": header, "Date": "Mon, 21 Sep 2026 14:13:20 GMT"}) == seconds


@given(st.text(max_size=60), st.text(max_size=60) | st.just("Mon, 21 Sep 2026 14:13:20 GMT"))
def test_law_whatever_retry_after_says_is_a_time_or_nothing(header, date):
    found = retry_after_s({"Retry-After": header, "Date": date})
    assert found is None or 0 <= found <= MAX_RETRY_AFTER_S


@pytest.mark.parametrize(
    ("asked", "kept"), [(math.inf, 21600.0), (1e300, 21600.0), (math.nan, None), (-1.0, None), (2.5, 2.5), (None, None)]
)
def test_an_error_never_remembers_a_wait_that_a_schedule_could_not_live_with(asked, kept):
    """By any writer: also what a child process wrote, in which JSON has Infinity."""
    ended = decode(encode(Ended("aws-spot", "us-east-1", 1, 2, 0, 0, ThrottledError("slow", retry_after_s=asked))))
    assert ended.error.retry_after_s == kept
    schedule = Schedule(random.Random(1))
    schedule.done("aws-spot", "us-east-1", 0, 720.0, ended.error)
    assert (schedule.next_ms(0) or 0) <= 21_600_000


def test_a_refusal_is_read_no_further_than_its_words(server: LoopbackServer):
    said = gzip.compress(b"no " * (8 << 20))
    server.serve(lambda request: Response(403, said, headers={"Content-Encoding": "gzip"}))
    with pytest.raises(AuthError, match="no no no") as caught:
        Http(Patience(attempts=1)).get_json(server.url)
    assert len(str(caught.value)) < 400


def test_an_endlessly_nested_answer_is_not_json(server: LoopbackServer):
    server.serve(lambda request: Response(body=b"[" * 200_000))
    with pytest.raises(FormatError, match="not JSON"):
        Http(Patience(attempts=1)).get_json(server.url)


def test_a_line_without_an_end_is_an_error_and_not_all_of_memory(server: LoopbackServer):
    server.serve(lambda request: Response(body=b"SKU\n" + b"x" * (4 << 20)))
    lines = Http(Patience(attempts=1)).lines(server.url)
    assert next(lines) == b"SKU"
    with pytest.raises(FormatError, match="longer than 1 MiB"):
        list(lines)


def test_a_key_does_not_follow_a_redirection_to_another_place(server: LoopbackServer):
    with serving(lambda request: Response(body=b"{}")) as elsewhere:
        server.serve(lambda request: Response(302, headers={"Location": f"{elsewhere.url}/x"}))
        Http(Patience(attempts=1)).get_json(server.url, headers={"X-Goog-Api-Key": "AIza", "Authorization": "Bearer t"})
        assert not {"X-Goog-Api-Key", "Authorization"} & set(elsewhere.requests[0].headers)


def test_an_answer_to_a_tls_request_is_not_accepted_without_tls(server: LoopbackServer, tmp_path):
    context, authority = loopback_tls(tmp_path)
    server.serve(lambda request: Response(body=b'{"price": 0.01}'))
    with serving(lambda request: Response(302, headers={"Location": f"{server.url}/x"}), context) as secure:
        asking = Http(Patience(attempts=1), ca_file=authority)
        with pytest.raises(FormatError, match="not encrypted"):
            asking.get_json(secure.url)


def test_a_server_that_refuses_connections_is_named():
    with pytest.raises(UnavailableError, match="cannot be reached"):
        Http(Patience(attempts=1)).get_bytes("http://127.0.0.1:1/x?key=secret")


def test_waits_between_attempts_grow_and_are_bounded(server: LoopbackServer):
    waited: list[float] = []

    class Clock:
        factor = 1.0

        def now_ms(self) -> int:
            return NOW

        def monotonic_s(self) -> float:
            return 0.0

        def sleep(self, wall_s: float) -> None:
            waited.append(wall_s)

    server.serve(lambda request: Response(body=b"{}"))
    server.faults = [Fault(lambda request: True, None, Response(503, b""))]
    with pytest.raises(UnavailableError):
        Http(Patience(attempts=4), Clock()).get_json(server.url)
    assert waited == [1.0, 2.0, 4.0]
