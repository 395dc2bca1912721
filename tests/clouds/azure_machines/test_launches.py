"""Renting on Azure, through the unmodified azure-mgmt-compute: launches, capacity, quotas, offers, prices.

The machines are not started here; tests/contract/test_azure.py and tests/e2e/test_three_clouds.py run real ones.
"""

from __future__ import annotations

import base64
import json

import pytest

from providers.azure.launches import WAIT_S
from providers.azure.provider import AzureProvider
from providers.azure.session import Connections
from providers.base import Covered, LimitsByQuota
from providers.errors import (
    CapacityError,
    CutOffError,
    NotFoundError,
    ProviderError,
    QuotaError,
    SetupError,
    UnavailableError,
)
from providers.instance import EndReason, InstanceState
from providers.money import usd
from tests.clouds.arm import SUBSCRIPTION
from tests.clouds.arm_account import CPU, GPU, ON_DEMAND, SPOT, Account, spec
from tests.clouds.azure import Token, error, resource_sku
from tests.clouds.azure_machines.conftest import HERE, HOUR_S, the_machine
from tests.clouds.server import Fault, Response

# --- launches ---


def test_what_a_launch_asks_for(account: Account) -> None:
    account.connect().launch(spec(time_to_live_s=HOUR_S))
    (request,) = account.asked("PUT")
    assert request.headers["If-None-Match"] == "*"
    body = json.loads(request.body)
    about = body["properties"]
    assert (about["priority"], about["evictionPolicy"], about["billingProfile"]) == ("Spot", "Delete", {"maxPrice": -1})
    assert about["storageProfile"]["imageReference"]["version"] == "24.4.10"  # newer than 24.4.9
    assert about["storageProfile"]["osDisk"]["diskSizeGB"] == 100
    assert about["osProfile"]["linuxConfiguration"]["disablePasswordAuthentication"] is True
    assert "scheduledEventsProfile" not in about  # Azure refuses it for spot machines
    assert "identity" not in body
    assert body["tags"]["tradewind-install"] == "tw-1"
    assert body["tags"]["tradewind-lives"] == "3600"
    assert b"sleep 1\n" in base64.b64decode(about["osProfile"]["customData"])
    assert not the_machine(account).leaves  # disk, interface and address go with it
    assert len(account.arm.beside) == 3


def test_a_disk_has_room_for_data_and_checkpoints(account: Account) -> None:
    account.connect(disk_gb=60).launch(spec(disk_gb=250))
    about = json.loads(account.asked("PUT")[0].body)["properties"]
    assert about["storageProfile"]["osDisk"]["diskSizeGB"] == 310


def test_an_on_demand_machine_is_no_spot_machine(account: Account) -> None:
    (name,) = account.connect().launch(spec(ON_DEMAND))
    about = json.loads(account.asked("PUT")[0].body)["properties"]
    assert not {"priority", "evictionPolicy", "billingProfile"} & about.keys()
    (machine,) = account.connect().describe([name])
    assert (machine.offer_id, machine.state) == (ON_DEMAND, InstanceState.RUNNING)


def test_a_zone_is_asked_for_where_the_offer_names_one(account: Account) -> None:
    offer = SPOT.replace("//", "/2/")
    (name,) = account.connect().launch(spec(offer))
    assert json.loads(account.asked("PUT")[0].body)["zones"] == ["2"]
    assert account.connect().describe([name])[0].offer_id == offer


def test_a_launch_is_sent_once_although_azure_core_repeats_what_says_retry_after(account: Account) -> None:
    account.fails("PUT", times=None, answer=error("InternalServerError", "no", 500, {"Retry-After": "0"}))
    patient = Connections(SUBSCRIPTION, account.server.url, account.connections._ca_file, Token(), attempts=3)
    with pytest.raises(UnavailableError):
        AzureProvider(account.connect()._settings, account.clock, patient).launch(spec())
    assert len(account.asked("PUT")) == 1


def test_a_subscription_that_is_not_registered_is_not_registered_silently(account: Account) -> None:
    text = "The subscription is not registered to use namespace 'Microsoft.Compute'."
    account.fails("PUT", answer=error("MissingSubscriptionRegistration", text, 409))
    with pytest.raises(SetupError, match="not registered") as raised:
        account.connect().launch(spec())
    assert "az provider register" in raised.value.hint
    assert not account.asked("POST", "/register")


def test_a_launch_whose_answer_is_lost_is_repeated_without_a_second_machine(account: Account) -> None:
    account.fails("PUT", lost=True)
    with pytest.raises(CutOffError) as raised:
        account.connect().launch(spec())
    assert raised.value.retryable
    (name,) = account.connect().launch(spec())
    assert name == f"azure-eastus-{the_machine(account).name}"
    assert [each.id for each in account.connect().find("token-1", "eastus")] == [name]


