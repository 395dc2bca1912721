"""What market.md section 4 says of GCP, each as a test: the unmodified google-cloud-compute against a loopback GCP."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from google.oauth2.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from providers.collect.facts import PollResult
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
from providers.gcp.permissions import access
from providers.gcp.prices.history import CapacityHistory
from providers.gcp.prices.list_history import ListHistory, months
from providers.gcp.prices.list_prices import ListPrices
from providers.gcp.session import Connections
from tests.clouds.conftest import flags
from tests.clouds.gcp import GOOGLES, THROTTLED, GcpCloud, GcpMachine, GcpZone, a2_skus, error, sku
from tests.clouds.server import Fault, LoopbackServer, Request, Response

NOW = 1_790_000_000_000
HERE = "us-central1"
ZONE = "us-central1-a"
A2 = GcpMachine("a2-highgpu-1g", "nvidia-tesla-a100", 1)
A2_PRICES = {"on_demand": 12 * 0.03 + 85 * 0.004 + 2.9, "spot": 12 * 0.01 + 85 * 0.001 + 0.9}


@pytest.fixture(scope="module")
def connections(server: LoopbackServer, environment: pytest.MonkeyPatch) -> Connections:
    return Connections("p", server.url, call_s=0.5, patience_s=0.0)


@pytest.fixture
def poll(connections: Connections, server: LoopbackServer):
    """One region, read by a source that has read nothing before."""

    def read(region: str = HERE) -> PollResult:
        source = ListPrices(billing=server.url, attempts=1, call_s=0.5, connections=connections)
        return source.poll(region, NOW, None)

    connections._zones = None
    return read


def cloud(*machines: GcpMachine, skus: list | None = None, cards: dict[str, int] | None = None, **fields) -> GcpCloud:
    return GcpCloud({ZONE: GcpZone(list(machines), cards or {})}, a2_skus([HERE]) if skus is None else skus, **fields)


def prices(result: PollResult) -> dict[str, float]:
    """Dollars by what comes after the zone."""
    return {point.offer_id.split("/", 3)[3]: round(point.nano_usd_per_hour / 1e9, 6) for point in result.points}


def parts(word: str, core: float, ram: float, regions: list[str]) -> list[dict]:
    return [
        sku(f"{word} Instance Core running in Americas", core, regions),
        sku(f"{word} Instance Ram running in Americas", ram, regions, unit="GiBy.h"),
        sku(f"Spot Preemptible {word} Instance Core running in Americas", core / 2, regions, "Preemptible"),
        sku(
            f"Spot Preemptible {word} Instance Ram running in Americas", ram / 2, regions, "Preemptible", unit="GiBy.h"
        ),
    ]


def millis(text: str) -> int:
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def test_a_machine_costs_the_sum_of_its_cores_memory_and_gpus(server, poll):
    server.serve(cloud(A2))
    result = poll()
    assert prices(result) == pytest.approx({f"a2-highgpu-1g/{kind}": usd for kind, usd in A2_PRICES.items()})
    assert {(offer.gpu, offer.gpu_count, offer.memory_bytes >> 30) for offer in result.offers} == {("A100-40GB", 1, 85)}


def test_every_page_of_the_catalog_and_of_the_machine_types_is_read(server, poll):
    machines = [GcpMachine(f"a2-highgpu-{n}g", "nvidia-tesla-a100", n) for n in (1, 2, 4, 8)]
    noise = [sku(f"Network Egress {n}", 0.1, [HERE], family="Network") for n in range(20)]
    server.serve(cloud(*machines, skus=noise + a2_skus([HERE]) + noise))
    assert len(prices(poll())) == 8
    assert len(server.asked("skus")) == 7
    assert len(server.asked("machineTypes")) == 2


def test_a_price_in_a_region_without_the_hardware_is_a_phantom(server, poll):
    """The cheap SKUs of regions where no zone has the GPU never become offers."""
    skus = a2_skus([HERE, "us-west9"])
    server.serve(GcpCloud({ZONE: GcpZone([A2]), "us-west9-a": GcpZone()}, skus))
    result = poll("us-west9")
    assert result.points == ()
    assert flags(result) == [
        ("no_hardware", "gcp/us-west9/nvidia-tesla-a100/on_demand"),
        ("no_hardware", "gcp/us-west9/nvidia-tesla-a100/spot"),
    ]


def test_only_zones_that_list_the_machine_have_an_offer(server, poll):
    server.serve(GcpCloud({ZONE: GcpZone([A2]), "us-central1-b": GcpZone()}, a2_skus([HERE])))
    assert {offer.zone for offer in poll().offers} == {ZONE}


def test_one_sku_may_serve_a_list_of_regions(server, poll):
    zones = {ZONE: GcpZone([A2]), "us-east1-b": GcpZone([A2])}
    server.serve(GcpCloud(zones, a2_skus(["us-east1", HERE])))
    assert prices(poll("us-east1")) == prices(poll(HERE)) != {}


def test_local_ssd_is_part_of_the_price_and_priced_by_the_month(server, poll):
    h100 = GcpMachine("a3-highgpu-8g", "nvidia-h100-80gb", 8, 208, 1872 * 1024, ssds=16)
    skus = [
        *parts("A3", 0.02, 0.002, [HERE]),
        sku("Nvidia H100 80GB GPU running in Americas", 9.0, [HERE]),
        sku("SSD backed Local Storage in Iowa", 0.073, [HERE], family="Storage", unit="GiBy.mo"),
    ]
    server.serve(cloud(h100, skus=skus))
    ssd = 16 * 375 * 0.073 / 730
    assert prices(poll())["a3-highgpu-8g/on_demand"] == pytest.approx(208 * 0.02 + 1872 * 0.002 + 72 + ssd, abs=1e-5)


def test_spot_local_ssd_is_told_by_its_description_because_it_is_filed_as_on_demand(server, poll):
    ultra = GcpMachine("a2-ultragpu-1g", "nvidia-a100-80gb", 1, 12, 170 * 1024, ssds=1)
    skus = [
        *parts("A2", 0.03, 0.004, [HERE]),
        sku("Nvidia Tesla A100 80GB GPU running in Americas", 3.9, [HERE]),
        sku("Nvidia Tesla A100 80GB GPU attached to Spot Preemptible VMs running in X", 1.5, [HERE], "Preemptible"),
        sku("SSD backed Local Storage", 0.73, [HERE], family="Storage", unit="GiBy.mo"),
        sku("SSD backed Local Storage attached to Preemptible VMs", 0.146, [HERE], "OnDemand", "Storage", "GiBy.mo"),
    ]  # fmt: skip
    server.serve(cloud(ultra, skus=skus))
    found = prices(poll())
    assert found["a2-ultragpu-1g/on_demand"] == pytest.approx(12 * 0.03 + 170 * 0.004 + 3.9 + 0.375, abs=1e-5)
    assert found["a2-ultragpu-1g/spot"] == pytest.approx(12 * 0.015 + 170 * 0.002 + 1.5 + 0.075, abs=1e-5)


def test_a4_is_one_slice_sku_that_holds_cores_and_memory_and_is_spot_by_its_words(server, poll):
    b200 = GcpMachine("a4-highgpu-8g", "nvidia-b200", 8, 224, 3968 * 1024, ssds=32)
    skus = [
        sku("A4 Nvidia B200 (1 gpu slice) running in Americas", 16.11, [HERE]),
        sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", 4.9542, [HERE]),
    ]
    server.serve(cloud(b200, skus=skus))
    assert prices(poll()) == {"a4-highgpu-8g/spot": 39.6336}, "and it is not sold on-demand"


@pytest.mark.parametrize(
    ("machine", "family", "gpu_sku"),
    [
        (GcpMachine("a3-megagpu-8g", "nvidia-h100-mega-80gb", 8, 208, 1872 * 1024), "A3Plus", "Nvidia H100 80GB Mega"),
        (GcpMachine("a3-megagpu-8g", "nvidia-h100-mega-80gb", 8, 208, 1872 * 1024), "A3Plus", "Nvidia H100 80GB Plus"),
        (GcpMachine("a2-ultragpu-8g", "nvidia-a100-80gb", 8, 96, 1360 * 1024), "A2", "Nvidia Tesla A100 80GB"),
        (GcpMachine("a2-ultragpu-8g", "nvidia-a100-80gb", 8, 96, 1360 * 1024), "A2", "Nvidia A100 80GB"),
        (GcpMachine("g2-standard-4", "nvidia-l4", 1, 4, 16 * 1024), "G2", "Nvidia L4"),
    ],
    ids=["A3 Mega", "A3 Plus", "A100-80 with Tesla", "A100-80 without", "L4"],
)
def test_odd_names_of_skus_are_known(server, poll, machine, family, gpu_sku):
    skus = [*parts(family, 0.02, 0.002, [HERE]), sku(f"{gpu_sku} GPU running in Americas", 5.0, [HERE])]
    server.serve(cloud(machine, skus=skus))
    expected = machine.vcpu * 0.02 + machine.memory_mb / 1024 * 0.002 + 5.0 * machine.gpu_count
    assert prices(poll())[f"{machine.name}/on_demand"] == pytest.approx(expected, abs=1e-5)


def test_a3_ultra_is_sold_as_spot_only_though_its_parts_have_on_demand_skus(server, poll):
    h200 = GcpMachine("a3-ultragpu-8g", "nvidia-h200-141gb", 8, 224, 2952 * 1024)
    gpus = [
        sku("H200 141GB GPU running in Belgium", 9.3, [HERE]),
        sku("Spot Preemptible H200 141GB GPU running in Belgium", 3.7, [HERE], "Preemptible"),
    ]
    server.serve(cloud(h200, skus=parts("A3Ultra", 0.02, 0.002, [HERE]) + gpus))
    assert list(prices(poll())) == ["a3-ultragpu-8g/spot"]


@pytest.mark.parametrize("name", ["a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"])
def test_small_a3_machines_are_not_sold_on_demand(server, poll, name):
    skus = [
        *parts("A3", 0.02, 0.002, [HERE]),
        sku("Nvidia H100 80GB GPU running in Americas", 9.0, [HERE]),
        sku("Nvidia H100 80GB GPU attached to Spot Preemptible VMs running in X", 2.0, [HERE], "Preemptible"),
    ]
    server.serve(cloud(GcpMachine(name, "nvidia-h100-80gb", int(name[-2]), 26, 234 * 1024), skus=skus))
    assert list(prices(poll())) == [f"{name}/spot"]


@pytest.mark.parametrize(
    "description",
    [
        "Nvidia Tesla A100 GPU attached to DWS Calendar Mode VMs running in Americas",
        "Reserved Nvidia Tesla A100 GPU in Americas",
        "A2 Sole Tenancy Instance Core running in Americas",
        "A2 Custom Instance Core running in Americas",
        "A2 Instance Ram suspended in Americas",
        "Sole Tenancy Premium for A2 Instance Core running in Americas",
        "Nvidia Tesla A100 GPU attached to DWS Defined Duration VMs running in Americas",
    ],
)
def test_skus_that_are_no_plain_price_are_passed_over_though_filed_as_on_demand(server, poll, description):
    server.serve(cloud(A2, skus=[*a2_skus([HERE]), sku(description, 0.0001, [HERE])]))
    result = poll()
    assert (dict(result.skipped), flags(result)) == ({"other_product": 1}, [])
    assert prices(result) == pytest.approx({f"a2-highgpu-1g/{kind}": usd for kind, usd in A2_PRICES.items()})


def test_two_skus_for_the_same_part_are_flagged_and_the_higher_price_counts(server, poll):
    twin = sku("Nvidia Tesla A100 GPU running in Virginia", 0.1, [HERE])
    server.serve(cloud(A2, skus=[*a2_skus([HERE]), twin]))
    result = poll()
    assert prices(result)["a2-highgpu-1g/on_demand"] == pytest.approx(A2_PRICES["on_demand"])
    assert flags(result) == [("ambiguous", f"gcp/{HERE}/a100")]


def test_commitments_are_no_on_demand_prices(server, poll):
    cheap = sku("Commitment v1: Nvidia Tesla A100 GPU running in Americas for 3 Year", 1.0, [HERE], "Commit3Yr")
    server.serve(cloud(A2, skus=[*a2_skus([HERE]), cheap]))
    assert prices(poll())["a2-highgpu-1g/on_demand"] == pytest.approx(A2_PRICES["on_demand"])


def test_a_first_tier_that_is_free_is_not_the_price(server, poll):
    skus = [*a2_skus([HERE])[:2], sku("Nvidia Tesla A100 GPU running in Americas", 2.9, [HERE], tiers=[0.0])]
    server.serve(cloud(A2, skus=skus))
    assert prices(poll())["a2-highgpu-1g/on_demand"] == pytest.approx(A2_PRICES["on_demand"])


GPU_SKU = "Nvidia Tesla A100 GPU running in Americas"


def test_a_volume_discount_is_ignored_and_tiers_may_be_in_any_order(server, poll):
    """A list that begins above 0 is free below: google.cloud.billing.v1.PricingExpression."""
    gpu = sku(GPU_SKU, 0.5, [HERE], tiers=[0.0, 2.9])
    rates = gpu["pricingInfo"][0]["pricingExpression"]["tieredRates"]
    rates.reverse()
    assert [rate["startUsageAmount"] for rate in rates] == [2, 1, 0]
    server.serve(cloud(A2, skus=[*a2_skus([HERE])[:2], gpu]))
    assert prices(poll())["a2-highgpu-1g/on_demand"] == pytest.approx(A2_PRICES["on_demand"])
    del rates[2]
    assert prices(poll())["a2-highgpu-1g/on_demand"] == pytest.approx(A2_PRICES["on_demand"])


@pytest.mark.parametrize(
    ("unit", "factor"),
    [("h", 1.0), ("100h", 100.0), ("s", 1 / 3600), ("60s", 1 / 60), ("min", 1 / 60), ("d", 24.0), ("mo", 730.0)],
)
def test_what_is_priced_by_another_unit_of_time_is_an_hours_price(server, poll, unit, factor):
    server.serve(cloud(A2, skus=[*a2_skus([HERE])[:2], sku(GPU_SKU, 2.9 * factor, [HERE], unit=unit)]))
    assert prices(poll())["a2-highgpu-1g/on_demand"] == pytest.approx(A2_PRICES["on_demand"], abs=1e-5)


@pytest.mark.parametrize(("unit", "factor"), [("GiBy.s", 1 / 3600), ("MiBy.h", 1 / 1024), ("GBy.h", 1e9 / 2**30)])
def test_memory_is_priced_by_size_and_time(server, poll, unit, factor):
    memory = sku("A2 Instance Ram running in Americas", 0.004 * factor, [HERE], unit=unit)
    skus = [memory if "A2 Instance Ram" in each["description"] else each for each in a2_skus([HERE])]
    server.serve(cloud(A2, skus=[each for each in skus if "Spot" not in each["description"]]))
    assert prices(poll())["a2-highgpu-1g/on_demand"] == pytest.approx(A2_PRICES["on_demand"], abs=1e-4)


@pytest.mark.parametrize("unit", ["GiBy.h", "count", "0h", "h.h", "1e9h", "-1h", "", 7])
def test_a_unit_that_is_none_of_a_gpus_is_flagged_and_prices_nothing(server, poll, unit):
    server.serve(cloud(A2, skus=[*a2_skus([HERE])[:2], sku(GPU_SKU, 2.9, [HERE], unit=unit)]))
    result = poll()
    assert "a2-highgpu-1g/on_demand" not in prices(result)
    assert {flag for flag, _ in flags(result)} == {"malformed", "renamed_sku"}


def test_a_version_that_is_dated_ahead_is_not_the_price_yet(server, poll, list_history):
    changes = [("2026-09-01T00:00:00Z", 2.9), ("2026-10-01T00:00:00Z", 9.9)]
    server.serve(cloud(A2, skus=repriced(*changes)))
    assert prices(poll())["a2-highgpu-1g/on_demand"] == pytest.approx(A2_PRICES["on_demand"])
    reported = {point.effective_at_ms for point in list_history("2026-09-21T00:00:00Z").points}
    assert max(reported) == millis("2026-09-01T00:00:00Z")


def test_pages_that_lead_in_a_circle_are_an_error_and_not_a_loop(server, connections, poll):
    """A wide circle, too: a, b, a, b ..."""
    google = cloud(A2, page_rows=1, cards={"nvidia-tesla-t4": 4})

    def circle(request: Request) -> Response:
        answer = google(request)
        body = json.loads(answer.body)
        body["nextPageToken"] = {"": "1", "1": "0"}.get(request.query.get("pageToken", ""), "1")
        return Response(body=json.dumps(body).encode())

    for part in ("skus", "acceleratorTypes", "regions"):
        server.serve(lambda request, part=part: circle(request) if part in request.path else google(request))
        connections._zones = None
        failed = poll().error
        assert isinstance(failed, FormatError), part
        assert len(server.asked(part)) <= 4


def test_nanos_are_billionths_of_the_unit(server, poll):
    server.serve(cloud(A2, skus=[*a2_skus([HERE])[:2], sku("Nvidia Tesla A100 GPU running in X", 2.933907, [HERE])]))
    assert prices(poll())["a2-highgpu-1g/on_demand"] == pytest.approx(12 * 0.03 + 85 * 0.004 + 2.933907)


def test_a_gpu_that_is_attached_to_n1_is_offered_with_a_fitting_machine(server, poll):
    n1 = [GcpMachine(f"n1-standard-{8 * n}", vcpu=8 * n, memory_mb=30 * 1024 * n) for n in (1, 2, 4, 8)]
    skus = [
        sku("N1 Predefined Instance Core running in Americas", 0.03, [HERE]),
        sku("N1 Predefined Instance Ram running in Americas", 0.004, [HERE]),
        sku("Nvidia Tesla T4 GPU running in Americas", 0.35, [HERE]),
    ]
    server.serve(cloud(*n1, skus=skus, cards={"nvidia-tesla-t4": 4, "nvidia-tesla-a100": 16}))
    one = 8 * 0.03 + 30 * 0.004 + 0.35
    assert prices(poll()) == pytest.approx(
        {f"n1-standard-{8 * n}+{n}xnvidia-tesla-t4/on_demand": n * one for n in (1, 2, 4)}
    )


def test_a_renamed_sku_is_named_and_leaves_the_rest_alone(server, poll):
    skus = [row for row in a2_skus([HERE]) if "GPU running" not in row["description"]]
    server.serve(cloud(A2, skus=[*skus, sku("Nvidia Ampere A100 GPU running in Americas", 2.9, [HERE])]))
    result = poll()
    assert list(prices(result)) == ["a2-highgpu-1g/spot"]
    assert flags(result) == [
        ("unknown_gpu", "gcp/catalog/ampere a100"),
        ("renamed_sku", f"gcp/{HERE}/{ZONE}/a2-highgpu-1g/on_demand"),
    ]
    assert "no SKU for GPU nvidia-tesla-a100" in result.flagged[1].detail


def test_an_unknown_accelerator_is_flagged(server, poll):
    server.serve(
        cloud(A2, GcpMachine("a9-highgpu-8g", "nvidia-z900", 8), GcpMachine("a4x-highgpu-4g", "nvidia-gb200", 4))
    )
    result = poll()
    assert [subject for _, subject in flags(result)] == [], "a9 is not asked for"
    server.serve(cloud(A2, GcpMachine("a4-megagpu-8g", "nvidia-b900", 8)))
    assert flags(poll()) == [("unknown_gpu", f"gcp/{HERE}/{ZONE}/a4-megagpu-8g")]


def test_a_damaged_sku_and_one_in_another_currency_are_flagged(server, poll):
    broken = sku("A2 Instance Core running in Mars", 0.1, [HERE])
    del broken["pricingInfo"]
    euro = sku("Nvidia Tesla A100 GPU running in Americas", 0.1, [HERE], currency="EUR")
    server.serve(cloud(A2, skus=[broken, euro, *a2_skus([HERE])]))
    result = poll()
    assert [flag for flag, _ in flags(result)] == ["malformed", "currency"]
    assert prices(result)["a2-highgpu-1g/on_demand"] == pytest.approx(A2_PRICES["on_demand"])


def test_a_retired_machine_type_is_not_an_offer(server, poll):
    server.serve(cloud(A2, GcpMachine("a2-highgpu-2g", "nvidia-tesla-a100", 2, deprecated="DELETED")))
    result = poll()
    assert {offer.instance_type for offer in result.offers} == {"a2-highgpu-1g"}
    assert result.skipped == {"over": 1}


def test_one_failing_zone_leaves_the_others_prices_and_marks_the_region(server, poll):
    server.serve(GcpCloud({ZONE: GcpZone([A2]), "us-central1-b": GcpZone([A2])}, a2_skus([HERE])))
    server.faults = [Fault(lambda request: "us-central1-a/machineTypes" in request.path, None, error(500, "x", "e"))]
    result = poll()
    assert {offer.zone for offer in result.offers} == {"us-central1-b"}
    assert isinstance(result.error, UnavailableError)


@pytest.mark.parametrize(
    ("fault", "kind", "hint"),
    [
        (Fault(lambda r: "machineTypes" in r.path, None, THROTTLED), ThrottledError, ""),
        (Fault(lambda r: "machineTypes" in r.path, None, hang=True), TimedOutError, ""),
        (Fault(lambda r: "machineTypes" in r.path, None, cut=True), CutOffError, ""),
        (Fault(lambda r: "skus" in r.path, None, cut=True), CutOffError, ""),
        (Fault(lambda r: "skus" in r.path, None, hang=True), TimedOutError, ""),
        (
            Fault(lambda r: "skus" in r.path, None, error(403, "not enabled", "x")),
            PermissionDeniedError,
            "GOOGLE_API_KEY",
        ),
    ],
    ids=["throttled", "hangs", "half", "half a catalog", "hanging catalog", "catalog denied"],
)
def test_each_failure_has_its_own_name(server, poll, fault, kind, hint):
    server.serve(cloud(A2))
    server.faults = [fault]
    failed = poll().error
    assert isinstance(failed, kind), repr(failed)
    assert hint in failed.hint


def test_a_denied_call_names_the_permission_and_the_command_that_grants_it(server, poll):
    server.serve(cloud(A2, denied={"machineTypes"}))
    failed = poll().error
    assert isinstance(failed, PermissionDeniedError)
    assert failed.action == "compute.machineTypes.list"
    assert "roles/compute.viewer" in failed.hint


def test_a_throttled_catalog_says_how_long_to_wait(server, poll):
    server.serve(cloud(A2))
    slow = error(429, "slow down", "rateLimitExceeded", {"Retry-After": "120"})
    server.faults = [Fault(lambda request: "skus" in request.path, None, slow)]
    failed = poll().error
    assert isinstance(failed, ThrottledError)
    assert failed.retry_after_s == 120


@pytest.mark.parametrize("path", ["skus", "machineTypes"])
@pytest.mark.parametrize(
    ("asked", "kept"), [("Mon, 21 Sep 2026 14:23:20 GMT", 600.0), ("inf", 21600.0), ("nan", None), ("-1", None)]
)
def test_google_may_write_the_wait_as_a_date_or_as_nonsense(server, poll, path, asked, kept):
    server.serve(cloud(A2))
    headers = {"Retry-After": asked, "Date": "Mon, 21 Sep 2026 14:13:20 GMT"}
    slow = error(429, "slow down", "rateLimitExceeded", headers)
    server.faults = [Fault(lambda request: path in request.path, None, slow)]
    failed = poll().error
    assert (type(failed), failed.retry_after_s) == (ThrottledError, kept)


def test_the_catalog_is_read_once_for_all_regions_and_its_failure_is_shared(server, connections, poll):
    zones = {f"r-{n}-a": GcpZone([A2]) for n in range(3)}
    server.serve(GcpCloud(zones, a2_skus([f"r-{n}" for n in range(3)])))
    source = ListPrices(billing=server.url, attempts=1, connections=connections)
    connections._zones = None
    assert [len(source.poll(region, NOW, None).points) for region in source.regions()] == [2, 2, 2]
    assert len(server.asked("skus")) == 1
    server.faults = [Fault(lambda request: "skus" in request.path, None, error(500, "x", "e"))]
    source = ListPrices(billing=server.url, attempts=1, connections=connections)
    assert all(isinstance(source.poll(f"r-{n}", NOW, None).error, UnavailableError) for n in range(3))
    assert len(server.asked("skus")) == 2


def test_an_api_key_goes_in_a_header_and_never_into_an_error(server, poll, environment):
    server.serve(cloud(A2, api_key="AIza-secret"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOOGLE_API_KEY", "AIza-secret")
        assert len(poll().points) == 2
        server.faults = [Fault(lambda request: "skus" in request.path, None, error(500, "x", "e"))]
        assert "AIza" not in str(poll().error)
    assert isinstance(poll().error, UnavailableError)


REFUSALS = [
    error(400, "API key not valid. Please pass a valid API key.", "badRequest"),
    error(400, "API key expired. Please renew the API key.", "badRequest"),
    error(403, "Requests to this API method are blocked.", "forbidden"),
    error(401, "Request had invalid authentication credentials.", "authError"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=["no key", "expired", "blocked", "unknown"])
def test_a_key_that_is_refused_gives_way_to_the_credentials_once_and_for_all(server, environment, refusal):
    server.serve(cloud(A2, api_key="AIza-right", bearer="ya29"))
    server.faults = [Fault(lambda request: "X-Goog-Api-Key" in request.headers, None, refusal)]
    mine = Connections("p", server.url, call_s=1.0, patience_s=0.0, credentials=Credentials("ya29"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOOGLE_API_KEY", "AIza-old\n")
        result = ListPrices(billing=server.url, attempts=1, connections=mine).poll(HERE, NOW, None)
        reported = access(mine, server.url)[-1]
    assert (result.error, len(result.points)) == (None, 2)
    keys = [request.headers.get("X-Goog-Api-Key") for request in server.asked("skus")]
    assert keys[0] == "AIza-old"
    assert keys.count("AIza-old") == 2, "once by the source, once by the question what may be read"
    assert (reported.works, reported.detail) == (
        True,
        "cloudbilling.skus.list, with the credentials: GOOGLE_API_KEY was rejected",
    )


def test_a_key_and_credentials_that_are_both_refused_are_both_named(server, poll, environment):
    server.serve(cloud(A2, api_key="AIza-right"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOOGLE_API_KEY", "AIza-old")
        failed = poll().error
        assert isinstance(failed, PermissionDeniedError)
        assert "GOOGLE_API_KEY was rejected, too" in str(failed)
        assert "AIza" not in str(failed)
        server.faults = [Fault(lambda request: "skus" in request.path, None, error(400, "Invalid page size", "x"))]
        assert "Invalid page size" in str(poll().error), "a bad request is no bad key"


def service_account(token_uri: str):
    """Credentials that google-auth itself refreshes at `token_uri`."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from google.oauth2 import service_account as library

    pem = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    info = {"client_email": "x@p.iam", "private_key": pem.decode(), "token_uri": token_uri, "project_id": "p"}
    return library.Credentials.from_service_account_info(info, scopes=["x"])


