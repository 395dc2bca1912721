"""What market.md section 4 says of Azure, each as a test; the part with an account runs over TLS, as in earnest."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from providers.azure.permissions import access
from providers.azure.prices.history import SpotHistory
from providers.azure.prices.retail import RetailPrices
from providers.azure.prices.risk import Evictions
from providers.azure.session import Connections
from providers.collect.facts import Flag, PollResult
from providers.collect.http import RefusedError
from providers.collect.judge import Judge
from providers.errors import (
    AuthError,
    ClockSkewError,
    CutOffError,
    ExpiredCredentialsError,
    FormatError,
    NoCredentialsError,
    PermissionDeniedError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)
from tests.clouds.azure import THROTTLED, AzureCloud, Token, error, loopback_tls, resource_sku, row
from tests.clouds.conftest import flags
from tests.clouds.server import Fault, LoopbackServer, Response, serving

NOW = 1_790_000_000_000
H100 = "Standard_ND96isr_H100_v5"
A100 = "Standard_NC24ads_A100_v4"


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory, environment) -> Iterator[tuple[LoopbackServer, Connections]]:
    """(a server over TLS, a connection to it)."""
    context, authority = loopback_tls(tmp_path_factory.mktemp("tls"))
    with serving(AzureCloud(), context) as server:
        yield server, Connections("s", server.url, authority, Token(), call_s=1.0, attempts=1)


def cloud(server: LoopbackServer, *rows: dict, **fields) -> AzureCloud:
    made = AzureCloud(list(rows), base=server.url, **fields)
    server.serve(made)
    return made


def poll(server: LoopbackServer, region: str = "eastus", **options) -> PollResult:
    source = RetailPrices(url=f"{server.url}/api/retail/prices", **{"attempts": 1, "read_s": 0.5, **options})
    return source.poll(region, NOW, None)


def prices(result: PollResult) -> dict[str, float]:
    return {point.offer_id.split("/", 3)[3]: point.nano_usd_per_hour / 1e9 for point in result.points}


def test_spot_and_on_demand_are_distinguished_by_the_end_of_the_name(server):
    cloud(server, row("eastus", H100, 98.32), row("eastus", H100, 20.5, spot=True))
    result = poll(server)
    assert prices(result) == {f"{H100}/on_demand": 98.32, f"{H100}/spot": 20.5}
    assert {(offer.zone, offer.gpu, offer.gpu_count) for offer in result.offers} == {("", "H100", 8)}


@pytest.mark.parametrize(
    "other",
    [
        row("eastus", H100, 1.0, suffix=" Low Priority"),
        row("eastus", H100, 1.0, product="Virtual Machines ND Series Windows"),
        row("eastus", H100, 1.0, product="ND Series CloudServices"),
        row("eastus", H100, 1.0, product="ND Series Dedicated Host"),
        row("eastus", H100, 1.0, suffix=" Expired"),
        row("eastus", H100, 0.0),
        row("eastus", H100, 1.0, type="DevTestConsumption"),
        row("eastus", H100, 1.0, type="Reservation", unitOfMeasure="1 Hour"),
        row("eastus", H100, 1.0, effective="2031-01-01T00:00:00Z"),
    ],
    ids=[
        *("low priority", "Windows", "CloudServices", "Dedicated", "Expired", "price 0", "DevTest", "Reservation"),
        "in the future",
    ],
)
def test_rows_that_are_no_plain_linux_machine_are_passed_over(server, other):
    cloud(server, row("eastus", H100, 98.32), other)
    result = poll(server)
    assert (prices(result), result.flagged) == ({f"{H100}/on_demand": 98.32}, ())
    assert sum(result.skipped.values()) == 1, "what is none of ours is counted, too"


def test_rows_that_are_passed_over_are_counted_by_reason_and_those_not_understood_are_flagged(server):
    cloud(
        server,
        row("eastus", H100, 98.32),
        row("eastus", H100, 97.0, effective="2025-01-01T00:00:00Z"),
        row("eastus", H100, 1.0, product="Virtual Machines ND Series Windows"),
        row("eastus", H100, 0.0),
        row("eastus", A100, 3.0, effectiveEndDate="2026-09-01T00:00:00Z"),
        row("eastus", A100, 3.0, effective="2027-09-01T00:00:00Z"),
        row("eastus", A100, 3.0, unitOfMeasure="1/Month"),
    )
    result = poll(server)
    assert result.skipped == {"billed_elsewhere": 1, "not_yet": 1, "other_product": 1, "over": 1, "superseded": 1}
    assert [flag for flag, _ in flags(result)] == ["malformed"]
    assert result.rows == len(result.points) + len(result.flagged) + sum(result.skipped.values())


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        ({"unitOfMeasure": "1/Month"}, "1.0 per '1/Month', not per hour"),
        ({"unitOfMeasure": None}, "1.0 per 'None', not per hour"),
        ({"retailPrice": None}, "'None' is not a price"),
    ],
)
def test_a_price_that_is_none_by_the_hour_is_counted_with_its_reason(server, changed, reported):
    cloud(server, row("eastus", H100, 98.32), {**row("eastus", H100, 1.0, spot=True), **changed})
    result = poll(server)
    assert prices(result) == {f"{H100}/on_demand": 98.32}
    (flagged,) = result.flagged
    assert flagged.flag is Flag.MALFORMED
    assert reported in flagged.detail


def test_next_page_links_are_followed_to_the_end(server):
    cloud(server, *[row("eastus", H100, 90 + n, effective=f"2025-01-0{n + 1}T00:00:00Z") for n in range(7)])
    result = poll(server)
    assert (result.pages, result.rows) == (4, 7)
    assert prices(result) == {f"{H100}/on_demand": 96.0}, "the newest row counts"


def test_pages_that_lead_in_a_circle_are_an_error_and_not_a_loop(server, arm):
    rows = [row("eastus", H100, 90 + n) for n in range(5)]
    cloud(server, *rows, in_a_circle=True)
    assert isinstance(poll(server).error, FormatError)
    assert len(server.requests) <= 6
    machines, connections = arm
    cloud(server, *rows)
    rates = [{"sku": H100.lower(), "location": "eastus", "rate": "0-5"}] * 5
    machines.serve(AzureCloud([], [resource_sku(H100, "eastus")], rates, in_a_circle=True, base=machines.url))
    assert isinstance(poll(server, connections=connections).error, FormatError)
    assert isinstance(Evictions(connections=connections).poll("global", NOW, None).error, FormatError)
    assert len(machines.requests) <= 10


def test_a_link_to_another_host_is_not_followed(server):
    body = json.dumps({"Items": [row("eastus", H100, 98.32)], "NextPageLink": "http://elsewhere.example/x"}).encode()
    server.serve(lambda request: Response(body=body))
    result = poll(server)
    assert isinstance(result.error, FormatError)
    assert prices(result) == {f"{H100}/on_demand": 98.32}


def test_a_row_that_has_ended_is_not_the_price_however_late_it_began(server):
    over = row("eastus", H100, 12.0, effective="2026-08-01T00:00:00Z", effectiveEndDate="2026-09-01T00:00:00Z")
    lasting = row("eastus", H100, 98.32, effective="2025-06-01T00:00:00Z", effectiveEndDate="2030-01-01T00:00:00Z")
    cloud(server, over, lasting, row("eastus", A100, 3.0, effectiveEndDate="2026-09-01T00:00:00Z"))
    assert prices(poll(server)) == {f"{H100}/on_demand": 98.32}


def test_the_meter_that_is_billed_counts_and_not_the_newest(server):
    """learn.microsoft.com: "non-primary meters are not used for charges"."""
    other = row("eastus", H100, 12.0, effective="2026-08-01T00:00:00Z", isPrimaryMeterRegion=False)
    alone = row("eastus", A100, 1.0, isPrimaryMeterRegion=False)
    cloud(server, row("eastus", H100, 98.32, isPrimaryMeterRegion=True), other, alone)
    result = poll(server)
    assert prices(result) == {f"{H100}/on_demand": 98.32}
    assert flags(result) == [("ambiguous", f"azure/eastus//{A100}/on_demand")]


def test_a_row_without_an_end_or_without_a_zone_is_read_by_utc(server, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        cloud(
            server, row("eastus", H100, 98.32, effective="2026-09-21T14:00:00", effectiveEndDate="9999-12-31T00:00:00")
        )
        [point] = poll(server).points
    finally:
        monkeypatch.undo()
        time.tzset()
    assert point.effective_at_ms == 1_789_999_200_000


@pytest.mark.parametrize(
    "field",
    [{"effectiveStartDate": "0001-01-01T00:00:00Z"}, {"isPrimaryMeterRegion": "false"}, {"effectiveEndDate": "soon"}],
)
def test_a_row_whose_force_cannot_be_determined_is_malformed(server, field):
    cloud(server, row("eastus", H100, 12.0, **field))
    assert flags(poll(server)) == [("malformed", f"azure/eastus/{H100}")]


def test_a_page_past_the_end_is_answered_by_400_and_ends_the_list(server):
    cloud(server, row("eastus", H100, 98.32), row("eastus", A100, 3.67), next_link_past_the_end=True)
    result = poll(server)
    assert (len(result.points), result.error) == (2, None)


def test_a_400_on_the_first_page_is_an_error(server):
    cloud(server)
    server.faults = [Fault(lambda request: True, None, error("BadRequest", "Invalid OData parameters", 400))]
    failed = poll(server).error
    assert isinstance(failed, RefusedError)
    assert "Invalid OData" in str(failed)


def test_every_region_is_asked_on_its_own_with_an_odata_filter(server):
    cloud(server, row("eastus", H100, 98.32), row("westeurope", H100, 110.0))
    assert prices(poll(server, "westeurope")) == {f"{H100}/on_demand": 110.0}
    (request,) = server.requests
    assert "armRegionName eq 'westeurope'" in request.query["$filter"]
    assert "priceType eq 'Consumption'" in request.query["$filter"]
    assert request.query["api-version"] == "2023-01-01-preview"


def test_an_ignored_filter_is_noticed_on_the_first_page(server):
    """Without a filter that it understands, Azure silently sends a million rows."""
    cloud(server, row("eastus", H100, 98.32), row("westus", H100, 1.0), *[row("x", H100, 1.0)] * 9, ignores_filter=True)
    failed = poll(server).error
    assert isinstance(failed, FormatError)
    assert len(server.requests) == 1


def test_the_case_of_a_regions_name_does_not_matter(server):
    cloud(server, row("EastUS", H100, 98.32))
    assert prices(poll(server)) == {f"{H100}/on_demand": 98.32}
    assert RetailPrices(regions=["EastUS"]).regions() == ("eastus",)


def test_throttling_is_waited_out_when_it_is_short(server):
    cloud(server, row("eastus", H100, 98.32))
    server.faults = [Fault(lambda request: True, 2, THROTTLED)]
    result = poll(server, attempts=3)
    assert (len(result.points), result.error, len(server.requests)) == (1, None, 3)


def test_throttling_for_long_is_left_to_the_schedule(server):
    cloud(server, row("eastus", H100, 98.32))
    server.faults = [Fault(lambda request: True, None, error("TooManyRequests", "x", 429, {"Retry-After": "600"}))]
    failed = poll(server, attempts=3).error
    assert isinstance(failed, ThrottledError)
    assert (failed.retry_after_s, len(server.requests)) == (600.0, 1)


LONG = [("600", 600.0), ("Mon, 21 Sep 2026 14:23:20 GMT", 600.0), ("inf", 21600.0), ("soon", None)]
SERVERS_TIME = "Mon, 21 Sep 2026 14:13:20 GMT"


@pytest.mark.parametrize(("asked", "kept"), LONG)
def test_a_wait_that_arm_asks_for_is_the_schedules_however_it_is_written(server, arm, asked, kept):
    """azure-core by itself sleeps it out, and an infinite one ends the process."""
    machines, _ = arm
    connections = Connections("s", machines.url, arm[1]._ca_file, Token(), call_s=1.0, attempts=2)
    cloud(server, row("eastus", H100, 98.32))
    machines.serve(AzureCloud())
    slow = error("TooManyRequests", "slow down", 429, {"Retry-After": asked, "Date": SERVERS_TIME})
    machines.faults = [Fault(lambda request: True, None, slow)]
    failed = poll(server, connections=connections).error
    assert (type(failed), failed.retry_after_s) == (ThrottledError, kept)
    assert len(machines.requests) == (2 if kept is None else 1)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(lambda request: True, None, error("x", "x", 503)), UnavailableError),
        (Fault(lambda request: True, None, hang=True), TimedOutError),
        (Fault(lambda request: True, None, cut=True), CutOffError),
        (Fault(lambda request: True, None, error("", "", 200)), FormatError),
    ],
    ids=["server fault", "hangs", "half a page", "not a price list"],
)
def test_each_failure_has_its_own_name(server, fault, kind):
    cloud(server, row("eastus", H100, 98.32))
    server.faults = [fault]
    assert isinstance(poll(server).error, kind)


def test_half_a_page_after_whole_ones_keeps_those(server):
    cloud(server, row("eastus", H100, 98.32), row("eastus", A100, 3.67), row("eastus", H100, 20.0, spot=True))
    server.faults = [Fault(lambda request: "$skip" in request.query, None, cut=True)]
    result = poll(server)
    assert isinstance(result.error, CutOffError)
    assert prices(result) == {f"{H100}/on_demand": 98.32, f"{A100}/on_demand": 3.67}


def test_half_a_page_is_asked_for_once_more(server):
    cloud(server, row("eastus", H100, 98.32))
    server.faults = [Fault(lambda request: True, 1, cut=True)]
    assert (len(poll(server).points), len(server.requests)) == (1, 2)


def test_a_spot_price_equal_to_on_demand_is_left_out_of_decisions(server):
    cloud(server, row("eastus", H100, 98.32), row("eastus", H100, 98.32, spot=True), row("eastus", A100, 3.67))
    result = poll(server)
    judged = Judge().judge(result.offers, result.points)
    assert [item.flag.value for item in judged.flagged] == ["spot_not_below_on_demand"]
    assert [item.subject for item in judged.flagged] == [f"azure/eastus//{H100}/spot"]
    assert len(judged.payable) == 3, "who has such a machine pays it"


@pytest.mark.parametrize(
    ("size", "gpu", "count"),
    [
        ("Standard_ND96isr_H100_v5", "H100", 8),  # SkyPilot's table says 12
        ("Standard_NC96ads_A100_v4", "A100-80GB", 4),
        ("Standard_ND96asr_v4", "A100-40GB", 8),
        ("Standard_NC64as_T4_v3", "T4", 4),
        ("Standard_NC24rs_v3", "V100", 4),
    ],
)
def test_gpu_counts_come_from_a_manual_table(server, size, gpu, count):
    cloud(server, row("eastus", size, 10.0))
    (offer,) = poll(server).offers
    assert (offer.gpu, offer.gpu_count) == (gpu, count)


def test_a_size_that_is_in_no_table_is_flagged(server):
    cloud(server, row("eastus", "Standard_ND999isr_X900_v9", 10.0), row("eastus", "Standard_NV6ads_A10_v5", 0.45))
    assert flags(poll(server)) == [
        ("unknown_gpu", "azure/eastus/Standard_ND999isr_X900_v9/on_demand"),
        ("unknown_gpu", "azure/eastus/Standard_NV6ads_A10_v5/on_demand"),
    ]


def test_another_currency_is_flagged_or_converted_by_a_given_rate(server):
    cloud(server, row("eastus", H100, 100.0, currencyCode="EUR"))
    assert flags(poll(server, currency="EUR")) == [("currency", f"azure/eastus/{H100}")]
    assert prices(poll(server, currency="EUR", usd_per_unit="1.08")) == {f"{H100}/on_demand": 108.0}


def test_a_malformed_row_costs_only_itself(server):
    broken = row("eastus", A100, 3.0)
    del broken["effectiveStartDate"]
    cloud(server, broken, row("eastus", H100, 98.32), row("eastus", A100, -3.0))
    result = poll(server)
    assert list(prices(result)) == [f"{H100}/on_demand"]
    assert [flag for flag, _ in flags(result)] == ["malformed"] * 2


def test_no_account_is_needed_for_prices_and_azure_is_not_even_imported(server):
    cloud(server, row("eastus", H100, 98.32))
    assert poll(server).error is None
    assert "Authorization" not in server.requests[0].headers
    assert {"eastus", "westeurope", "japaneast"} <= set(RetailPrices().regions())


# -- with an account


def test_resource_skus_say_what_the_subscription_may_not_start(server, arm):
    machines, connections = arm
    cloud(server, row("eastus", H100, 98.32), row("eastus", H100, 20.0, spot=True), row("eastus", A100, 3.67))
    machines.serve(AzureCloud(skus=[resource_sku(H100, "eastus", spot=False)]))
    result = poll(server, connections=connections)
    assert prices(result) == {f"{H100}/on_demand": 98.32}
    assert {(item.subject.split("/", 3)[3], item.detail) for item in result.flagged} == {
        (f"{H100}/spot", "not sold as spot"),
        (f"{A100}/on_demand", "not offered in eastus"),
    }
    assert machines.requests[0].headers["Authorization"].startswith("Bearer ")


def test_a_restricted_sku_is_flagged_with_azures_reason(server, arm):
    machines, connections = arm
    cloud(server, row("eastus", H100, 98.32))
    machines.serve(AzureCloud(skus=[resource_sku(H100, "eastus", restriction="NotAvailableForSubscription")]))
    (flagged,) = poll(server, connections=connections).flagged
    assert (flagged.flag.value, flagged.detail) == ("no_hardware", "restricted: NotAvailableForSubscription")


@pytest.mark.parametrize(
    ("answer", "kind", "hint"),
    [
        (error("ExpiredAuthenticationToken", "The access token expiry", 401), ExpiredCredentialsError, "az login"),
        (error("InvalidAuthenticationToken", "The access token is not yet valid", 401), ClockSkewError, "clock"),
        (error("InvalidAuthenticationToken", "The access token is invalid", 401), AuthError, "az login"),
        (error("TooManyRequests", "slow down", 429, {"Retry-After": "17"}), ThrottledError, ""),
        (error("InternalServerError", "oops", 500), UnavailableError, ""),
    ],
    ids=["expired", "clock skew", "wrong token", "throttled", "server fault"],
)
def test_each_refusal_of_arm_has_its_own_name(server, arm, answer, kind, hint):
    machines, connections = arm
    cloud(server, row("eastus", H100, 98.32))
    machines.serve(AzureCloud())
    machines.faults = [Fault(lambda request: True, None, answer)]
    failed = poll(server, connections=connections).error
    assert type(failed) is kind, repr(failed)
    assert hint in failed.hint


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(Fault(lambda r: True, None, cut=True), CutOffError), (Fault(lambda r: True, None, hang=True), TimedOutError)],
    ids=["half an answer", "hangs"],
)
def test_arm_that_hangs_or_breaks_off_is_named(server, arm, fault, kind):
    machines, connections = arm
    cloud(server, row("eastus", H100, 98.32))
    machines.serve(AzureCloud(skus=[resource_sku(H100, "eastus")]))
    machines.faults = [fault]
    assert isinstance(poll(server, connections=connections).error, kind)


def test_a_denied_call_names_the_action_and_the_role_that_grants_it(server, arm):
    machines, connections = arm
    cloud(server, row("eastus", H100, 98.32))
    machines.serve(AzureCloud(denied={"Microsoft.Compute/skus/read"}))
    failed = poll(server, connections=connections).error
    assert isinstance(failed, PermissionDeniedError)
    assert failed.action == "Microsoft.Compute/skus/read"
    assert "--role Reader" in failed.hint


def test_eviction_rates_come_page_by_page_from_resource_graph(arm):
    machines, connections = arm
    rows = [{"sku": H100.lower(), "location": "eastus", "rate": rate} for rate in ("0-5", "5-10", "20+", "many")]
    machines.serve(AzureCloud(evictions=[*rows, {"sku": "standard_d2s_v3", "location": "eastus", "rate": "0-5"}]))
    result = Evictions(connections=connections).poll("global", NOW, None)
    assert [(signal.low, signal.high) for signal in result.signals] == [(0, 5), (5, 10), (20, 100)]
    assert flags(result) == [("malformed", f"azure/eastus/{H100}")]
    assert len(machines.requests) == 3


def test_spot_prices_of_the_past_come_from_resource_graph(arm):
    machines, connections = arm
    day = "2026-0{}-01T00:00:00Z"
    prices = [
        {"effectiveDate": day.format(9), "priceUSD": 40.5},
        {"effectiveDate": day.format(8), "priceUSD": 40.5},
        {"effectiveDate": day.format(7), "priceUSD": 39.25},
        {"effectiveDate": "soon", "priceUSD": 1},
        {"effectiveDate": "2036-01-01T00:00:00Z", "priceUSD": 1},
    ]
    small = {"sku": "standard_d2s_v3", "location": "eastus", "prices": prices}
    machines.serve(AzureCloud(spot_history=[{"sku": H100.lower(), "location": "EastUS", "prices": prices}, small]))
    result = SpotHistory(connections=connections).poll("global", NOW, None)
    assert [point.nano_usd_per_hour / 1e9 for point in result.points] == [39.25, 40.5]
    assert flags(result) == [("malformed", f"azure/eastus//{H100}/spot")]
    machines.serve(AzureCloud(denied={"Microsoft.ResourceGraph/resources/read"}))
    failed = SpotHistory(connections=connections).poll("global", NOW, None).error
    assert isinstance(failed, PermissionDeniedError)


def test_eviction_rates_that_are_denied_say_who_may_grant_them(arm):
    machines, connections = arm
    machines.serve(AzureCloud(denied={"Microsoft.ResourceGraph/resources/read"}))
    failed = Evictions(connections=connections).poll("global", NOW, None).error
    assert isinstance(failed, PermissionDeniedError)
    assert failed.action == "Microsoft.ResourceGraph/resources/read"


def test_without_credentials_the_error_says_how_to_get_them():
    class None_:
        def get_token(self, *scopes: str, **options: object) -> object:
            from azure.core.exceptions import ClientAuthenticationError

            raise ClientAuthenticationError("DefaultAzureCredential failed to retrieve a token")

    connections = Connections("s", "https://127.0.0.1:9", credential=None_())
    failed = Evictions(connections=connections).poll("global", NOW, None).error
    assert isinstance(failed, NoCredentialsError)
    assert "az login" in failed.hint


def test_the_report_says_what_the_account_may_read(arm):
    machines, connections = arm
    machines.serve(AzureCloud(skus=[resource_sku(H100, "eastus")], denied={"Microsoft.ResourceGraph/resources/read"}))
    found = access(connections, prices="https://127.0.0.1:9/api/retail/prices")
    assert [(each.works, each.needed) for each in found] == [
        (False, True),
        (True, False),
        (True, False),
        (False, False),
    ]
    assert (found[1].detail, found[2].detail) == ("tradewind, s", "1 SKUs in eastus")
    assert "Reader" in found[3].remedy


def test_what_needs_no_account_is_asked_without_one(server):
    server.serve(AzureCloud([row("eastus", H100, 40.0)]))
    nobody = Connections("", "https://127.0.0.1:9", credential=None)
    found = access(nobody, prices=f"{server.url}/api/retail/prices")
    assert [(each.what, each.works, each.needed) for each in found] == [
        ("retail prices, without an account", True, True),
        ("identity", False, False),
    ]