def test_a_launch_that_died_before_its_machine_was_asked_for_is_repeated(account: Account) -> None:
    account.fails("PUT", answer=error("ServiceUnavailable", "later", 503))
    with pytest.raises(UnavailableError):
        account.connect().launch(spec())
    assert account.connect().find("token-1", "eastus") == []
    assert len(account.connect().launch(spec())) == 1


# --- capacity, quotas, prices ---


def test_no_capacity_is_409_as_a_taken_name_is_and_no_conflict(account: Account) -> None:
    account.arm.capacity[HERE] = 0
    with pytest.raises(CapacityError, match="SkuNotAvailable") as raised:
        account.connect().launch(spec())
    assert raised.value.scope == "region"
    assert not account.arm.every()
    assert not account.arm.keys  # the token was not used up
    account.arm.capacity.clear()
    assert account.connect().launch(spec())


def test_no_capacity_may_show_late_and_what_azure_keeps_of_the_machine_is_deleted(account: Account) -> None:
    account.arm.capacity[HERE], account.arm.capacity_is_late = 0, True
    account.arm.pending_s, account.arm.retry_after_s = 9, 5
    with pytest.raises(CapacityError, match="AllocationFailed"):
        account.connect().launch(spec())
    assert len(account.asked("GET", "/operations/")) == 2  # after 5 s and after 10 s, as Retry-After says
    assert not account.arm.alive()
    assert not account.arm.beside
    assert account.arm.bill_nano_usd() == 0


def test_no_capacity_that_shows_after_the_launch_has_returned_ends_the_machine(account: Account) -> None:
    account.arm.capacity[HERE], account.arm.capacity_is_late = 0, True
    account.arm.pending_s = WAIT_S + 10
    provider = account.connect()
    (name,) = provider.launch(spec())
    assert provider.describe([name])[0].state is InstanceState.PENDING
    account.clock.advance(10)
    provider.describe([name])
    (ended,) = provider.describe([name])
    assert ended.end_reason is EndReason.FAILED
    assert not account.arm.alive()


def test_a_failed_machine_that_a_lost_answer_left_is_deleted_by_the_next_launch(account: Account) -> None:
    account.arm.capacity[HERE], account.arm.capacity_is_late = 0, True
    account.fails("PUT", lost=True)
    with pytest.raises(CutOffError):
        account.connect().launch(spec())
    with pytest.raises(CapacityError, match="AllocationFailed"):
        account.connect().launch(spec())
    assert not account.arm.alive()


def test_several_machines_are_launched_all_or_none(account: Account) -> None:
    account.arm.capacity[HERE] = 2
    with pytest.raises(CapacityError):
        account.connect().launch(spec(count=3))
    assert not account.arm.alive()
    assert not account.arm.beside
    assert not account.arm.keys
    account.arm.capacity_is_late = True
    with pytest.raises(CapacityError):
        account.connect().launch(spec(count=3))
    assert not account.arm.alive()
    assert len(account.connect().launch(spec(count=2))) == 2


def test_a_refused_launch_whose_rest_cannot_be_deleted_may_have_left_something(account: Account) -> None:
    account.arm.capacity[HERE] = 1
    account.fails("DELETE", times=None, answer=error("InternalServerError", "no", 500))
    with pytest.raises(UnavailableError, match="could not be deleted") as raised:
        account.connect().launch(spec(count=2))
    assert raised.value.retryable
    (left,) = account.connect().find("token-1", "eastus")
    account.server.faults.clear()
    account.connect().terminate(left.id)
    assert not account.arm.alive()


def test_a_launch_waits_for_what_is_still_being_deleted(account: Account) -> None:
    account.arm.capacity[HERE] = 1
    account.arm.ending_s = 60
    with pytest.raises(CapacityError):
        account.connect().launch(spec(count=2))
    account.arm.capacity.clear()
    with pytest.raises(UnavailableError, match="delet"):
        account.connect().launch(spec(count=2))
    account.clock.advance(60)
    assert len(account.connect().launch(spec(count=2))) == 2


def test_quotas_are_the_regions_and_count_vcpus(account: Account) -> None:
    account.arm.quota = {"lowPriorityCores": 23, "cores": 48}
    with pytest.raises(QuotaError, match="exceeding approved lowPriorityCores quota") as raised:
        account.connect().launch(spec())
    assert raised.value.scope == "region"
    account.connect().launch(spec(ON_DEMAND))
    found = {(each.name, each.scope): each for each in account.connect().quotas()}
    assert (found["cores", "eastus"].limit, found["cores", "eastus"].used) == (48, 24)
    spot = found["lowPriorityCores", "eastus"]
    assert (spot.limit, spot.used) == (23, 0)
    assert spot.covers == Covered("vcpus", ("eastus",), (GPU, CPU), spot=True)
    assert found["NCFamily", "eastus"].covers == Covered("vcpus", ("eastus",), (GPU,), spot=False)


