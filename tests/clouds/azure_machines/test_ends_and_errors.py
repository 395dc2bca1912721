"""Renting on Azure, through the unmodified azure-mgmt-compute: errors, late lists, ends, permissions, doctor.

The machines are not started here; tests/contract/test_azure.py and tests/e2e/test_three_clouds.py run real ones.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from providers.azure.calls import policy
from providers.azure.codes import CODES
from providers.azure.permissions import access
from providers.azure.session import denied
from providers.errors import (
    ConflictError,
    PermissionDeniedError,
    PriceError,
    ProviderError,
    QuotaError,
    ThrottledError,
    UnavailableError,
)
from providers.instance import EndReason, InstanceState
from providers.policy import Use
from tests.clouds.arm import IMAGE
from tests.clouds.arm_account import NOW_MS, Account, spec
from tests.clouds.azure import THROTTLED, error
from tests.clouds.azure_machines.conftest import HOUR_S, still, the_machine
from tests.clouds.server import Response

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
def test_a_machine_that_shuts_down_is_deleted_by_the_next_look(
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
