"""What market.md section 4 says of GCP: SKUs make prices, and prices and machine types make offers."""

from __future__ import annotations

import pytest

from tests.clouds.conftest import flags
from tests.clouds.gcp import GcpCloud, GcpMachine, GcpZone, a2_skus, sku
from tests.clouds.gcp_prices.conftest import A2, A2_PRICES, HERE, ZONE, cloud, parts, prices


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


def test_spot_local_ssd_is_recognised_by_its_description_because_it_is_filed_as_on_demand(server, poll):
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