def test_plans_respect_quotas(account: Account) -> None:
    provider = account.connect()
    assert isinstance(provider, LimitsByQuota)
    assert provider.quotas_limit_plans


# --- bad input: a named error, and nothing is launched ---


def test_user_data_beyond_the_limit_is_not_sent(account: Account) -> None:
    with pytest.raises(SetupError, match=r"has \d+ bytes; the limit is 65535"):
        account.connect().launch(spec(user_data="#" * 65_535))
    assert not account.asked("PUT", "/")


def test_an_image_that_does_not_exist(account: Account) -> None:
    for image in ("microsoft-dsvm:ubuntu-hpc:2404:1.0.0", "none:ubuntu-hpc:2404:latest"):
        with pytest.raises(ProviderError) as raised:
            account.connect(image=image).launch(spec())
        assert isinstance(raised.value, SetupError | NotFoundError)
    assert not account.arm.every()
    assert not account.arm.keys


def test_a_resource_group_that_does_not_exist(account: Account) -> None:
    account.arm.networks.groups.clear()
    provider = account.connect()
    with pytest.raises(SetupError, match="missing: resource group") as raised:
        provider.launch(spec())
    assert "tradewind up" in raised.value.hint
    assert provider.list_owned("tw-1") == []
    assert provider.find("token-1", "eastus") == []
    name = "azure-eastus-tw-000000000000000000000000-0"
    assert provider.describe([name]) == []
    provider.renew([name], HOUR_S)
    provider.terminate(name)


def test_a_network_that_is_not_there_or_was_deleted(account: Account) -> None:
    provider = account.connect()
    provider.terminate(*provider.launch(spec(token="token-0")))
    account.arm.gone.clear()
    account.arm.keys.clear()
    account.arm.networks.resources.clear()
    with pytest.raises(SetupError, match="InvalidResourceReference"):
        provider.launch(spec())
    with pytest.raises(SetupError, match="no network in eastus; missing: firewall, network") as raised:
        provider.launch(spec())
    assert (raised.value.scope, raised.value.hint) == ("region", "create it: tradewind up --cloud azure")
    assert not account.arm.every()
    assert not account.arm.keys


def test_only_what_is_configured_is_rented(account: Account) -> None:
    for other in (SPOT.replace("NC24", "NC48"), SPOT.replace("eastus", "westeurope"), "azure/what"):
        with pytest.raises(NotFoundError):
            account.connect().launch(spec(other))
    assert not account.asked("PUT", "/")


# --- prices ---


def test_the_configured_sizes_are_offered_with_and_without_gpus(account: Account) -> None:
    provider = account.connect()
    offers = {offer.id: offer for offer in provider.offers()}
    assert (offers[SPOT].gpu, offers[SPOT].gpu_count) == ("A100-80GB", 1)
    cpu = offers[f"azure/westus2//{CPU}/on_demand"]
    assert (cpu.gpu, cpu.vcpu, cpu.memory_bytes) == (None, 4, 16 << 30)
    assert len(offers) == 2 * 2 * 2  # regions, sizes, ways to buy
    prices = {point.offer_id: point.nano_usd_per_hour for point in provider.prices()}
    assert prices.keys() == offers.keys()
    assert prices[ON_DEMAND] == usd("3.67")


def test_what_the_subscription_may_not_start_is_not_offered(account: Account) -> None:
    account.prices.skus[0] = resource_sku(GPU, "eastus", gpus=1, restriction="NotAvailableForSubscription")
    account.prices.skus[1] = resource_sku(CPU, "eastus", gpus=0, vcpus=4, memory_gb=16, spot=False)
    offers = [offer.id for offer in account.connect(regions=("eastus",)).offers()]
    assert offers == [f"azure/eastus//{CPU}/on_demand"]


def test_a_region_without_prices_keeps_its_offers_and_hides_no_other(account: Account) -> None:
    provider = account.connect()
    before = list(provider.offers())
    account.clock.advance(HOUR_S)
    account.shop.faults.append(
        Fault(lambda request: "westus2" in request.query.get("$filter", ""), None, Response(400, b"no"))
    )
    assert len(provider.prices()) == len(before)
    account.fails("GET", "/retail/prices", times=None, answer=Response(400, b"no"))
    account.clock.advance(HOUR_S)
    with pytest.raises(ProviderError):
        provider.prices()
    assert list(provider.offers()) == before


def test_prices_are_asked_for_every_ten_minutes_and_skus_once_an_hour(account: Account) -> None:
    provider = account.connect(regions=("eastus",))
    for _ in range(3):
        provider.prices()
    pages = len(account.asked("GET", "/retail/prices"))
    account.clock.advance(600)
    provider.prices()
    assert len(account.asked("GET", "/retail/prices")) == 2 * pages > 0
    assert len(account.asked("GET", "/skus")) == 1
