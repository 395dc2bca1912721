"""A cloud whose answers are not true: what cannot be true is not used, no job is blamed, and no machine is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.model import Job, Resources
from providers.base import Landed, LaunchSpec, Quota
from providers.errors import FormatError
from providers.instance import Instance, InstanceState
from providers.price import PricePoint
from tests import rig
from tests.rig.crash_points import MortalProvider
from tests.sim.harness import BRISK, CHEAP, EXPENSIVE, SimulatedInstallation, check_truth

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Liar(MortalProvider):
    """A client of the fake cloud that alters the answers of calls named in `lies`, from then on."""

    lies: dict[str, Callable[[Any], Any]]

    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        return self._altered("describe", super().describe(instance_ids))  # type: ignore[no-any-return]

    def find(self, token: str, region: str) -> Sequence[Instance]:
        return self._altered("find", super().find(token, region))  # type: ignore[no-any-return]

    def list_owned(self, install: str) -> Sequence[Instance]:
        return self._altered("list_owned", super().list_owned(install))  # type: ignore[no-any-return]

    def launch_any(self, spec: LaunchSpec) -> Landed:
        return self._altered("launch", super().launch_any(spec))  # type: ignore[no-any-return]

    def prices(self) -> Sequence[PricePoint]:
        return self._altered("prices", super().prices())  # type: ignore[no-any-return]

    def price_history(self, since_ms: int) -> Sequence[PricePoint]:
        return self._altered("prices", super().price_history(since_ms))  # type: ignore[no-any-return]

    def quotas(self) -> Sequence[Quota]:
        return self._altered("quotas", super().quotas())  # type: ignore[no-any-return]

    def _altered(self, call: str, answer: Any) -> Any:
        return self.lies[call](answer) if call in self.lies else answer


class Lies(dict[str, Callable[[Any], Any]]):
    """What the cloud lies about; shared by the clients of all control planes."""

    def connect(self, home: rig.SimulatedInstallation) -> Liar:
        provider = Liar(home.clock, cloud=home.cloud, faults=home.faults)
        provider.injector, provider.lies = home.injector, self
        return provider


@pytest.fixture
def lies() -> Lies:
    return Lies()


@pytest.fixture
def home(install: Callable[..., SimulatedInstallation], lies: Lies) -> SimulatedInstallation:
    return install(connect=lies.connect)


def each(**fields: Any) -> Callable[[Sequence[Any]], list[Any]]:
    """Every item of an answer with these fields; a function is given the item."""
    return lambda items: [
        replace(item, **{name: value(item) if callable(value) else value for name, value in fields.items()})
        for item in items
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"billed_from_ms": lambda it: it.billed_from_ms and it.billed_from_ms - 2 * DAY_MS},
        {"billed_from_ms": lambda it: it.billed_from_ms and it.billed_from_ms - 399 * DAY_MS},
        {"billed_from_ms": lambda it: None if it.alive else it.billed_from_ms, "state": InstanceState.RUNNING},
        {"notice_deadline_ms": 0},
        {"notice_deadline_ms": 10**30},
        {"notice_deadline_ms": float("nan")},
    ],
    ids=["from two days before", "from a year before", "runs unbilled", "notice of 1970", "notice never", "no notice"],
)
def test_times_of_a_machine_that_cannot_be_true_are_reported_and_change_nothing(
    home: SimulatedInstallation, lies: Lies, fields: dict[str, Any]
) -> None:
    job = home.submit(steps=40)
    run = home.until_step(job, 3)
    lies["describe"] = each(**fields)
    home.run_for(60)
    assert home.job(job).state == "finished"
    lies.clear()
    home.settle()
    assert [each.id for each in home.runs(job)] == [run.id]
    assert home.read(lambda tx: tx.events(kinds=("engine.fault",)))
    assert not home.events(job, "job.quarantined")
    check_truth(home)


def test_a_machine_that_trained_is_booked_though_its_cloud_forgets_that_it_ever_began(
    home: SimulatedInstallation, lies: Lies
) -> None:
    job = home.submit(steps=20)
    home.until_step(job, 3)
    lies["describe"] = each(billed_from_ms=lambda it: it.billed_from_ms if it.alive else None)
    home.until_state(job, "finished")
    home.settle()
    check_truth(home)


def finishes_on(home: SimulatedInstallation, lies: Lies, machines: int) -> Job:
    """A job of so many machines, whose cloud lies for the first ten seconds: no further machine is billed."""
    job = home.submit(steps=20, resources=Resources(nodes=machines))
    home.run_for(10)
    lies.clear()
    home.until_state(job, "finished")
    home.settle()
    assert len(home.cloud.bills()) == machines
    check_truth(home)
    return job


@pytest.mark.parametrize(
    "ids",
    [lambda ids: (), lambda ids: (*ids, "fake-another"), lambda ids: (f"{ids[0]}\x1b[2J",), lambda ids: ("",)],
    ids=["none", "more", "control characters", "empty"],
)
def test_a_launch_whose_answer_names_other_machines_than_were_requested_is_asked_again(
    home: SimulatedInstallation, lies: Lies, ids: Callable[[tuple[str, ...]], tuple[str, ...]]
) -> None:
    lies["launch"] = lambda landed: replace(landed, instance_ids=ids(landed.instance_ids))
    finishes_on(home, lies, machines=1)


def test_a_launch_whose_answer_cannot_be_read_may_have_made_a_machine(home: SimulatedInstallation, lies: Lies) -> None:
    def unreadable(_: Landed) -> Landed:
        raise FormatError("the answer cannot be read")

    lies["launch"] = unreadable
    job = finishes_on(home, lies, machines=1)
    assert len(home.runs(job)) == 1


def test_a_launch_of_several_that_names_one_machine_twice_is_asked_again(
    home: SimulatedInstallation, lies: Lies
) -> None:
    lies["launch"] = lambda landed: replace(landed, instance_ids=landed.instance_ids[:1] * 2)
    finishes_on(home, lies, machines=2)


def test_a_machine_that_is_found_twice_is_one(home: SimulatedInstallation, lies: Lies) -> None:
    lies["launch"] = lambda landed: replace(landed, instance_ids=())
    lies["find"] = lambda found: [found[0]] * 2 + list(found) if found else []
    job = home.submit(steps=20, resources=Resources(nodes=2))
    home.until(lambda: any(run.end == "aborted" for run in home.runs(job)))
    home.until(lambda: all(run.complete for run in home.runs(job) if run.end == "aborted"))
    lies.clear()
    home.settle()
    check_truth(home)


def test_the_machine_of_a_launch_that_named_one_that_never_existed_is_ended_and_booked(
    home: SimulatedInstallation, lies: Lies
) -> None:
    lies["launch"] = lambda landed: replace(landed, instance_ids=("fake-never",))
    job = home.submit(steps=20)
    home.until(lambda: any(run.end == "aborted" for run in home.runs(job)))
    lies.clear()
    home.until_state(job, "finished")
    home.settle()
    assert home.events(job, "instance.adopted")
    check_truth(home)


@pytest.mark.parametrize("late", [False, True], ids=["while its run trains", "after its run has ended"])
def test_a_machine_that_was_launched_in_addition_is_ended_and_the_ledger_is_said_to_lack_its_cost(
    home: SimulatedInstallation, lies: Lies, late: bool
) -> None:
    job = home.submit(steps=40)
    run = home.until_step(job, 3)
    own = home.machine(run)
    tags = {**own.tags, "tradewind-run": "surplus"}
    (surplus,) = home.cloud.launch(
        LaunchSpec("another-token", run.offer_id, "", tags, time_to_live_s=HOUR_MS), home.clock.now_ms()
    ).instance_ids
    if late:
        home.until_state(job, "finished")
    lies["list_owned"] = lambda found: [replace(it, token=own.token) for it in found]
    home.until(lambda: bool(home.events(job, "instance.surplus")), limit_s=20)
    home.settle()
    (event,) = home.events(job, "instance.surplus")
    assert surplus in event.message
    assert "the ledger does not contain its cost" in event.message
    assert not [it for it in home.cloud.instances() if it.alive]
    assert [it.end for it in home.runs(job)] == ["finished"]


@pytest.mark.parametrize("price", [0, -1, 10**30, float("nan"), None], ids=str)
def test_a_number_that_is_no_price_is_not_used_and_blamed_on_no_job(
    home: SimulatedInstallation, lies: Lies, price: object
) -> None:
    job = home.submit(steps=20)
    home.until_step(job, 3)
    lies["prices"] = each(nano_usd_per_hour=price)
    home.until_state(job, "finished")
    home.run_for(20)
    lies.clear()
    home.settle()
    kinds = ("engine.fault", "job.quarantined")
    assert not home.read(lambda tx: tx.events(kinds=kinds))
    check_truth(home)


def test_one_price_that_is_none_does_not_hide_the_others(home: SimulatedInstallation, lies: Lies) -> None:
    lies["prices"] = lambda points: [
        replace(point, nano_usd_per_hour=-1) if point.offer_id == EXPENSIVE.id else point for point in points
    ]
    job = home.submit(steps=20)
    home.until_state(job, "finished")
    assert [flag.subject for flag in home.read(lambda tx: tx.open_flags("malformed", limit=9))] == [EXPENSIVE.id]
    home.settle()
    check_truth(home)


@pytest.mark.parametrize(
    "fields",
    [{"limit": 2**63}, {"limit": 10**30}, {"used": -(10**30)}, {"limit": -(10**30)}],
    ids=["beyond 64 bits", "huge", "less than nothing in use", "less than none"],
)
def test_a_quota_of_any_size_stops_neither_plans_nor_the_control_plane(
    install: Callable[..., SimulatedInstallation], lies: Lies, fields: dict[str, Any]
) -> None:
    home = install(connect=lies.connect, behaviour=replace(BRISK, max_instances=5))
    first = home.submit("first", steps=40)
    home.until_step(first, 3)
    lies["quotas"] = each(**fields)
    second = home.submit("second", steps=20)
    home.run_for(30)
    lies.clear()
    home.until_state(second, "finished")
    home.settle()
    assert not home.read(lambda tx: tx.events(kinds=("engine.fault", "job.quarantined")))
    check_truth(home)


def test_a_machine_of_another_offer_than_was_requested_is_reported_once_because_its_price_is_uncertain(
    home: SimulatedInstallation, lies: Lies
) -> None:
    lies["describe"] = each(offer_id=EXPENSIVE.id)
    job = home.submit(steps=20)
    home.until_state(job, "finished")
    home.settle()
    (event,) = home.events(job, "instance.other_offer")
    assert f"is {EXPENSIVE.id} according to its provider, but {CHEAP.id} was requested" in event.message
    check_truth(home)


def test_a_bill_that_ends_in_the_future_is_booked_for_as_long_as_the_machine_can_have_existed(
    home: SimulatedInstallation, lies: Lies
) -> None:
    lies["describe"] = each(billed_to_ms=lambda it: it.billed_to_ms and it.billed_to_ms + 20 * HOUR_MS)
    job = home.submit(steps=20)
    home.until_state(job, "finished")
    home.settle()
    (run,) = home.runs(job)
    assert run.billed_from_ms is not None
    assert run.billed_to_ms is not None
    assert 0 < run.billed_to_ms - run.billed_from_ms <= home.clock.now_ms() - run.created_at_ms
    assert not [it for it in home.cloud.instances() if it.alive]
