"""Machines of GCP after their launch: what is shown late or in parts, how they end, and until when they are billed."""

from __future__ import annotations

import pytest

from providers.errors import (
    UnavailableError,
)
from providers.gcp.request import LONGEST_RUN_S
from providers.instance import EndReason, InstanceState
from tests.clouds.gce_project import A2, E2, HOUR_S, NOW_MS, SPOT, Project, spec, the_machine
from tests.clouds.gcp import error

# --- what GCP shows late ---


def test_a_launch_that_is_not_shown_yet_is_neither_described_nor_gone(project: Project) -> None:
    project.gce.lag_s = 60
    provider = project.connect()
    (name,) = provider.launch(spec())
    assert provider.describe([name]) == []
    assert provider.find("token-1", "us-central1") == []
    with pytest.raises(UnavailableError, match="does not know"):
        provider.terminate(name)
    provider.renew([name], HOUR_S)
    project.clock.advance(provider.listing_lag_s)
    assert [each.id for each in provider.describe([name])] == [name]
    provider.terminate(name)
    assert provider.describe([name])[0].end_reason is EndReason.USER


def test_one_unknown_machine_does_not_hide_or_keep_others(project: Project) -> None:
    provider = project.connect()
    (name,) = provider.launch(spec())
    unknown = name.replace("token-1", "token-2")
    assert [each.id for each in provider.describe([unknown, name, "no-such"])] == [name]
    provider.renew([unknown, name, "no-such"], HOUR_S)
    assert the_machine(project).metadata["tradewind-lives"] == f"{HOUR_S} from {project.clock.now_ms()}"
    provider.terminate(unknown)


def test_a_renewal_keeps_other_metadata_and_meets_another_change(project: Project) -> None:
    provider = project.connect()
    (name,) = provider.launch(spec(time_to_live_s=HOUR_S))
    before = the_machine(project).metadata
    project.fails("POST", "/setMetadata", answer=error(412, "Supplied fingerprint does not match", "conditionNotMet"))
    provider.renew([name], 2 * HOUR_S)
    after = the_machine(project).metadata
    assert after.pop("tradewind-lives") == f"{2 * HOUR_S} from {project.clock.now_ms()}"
    assert after.items() <= before.items()
    assert len(project.server.asked("/setMetadata")) == 2


def test_a_slow_end_is_not_the_end(project: Project) -> None:
    project.gce.ending_s = 90
    provider = project.connect()
    (name,) = provider.launch(spec())
    project.clock.advance(600)
    provider.terminate(name)
    provider.terminate(name)
    assert provider.describe([name])[0].state is InstanceState.STOPPING
    assert provider.list_owned("tw-1")
    project.clock.advance(90)
    (ended,) = provider.describe([name])
    assert ended.end_reason is EndReason.USER
    assert ended.billed_to_ms == project.clock.now_ms()
    assert not provider.list_owned("tw-1")


# --- ends ---


def test_a_machine_that_was_taken_away_has_its_time_and_reason(project: Project) -> None:
    provider = project.connect()
    (name,) = provider.launch(spec())
    project.clock.advance(600)
    project.gce.take(the_machine(project).row.name)
    taken_ms = project.clock.now_ms()
    project.clock.advance(300)  # nobody asks meanwhile
    (ended,) = project.connect().describe([name])
    assert (ended.end_reason, ended.billed_from_ms, ended.billed_to_ms) == (EndReason.PREEMPTED, NOW_MS, taken_ms)
    assert (ended.offer_id, ended.token) == (SPOT, "token-1")
    assert project.gce.bill_nano_usd() == 600 * 10**9 // 3600


