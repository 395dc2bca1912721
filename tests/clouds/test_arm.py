"""Renting on Azure, through the unmodified azure-mgmt-compute: launches, refusals, what ARM shows late, ends, prices.

The machines are not started here; tests/contract/test_azure.py and tests/e2e/test_three_clouds.py run real ones.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest

from providers.azure.calls import policy
from providers.azure.codes import CODES
from providers.azure.launches import WAIT_S
from providers.azure.permissions import access
from providers.azure.provider import AzureProvider
from providers.azure.session import Connections, denied
from providers.base import Covered, LimitsByQuota
from providers.errors import (
    CapacityError,
    ConflictError,
    CutOffError,
    NotFoundError,
    PermissionDeniedError,
    PriceError,
    ProviderError,
    QuotaError,
    SetupError,
    ThrottledError,
    UnavailableError,
)
from providers.instance import EndReason, InstanceState
from providers.money import usd
from providers.policy import Use
from tests.clouds.arm import IMAGE, SUBSCRIPTION, Vm
from tests.clouds.arm_account import CPU, GPU, NOW_MS, ON_DEMAND, SPOT, Account, opened, spec
from tests.clouds.azure import THROTTLED, Token, error, resource_sku
from tests.clouds.server import Fault, LoopbackServer, Response
from tests.clouds.still import Still

HOUR_S = 3600
HERE = "eastus", GPU, True


@pytest.fixture
def account(arm_clients: tuple[LoopbackServer, LoopbackServer, Connections]) -> Account:
    return opened(*arm_clients, "tw-1")


def the_machine(account: Account) -> Vm:
    (vm,) = account.arm.every()
    return vm


def still(vm: Vm) -> Still:
    assert isinstance(vm.machine, Still)
    return vm.machine


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


# --- errors ---


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_known_code_becomes_the_error_of_the_table(account: Account, code: str) -> None:
    account.fails("PUT", answer=error(code, "said Azure", 409))
    with pytest.raises(CODES[code].kind, match=code) as raised:
        account.connect().launch(spec())
    assert raised.value.scope == CODES[code].scope or CODES[code].kind is PermissionDeniedError
    assert not account.arm.every()


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        ("OperationNotAllowed", "results in exceeding approved Total Regional Cores quota", QuotaError),
        ("OperationNotAllowed", "The max price is lower than the current spot price", PriceError),
        ("OperationNotAllowed", "The VM 'x' is being deleted", UnavailableError),
        ("Conflict", "Another operation is in progress", UnavailableError),
        ("OperationNotAllowed", "Changing property 'osProfile' is not allowed", ConflictError),
        ("BadRequest", "Operation results in exceeding quota limits of Core", QuotaError),
        ("BadRequest", "no", ProviderError),
    ],
)
def test_one_code_stands_for_several_errors(account: Account, code: str, text: str, kind: type[ProviderError]) -> None:
    account.fails("PUT", answer=error(code, text, 400 if code == "BadRequest" else 409))
    with pytest.raises(kind) as raised:
        account.connect().launch(spec())
    assert type(raised.value) is kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, ProviderError), (409, ConflictError), (412, ConflictError), (500, UnavailableError), (429, ThrottledError)],
)
def test_an_unknown_code_is_judged_by_its_status(account: Account, status: int, kind: type[ProviderError]) -> None:
    account.fails("PUT", answer=error("SomethingNew", "said Azure", status))
    with pytest.raises(kind, match="SomethingNew: said Azure") as raised:
        account.connect().launch(spec())
    assert type(raised.value) is kind


def test_throttling_says_how_long_to_wait(account: Account) -> None:
    account.fails("PUT", answer=replace(THROTTLED, headers={"Retry-After": "17"}))
    with pytest.raises(ThrottledError) as raised:
        account.connect().launch(spec())
    assert raised.value.retry_after_s == 17


def test_a_missing_permission_is_named(account: Account) -> None:
    text = "The client 'x' does not have authorization to perform action 'Microsoft.Compute/virtualMachines/write'"
    account.fails("PUT", answer=error("AuthorizationFailed", text, 403))
    with pytest.raises(PermissionDeniedError) as raised:
        account.connect().launch(spec())
    assert raised.value.action == "Microsoft.Compute/virtualMachines/write"


def test_an_operation_that_cannot_be_asked_about_is_no_failure(account: Account) -> None:
    account.fails("GET", "/operations/", times=None, answer=Response(503, b"<html>"))
    (name,) = account.connect().launch(spec())
    assert account.connect().describe([name])[0].state is InstanceState.RUNNING


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


# --- what ARM shows late, and ends ---


def test_lists_may_be_late_but_a_machine_is_described_at_once(account: Account) -> None:
    account.arm.lag_s = 60
    provider = account.connect()
    (name,) = provider.launch(spec())
    assert provider.list_owned("tw-1") == []
    assert provider.describe([name])[0].alive
    account.clock.advance(provider.listing_lag_s)
    assert [each.id for each in provider.list_owned("tw-1")] == [name]


def test_a_slow_end_is_not_the_end_but_ends_the_bill(account: Account) -> None:
    account.arm.ending_s = 90
    provider = account.connect()
    (name,) = provider.launch(spec())
    account.clock.advance(600)
    asked_ms = account.clock.now_ms()
    provider.terminate(name)
    assert provider.describe([name])[0].state is InstanceState.STOPPING
    account.clock.advance(30)
    provider.terminate(name)  # again, while it is being deleted
    account.clock.advance(60)
    (ended,) = account.connect().describe([name])
    assert ended.end_reason is EndReason.USER
    assert ended.billed_to_ms == asked_ms // 1000 * 1000
    assert still(the_machine(account)).said == ["asked to shut down", "ended"]
    assert account.asked("DELETE")[0].query["forceDeletion"] == "true"


def test_an_end_whose_answer_is_lost_is_asked_for_again(account: Account) -> None:
    account.arm.ending_s = 10
    provider = account.connect()
    (name,) = provider.launch(spec())
    account.fails("DELETE", lost=True)
    with pytest.raises(UnavailableError):
        provider.terminate(name)
    provider.terminate(name)
    account.clock.advance(10)
    assert provider.describe([name])[0].end_reason is EndReason.USER


def test_a_machine_that_was_taken_away_is_gone_at_once_and_was_preempted(account: Account) -> None:
    provider = account.connect()
    (name,) = provider.launch(spec())
    assert provider.describe([name])[0].alive
    account.clock.advance(600)
    account.arm.take(the_machine(account).name)
    (ended,) = account.connect().describe([name])
    assert ended.end_reason is EndReason.PREEMPTED
    assert ended.billed_from_ms == NOW_MS
    assert ended.billed_to_ms == account.clock.now_ms()
    account.clock.advance(600)
    assert account.connect().find("token-1", "eastus") == [ended]
    assert not account.arm.beside


def test_the_end_of_a_machine_that_azure_takes_is_what_azure_says(account: Account) -> None:
    """Seen by a look or by an attempt to end it, as long as Azure shows that it is deleting it."""
    account.arm.ending_s = 60
    provider = account.connect()
    looked, ended = provider.launch(spec(count=2))
    assert all(each.alive for each in provider.describe([looked, ended]))
    for vm in account.arm.alive():
        account.arm.announce(vm.name)
    account.clock.advance(30)
    taken_ms = account.clock.now_ms()
    account.clock.advance(20)
    assert provider.describe([looked])[0].state is InstanceState.STOPPING
    provider.terminate(ended)
    account.clock.advance(40)
    found = {each.id: each for each in account.connect().describe([looked, ended])}
    assert [found[each].billed_to_ms for each in (looked, ended)] == [taken_ms, taken_ms]
    assert [found[each].end_reason for each in (looked, ended)] == [EndReason.PREEMPTED, EndReason.USER]


def test_an_end_of_which_azure_does_not_say_the_time_is_when_it_was_seen(account: Account) -> None:
    account.arm.ending_s = 60
    provider = account.connect()
    (name,) = provider.launch(spec())
    assert provider.describe([name])[0].alive
    account.arm.announce(the_machine(account).name)
    account.clock.advance(50)
    account.arm.says_since = False
    assert provider.describe([name])[0].state is InstanceState.STOPPING
    seen_ms = account.clock.now_ms()
    account.clock.advance(120)
    assert account.connect().describe([name])[0].billed_to_ms == seen_ms


@pytest.mark.parametrize(("late_s", "reason"), [(0, EndReason.EXPIRED), (-300, EndReason.FAILED)])
def test_a_machine_that_shuts_down_is_deleted_by_whoever_looks(
    account: Account, late_s: int, reason: EndReason
) -> None:
    provider = account.connect()
    (name,) = provider.launch(spec(time_to_live_s=HOUR_S))
    account.clock.advance(HOUR_S + late_s)
    still(the_machine(account)).off = True
    assert provider.describe([name])[0].state is InstanceState.STOPPING
    assert provider.describe([name])[0].end_reason is reason
    assert not account.arm.alive()


def test_a_machine_that_has_shut_down_is_billed_until_somebody_looks_and_so_it_is_booked(account: Account) -> None:
    (name,) = account.connect().launch(spec())
    account.clock.advance(600)
    still(the_machine(account)).off = True
    account.clock.advance(900)  # no control plane runs
    seen_ms = account.clock.now_ms()
    assert account.connect().describe([name])[0].state is InstanceState.STOPPING
    account.clock.advance(300)
    (ended,) = account.connect().describe([name])
    assert ended.billed_from_ms is not None
    assert ended.billed_to_ms == seen_ms // 1000 * 1000
    vm = the_machine(account)
    price = 3600_000 * account.arm.cost_nano_usd_of(vm) / (ended.billed_to_ms - ended.billed_from_ms)
    (listed,) = (each for each in account.connect().prices() if each.offer_id == ended.offer_id)
    assert price == pytest.approx(listed.nano_usd_per_hour), "what Azure bills is what is booked"
    assert ended.billed_to_ms - ended.billed_from_ms >= 1_500_000


def test_a_machine_whose_time_is_over_is_deleted_although_it_runs_on(account: Account) -> None:
    provider = account.connect()
    (name,) = provider.launch(spec(time_to_live_s=HOUR_S))
    account.clock.advance(HOUR_S - 5)
    assert provider.describe([name])[0].state is InstanceState.RUNNING
    account.clock.advance(5)
    assert provider.list_owned("tw-1")[0].state is InstanceState.STOPPING
    assert provider.list_owned("tw-1") == []


def test_a_failed_update_does_not_end_a_machine(account: Account) -> None:
    provider = account.connect()
    (name,) = provider.launch(spec())
    the_machine(account).state = "Failed"
    assert provider.describe([name])[0].state is InstanceState.RUNNING


def test_records_are_forgotten_after_hours_and_not_before(account: Account) -> None:
    provider = account.connect()
    for number in range(2):
        provider.launch(spec(token=f"token-{number}"))
    first, second = account.connect().list_owned("tw-1")
    provider.terminate(first.id)
    account.clock.advance(HOUR_S)
    provider.list_owned("tw-1")
    assert len(account.arm.keys) == 2
    account.clock.advance(2 * HOUR_S)
    assert [each.id for each in provider.list_owned("tw-1")] == [second.id]
    assert list(account.arm.keys) == [second.id.removeprefix("azure-eastus-")]


def test_other_installations_and_other_resources_are_left_alone(account: Account) -> None:
    provider = account.connect()
    provider.launch(spec())
    vm = the_machine(account)
    account.arm.keys["mine"] = {"name": "mine", "location": "eastus", "tags": None}
    assert provider.list_owned("tw-2") == []
    vm.tags.clear()
    assert provider.list_owned("tw-1") == []
    provider.describe([f"azure-eastus-{vm.name}"])
    account.clock.advance(9 * HOUR_S)
    provider.list_owned("tw-1")
    assert "mine" in account.arm.keys
    assert account.arm.alive()


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


# --- doctor ---


def test_doctor_reads_all_that_renting_needs_and_changes_nothing(account: Account) -> None:
    provider = account.connect()
    found = {each.what: each for each in access(account.connections, settings=provider._settings)}
    assert [each.what for each in found.values() if not each.works and each.needed] == []
    assert set(found) >= {"identity", "resource SKUs", "image in eastus", "image in westus2", "list of machines"}
    assert all(found[each].needed for each in ("identity", "resource SKUs", "list of machines"))
    assert {request.method for request in account.server.requests} <= {"GET", "POST"}  # POST: Resource Graph


def test_doctor_does_not_claim_to_know_a_driver_or_an_image_by_id(account: Account) -> None:
    provider = account.connect(image="/subscriptions/s/images/mine", instance_types=("Standard_ND96isr_H100_v5",))
    found = {each.what: each for each in access(account.connections, settings=provider._settings)}
    assert found["image in eastus"].detail == "/subscriptions/s/images/mine (not looked up: an id is used as it is)"
    assert found["driver of the image"].detail.startswith("the image does not state its driver")


@pytest.mark.parametrize("image", ["publisher:offer:none:latest", f"{':'.join(IMAGE)}:1.0.0"])
def test_doctor_names_an_image_that_does_not_exist(account: Account, image: str) -> None:
    provider = account.connect(image=image)
    found = {each.what: each for each in access(account.connections, settings=provider._settings)}
    assert not found["image in eastus"].works
    assert "providers.azure.image" in found["image in eastus"].remedy


def test_a_refused_change_points_to_the_role_that_allows_it(account: Account) -> None:
    write = "Microsoft.Compute/virtualMachines/write"
    refused = denied("no", write)
    assert (refused.action, "Reader" in refused.hint) == (write, False)
    assert "tradewind doctor --policy azure" in refused.hint
    assert write in policy(list(Use)).text