@pytest.mark.parametrize(
    ("description", "kind", "hint"),
    [
        ("Invalid JWT: Token must be in a reasonable timeframe. Check your iat", ClockSkewError, "clock"),
        ("Account has been deleted", AuthError, "gcloud auth"),
        ("Bad Request", ExpiredCredentialsError, "gcloud auth"),
    ],
)
def test_a_token_that_is_refused_is_a_wrong_clock_or_an_old_account(server, poll, description, kind, hint):
    body = json.dumps({"error": "invalid_grant", "error_description": description}).encode()
    server.serve(cloud(A2))
    server.faults = [Fault(lambda request: request.path == "/token", None, Response(400, body))]
    mine = Connections("p", server.url, call_s=1.0, patience_s=0.0, credentials=service_account(f"{server.url}/token"))
    failed = ListPrices(billing=server.url, attempts=1, connections=mine).poll(HERE, NOW, None).error
    assert isinstance(failed, kind)
    assert hint in failed.hint


def test_without_credentials_the_error_says_how_to_get_them(environment, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
        with pytest.raises(NoCredentialsError) as caught:
            ListPrices().regions()
    assert "gcloud auth application-default login" in caught.value.hint


# -- history


def test_history_of_prices_and_preemptions_comes_from_the_advice_service(server, connections, poll):
    interval = {"startTime": "2026-08-01T00:00:00Z", "endTime": "2026-08-02T00:00:00Z"}
    later = {"startTime": "2026-08-02T00:00:00Z", "endTime": "2026-08-03T00:00:00Z"}
    body = {
        "priceHistory": [
            {"interval": later, "listPrice": {"currencyCode": "USD", "units": "1", "nanos": 500_000_000}},
            {"interval": interval, "listPrice": {"currencyCode": "USD", "units": "1", "nanos": 250_000_000}},
        ],
        "preemptionHistory": [{"interval": interval, "preemptionRate": 0.125}],
    }
    server.serve(cloud(A2, history={f"{ZONE}/a2-highgpu-1g": body}))
    result = CapacityHistory(connections=connections).poll(HERE, NOW, None)
    assert [point.nano_usd_per_hour / 1e9 for point in result.points] == [1.25, 1.5]
    assert [(signal.kind, signal.low) for signal in result.signals] == [("preemption_fraction", 0.125)]


def test_a_record_that_does_not_say_when_costs_only_itself(server, connections):
    interval = {"startTime": "2026-08-01T00:00:00Z", "endTime": "2026-08-02T00:00:00Z"}
    price = {"currencyCode": "USD", "units": "1"}
    body = {
        "priceHistory": [
            {"interval": {"startTime": "soon"}, "listPrice": price},
            {"interval": interval, "listPrice": price},
        ],
        "preemptionHistory": [{"interval": {"startTime": ""}, "preemptionRate": 0.5}],
    }
    server.serve(cloud(A2, history={f"{ZONE}/a2-highgpu-1g": body}))
    result = CapacityHistory(connections=connections).poll(HERE, NOW, None)
    assert (result.error, len(result.points), result.signals) == (None, 1, ())
    assert [flag for flag, _ in flags(result)] == ["malformed", "malformed"]


@pytest.mark.parametrize("key", ["\u043a\u043b\u044e\u0447", "AIza\nX-Evil: 1", "AIza\x00"])
def test_a_key_that_no_header_can_hold_is_a_refused_one(server, poll, environment, key):
    server.serve(cloud(A2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.environ", {**os.environ, "GOOGLE_API_KEY": key})
        assert (poll().error, len(server.asked("skus"))) == (None, 1)
    assert not {"X-Goog-Api-Key", "X-Evil"} & set(server.requests[-1].headers)


@pytest.fixture
def list_history(connections: Connections, server: LoopbackServer):
    """What the catalog tells of the past, read by a source that has read nothing before."""
    connections._zones = None

    def read(now: str, since_ms: int | None = None, **options) -> PollResult:
        source = ListHistory(billing=server.url, attempts=1, call_s=0.5, connections=connections, **options)
        return source.poll(HERE, millis(now), since_ms)

    return read


def repriced(*changes: tuple[str, float], since: str = "2026-01-01T00:00:00Z") -> list[dict]:
    """An a2 machine's SKUs, of which the GPU's on-demand price has changed so often; the rest is as old as `since`."""
    skus = a2_skus([HERE])
    for each in skus:
        each["pricingInfo"][0]["effectiveTime"] = since
    [gpu] = [each for each in skus if each["description"].startswith("Nvidia Tesla A100 GPU running")]
    gpu["pricingInfo"] = [sku("x", usd, [HERE], since=at)["pricingInfo"][0] for at, usd in changes]
    return skus


def test_earlier_list_prices_are_asked_for_month_by_month_of_googles_time_zone(server, list_history):
    changes = [("2026-08-01T00:00:00Z", 2.0), ("2026-10-20T00:00:00Z", 3.0), ("2026-11-18T00:00:00Z", 4.0)]
    server.serve(cloud(A2, skus=repriced(*changes)))
    result = list_history("2026-11-20T00:00:00Z")
    assert result.error is None
    months = [(each.query["startTime"], each.query["endTime"]) for each in server.asked("skus")]
    assert months == [
        ("2026-08-01T07:00:00Z", "2026-09-01T07:00:00Z"),
        ("2026-09-01T07:00:00Z", "2026-10-01T07:00:00Z"),
        ("2026-10-01T07:00:00Z", "2026-11-01T07:00:00Z"),
        ("2026-11-01T07:00:00Z", "2026-11-19T12:00:00Z"),  # now, less the 12 hours by which the catalog may be late
    ]
    rest = A2_PRICES["on_demand"] - 2.9
    reported = {(point.effective_at_ms, round(point.nano_usd_per_hour / 1e9, 6)) for point in result.points}
    assert reported == {(millis(at), round(rest + usd, 6)) for at, usd in changes} | {
        (millis("2026-01-01T00:00:00Z"), A2_PRICES["spot"])
    }


def test_a_month_of_list_history_that_is_refused_is_an_error_of_this_source_alone(server, list_history, poll):
    server.serve(cloud(A2, denied={"skus"}))
    assert isinstance(list_history("2026-11-20T00:00:00Z").error, PermissionDeniedError)
    server.serve(cloud(A2))
    assert len(poll().points) == 2


@given(st.integers(0, 130_000), st.integers(1, 400))
def test_law_months_join_and_each_lies_in_one_month_of_google(hours, days):
    since = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(hours=hours)
    until = since + timedelta(days=days)
    periods = list(months(since, until))
    assert periods[0][0] <= since
    assert periods[-1][1] == until
    assert all(before[1] == after[0] for before, after in pairwise(periods))
    for start, end in periods:
        first, last = (instant.astimezone(GOOGLES) for instant in (start, end - timedelta(microseconds=1)))
        assert (first.year, first.month, first.day, first.hour) == (last.year, last.month, 1, 0)


def test_a_project_without_access_to_history_loses_only_that(server, connections, poll):
    server.serve(cloud(A2, denied={"capacityHistory"}))
    assert isinstance(CapacityHistory(connections=connections).poll(HERE, NOW, None).error, PermissionDeniedError)
    assert len(poll().points) == 2


def test_the_account_is_told_what_it_may_read(server, connections, poll):
    server.serve(cloud(A2, denied={"acceleratorTypes"}))
    found = access(connections, server.url)
    assert [finding.what for finding in found if not finding.works] == ["accelerators"]
    assert "roles/compute.viewer" in found[3].remedy


def test_googles_own_future_polls_an_operation_at_another_machine_so_it_must_not_be_used(server):
    """clouds.md 0.5: the second client is built without the endpoint. The guard of the tests sees it."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import compute_v1

    operation = b'{"name": "op", "status": "RUNNING", "zone": "zones/z"}'
    server.serve(lambda request: Response(body=operation))
    client = compute_v1.InstancesClient(credentials=AnonymousCredentials(), client_options={"api_endpoint": server.url})
    started = client.insert(project="p", zone="z", instance_resource={"name": "vm"})
    with pytest.raises(Exception, match=r"own addresses|googleapis"):
        started.done(retry=None)