@pytest.mark.parametrize(("late_s", "reason"), [(0, EndReason.EXPIRED), (-300, EndReason.FAILED)])
def test_a_machine_that_shuts_down_has_failed_unless_its_time_is_over(
    project: Project, late_s: int, reason: EndReason
) -> None:
    provider = project.connect()
    (name,) = provider.launch(spec(time_to_live_s=HOUR_S))
    project.clock.advance(HOUR_S + late_s)
    the_machine(project).machine.off = True  # type: ignore[misc]
    assert provider.describe([name])[0].end_reason is reason
    assert len(project.gce.left()) == 1
    provider.list_owned("tw-1")
    assert not project.gce.left()
    assert provider.describe([name])[0].end_reason is reason
    assert project.connect().describe([name])[0].end_reason is EndReason.FAILED  # only its operations are left


def test_the_longest_run_is_announced_and_then_ends_the_machine(project: Project) -> None:
    provider = project.connect()
    (name,) = provider.launch(spec())
    project.clock.advance(LONGEST_RUN_S - 700)
    assert provider.describe([name])[0].notice_deadline_ms is None
    project.clock.advance(200)
    assert provider.describe([name])[0].notice_deadline_ms == NOW_MS + LONGEST_RUN_S * 1000
    project.clock.advance(500)
    (ended,) = provider.describe([name])
    assert ended.end_reason is EndReason.EXPIRED
    assert not project.gce.left()


def test_a_machine_whose_type_is_no_longer_configured_is_still_known_by_its_end(project: Project) -> None:
    (name,) = project.connect().launch(spec())
    project.connect().terminate(name)
    (ended,) = project.connect(machine_types=(E2.name,)).find("token-1", "us-central1")
    assert (ended.id, ended.end_reason) == (name, EndReason.USER)
    assert ended.offer_id == "gcp/us-central1/us-central1-a/unknown/on_demand"


# --- several zones ---


def test_machines_of_all_zones_are_listed_page_by_page(project: Project) -> None:
    project.gce.page_rows = 1
    far = f"gcp/europe-west4/europe-west4-a/{A2.name}/spot"
    launched = {project.connect().launch(spec(token=f"token-{number}"))[0] for number in range(3)}
    launched |= set(project.connect().launch(spec(far, token="token-9")))
    assert {each.id for each in project.connect(regions=("us-central1",)).list_owned("tw-1")} == launched
    assert not project.connect().list_owned("tw-2")


def test_a_zone_that_does_not_answer_hides_no_other_and_keeps_its_last_list(project: Project) -> None:
    provider = project.connect()
    (near,) = provider.launch(spec())
    (far,) = provider.launch(spec(f"gcp/europe-west4/europe-west4-a/{A2.name}/spot", token="token-2"))
    assert {each.id for each in provider.list_owned("tw-1")} == {near, far}
    project.gce.unreachable = {"europe-west4-a"}
    assert {each.id for each in provider.list_owned("tw-1")} == {near, far}
    assert [each.id for each in project.connect().list_owned("tw-1")] == [near]
    assert [each.id for each in provider.describe([near, far])] == [near]
    project.fails("GET", "/aggregated/", times=None, answer=error(503, "no", "backendError"))
    with pytest.raises(UnavailableError):
        provider.list_owned("tw-1")


# --- bills ---


def test_a_machine_that_has_shut_down_by_itself_is_billed_until_then_and_so_it_is_booked(project: Project) -> None:
    """Its disk stays, and costs, until the control plane next lists the machines (docs/gcp.md)."""
    provider = project.connect()
    (name,) = provider.launch(spec())
    project.clock.advance(600)
    the_machine(project).machine.off = True  # type: ignore[misc]
    provider.find("another", "us-central1")  # GCP sees it
    project.clock.advance(900)
    (ended,) = project.connect().describe([name])
    assert (ended.billed_from_ms, ended.billed_to_ms) == (NOW_MS, NOW_MS + 600_000)
    assert project.gce.bill_nano_usd() == 600 * 10**9 // 3600
    assert len(project.gce.left()) == 1
    provider.list_owned("tw-1")
    assert not project.gce.left()
    assert project.gce.bill_nano_usd() == 600 * 10**9 // 3600
