"""Events, ledger entries, plans, measured speeds, commands, periodic tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import text, update

from orchestrator.errors import BookingError, NotFoundError, StoreError
from orchestrator.formats.codec import Codec
from orchestrator.ledger import Comparison, Inputs, Part, Rate, Stay
from orchestrator.model import Alternative, Estimate, Placement, Plan
from orchestrator.perf import Program, Row, Work
from orchestrator.store import Command, PerfPoint, Store, Tx, schema
from orchestrator.store.queries.plans import MAX_PERF_POINTS
from orchestrator.store.schema import APPEND_ONLY
from providers.billing.charges import RateCard
from providers.clock import VirtualClock
from providers.collect.facts import Signal
from providers.price import PricePoint

Make = Callable[..., Any]
T0 = 1_700_000_000_000


@pytest.fixture
def tx(store: Store, job: Make, run: Make) -> Iterator[Tx]:
    with store.write() as opened:
        opened.add_job(job("job_A"))
        opened.add_job(job("job_B"))
        opened.add_run(run("run_A", "job_A"))
        opened.add_run(run("run_B", "job_B"))
        yield opened


def test_an_event_comes_back_as_it_was(tx: Tx, event: Make) -> None:
    whole = event(
        "evt_A",
        job_id="job_A",
        run_id="run_A",
        migration_id="mig_A",
        plan_id="plan_A",
        data={"saved": 0.1, "step": 3, "ok": True, "why": None, "who": "me"},
        project="research",
        owner="ann",
        labels={"team": "ml"},
    )
    tx.add_event(whole)
    assert tx.events() == [whole]


def test_events_are_read_in_the_order_of_writing_and_filtered(tx: Tx, event: Make) -> None:
    tx.add_event(event("evt_B", job_id="job_A"))
    tx.add_event(event("evt_A", job_id="job_A", kind="run.training", at_ms=1))
    tx.add_event(event("evt_C", job_id="job_B", kind="run.training"))

    def ids(**filters: Any) -> list[str]:
        return [each.id for each in tx.events(**filters)]

    assert ids() == ["evt_B", "evt_A", "evt_C"]
    assert ids(newest_first=True, limit=2) == ["evt_C", "evt_A"]
    assert ids(limit=1) == ["evt_B"]
    assert ids(job_id="job_A") == ["evt_B", "evt_A"]
    assert ids(kinds={"run.training"}) == ["evt_A", "evt_C"]
    assert ids(after_id="evt_B") == ["evt_A", "evt_C"]
    assert ids(after_id="evt_B", job_id="job_A", kinds=["run.training"]) == ["evt_A"]
    with pytest.raises(NotFoundError, match="evt_X"):
        tx.events(after_id="evt_X")


def test_entries_come_back_as_they_were_and_sum_exactly(tx: Tx, entry: Make) -> None:
    first = entry("ent_A", amount=2**53 + 1, labels={"a": "b"}, project="research", owner="ann")
    second = entry("ent_B", start_ms=T0 + 1000, amount=-1)
    other = entry("ent_C", run_id="run_B", job_id="job_B", amount=5)
    tx.add_entries([first, second, other])
    tx.add_entries([])
    assert tx.entries() == [first, second, other]
    assert tx.entries(job_id="job_A", run_id="run_A", project="default") == [second]
    assert tx.total_nano_usd() == 2**53 + 5
    assert tx.total_nano_usd("job_A") == 2**53
    assert tx.total_nano_usd("job_X") == 0
    (project,) = {each.project for each in tx.outlines()}  # that of the jobs counts, not the copies in the entries
    assert tx.project_nano_usd(project) == 2**53 + 5
    assert tx.project_nano_usd("another") == 0


def test_adjoining_windows_share_no_entry_and_miss_none(tx: Tx, entry: Make) -> None:
    tx.add_entries([entry("ent_A", start_ms=10, period_end_ms=20), entry("ent_B", start_ms=20)])
    assert [each.id for each in tx.entries(since_ms=0, until_ms=20)] == ["ent_A"]
    assert [each.id for each in tx.entries(since_ms=20, until_ms=30)] == ["ent_B"]


def test_a_period_is_charged_once_and_corrected_by_new_rows(store: Store, job: Make, run: Make, entry: Make) -> None:
    with store.write() as tx:
        tx.add_job(job())
        tx.add_run(run())
        tx.add_entries([entry("ent_A", amount=7)])
    with pytest.raises(BookingError, match="run_A is already booked"), store.write() as tx:
        tx.add_entries([entry("ent_B", amount=7)])
    correction = entry("ent_C", kind="correction", amount=-7, reverses="ent_A")
    with store.write() as tx:
        tx.add_entries([correction, entry("ent_D", kind="minimum_charge", amount=3)])
        assert tx.entries()[1] == correction
        assert tx.total_nano_usd() == 3
    with pytest.raises(StoreError), store.write() as tx:
        tx.add_entries([replace(correction, id="ent_E")])


@pytest.mark.parametrize(("start_ms", "end_ms"), [(1500, 2500), (500, 1500), (1200, 1300), (0, 5000), (3500, 4001)])
def test_no_time_is_booked_twice_and_none_past_the_end_of_a_machine(
    tx: Tx, entry: Make, start_ms: int, end_ms: int
) -> None:
    booked = entry("ent_A", 1000, period_end_ms=2000)
    tx.add_entries([booked, entry("ent_X", 0, period_end_ms=9000, run_id="run_B")])
    tx.update_run("run_A", billed_to_ms=4000)
    with pytest.raises(BookingError, match="run_A") as refused:
        tx.add_entries([entry("ent_B", start_ms, period_end_ms=end_ms)])
    assert "tradewind store check" in refused.value.hint
    assert tx.entries(run_id="run_A") == [booked]
    tx.add_entries([entry("ent_C", 2000, period_end_ms=4000), entry("ent_D", 0, period_end_ms=1000)])
    tx.add_entries([entry("ent_E", 4000, kind="minimum_charge", period_end_ms=9000)])


def test_a_correction_names_an_entry_of_its_run(tx: Tx, entry: Make) -> None:
    tx.add_entries([entry("ent_A", 1000)])
    for wrong in ({"reverses": "ent_Z"}, {"reverses": "ent_A", "run_id": "run_B"}, {"reverses": None}):
        with pytest.raises(BookingError, match="not an entry of run_"):
            tx.add_entries([entry("ent_B", 1000, kind="correction", **wrong)])


def test_comparisons_come_back_as_they_were_and_the_newest_version_counts(tx: Tx) -> None:
    stay = Stay(T0, True, (Part("run_A", "fake/r/z/t/on_demand", 5, 7, 1.25),))
    rate = Rate("V100", 0.1 + 0.2, 0.1, 0.5, "measured")
    prices = {"fake/r/z/t/on_demand": ((T0, 5), (T0 + 9, 6))}
    inputs = Inputs((stay,), prices, {"fake": RateCard("s", 60_000)}, -3, (rate,))
    first = Comparison("job_A", 1, "at_submission", T0, "", 4, 2, 9, "", inputs)
    out = Comparison("job_A", 1, "same_machine", T0, "", 4, 2, None, "no step was recorded", None)
    later = replace(first, version=2, reason="corrected", paid_nano_usd=5, entries=3)
    other = replace(out, job_id="job_B")
    tx.add_comparisons([first, out])
    tx.add_comparisons([other])
    tx.add_comparisons([later])
    assert tx.comparisons("job_A", all_versions=True) == [first, out, later]
    assert tx.comparisons("job_A") == [later]
    assert tx.comparisons() == [other, later]


def test_a_version_is_kept_once(store: Store, job: Make) -> None:
    first = Comparison("job_A", 1, "same_machine", T0, "", 4, 2, None, "no step was recorded", None)
    with store.write() as tx:
        tx.add_job(job())
        tx.add_comparisons([first])
    with pytest.raises(StoreError), store.write() as tx:
        tx.add_comparisons([first])


def test_a_job_is_due_to_be_compared_when_its_books_are_closed_and_again_after_each_new_entry(
    tx: Tx, entry: Make
) -> None:
    def due() -> list[str]:
        assert [tx.books_closed(each) for each in ("job_A", "job_B")] == [each in closed for each in ("job_A", "job_B")]
        return tx.uncompared(10)

    closed: set[str] = set()
    tx.update_run("run_A", state="ended", instance_id="i")
    tx.update_run("run_B", state="ended")
    assert due() == []
    tx.set_job_state("job_A", "finished")
    tx.set_job_state("job_B", "paused")
    assert due() == []  # one has a machine that is not booked to its end, the other may go on
    tx.update_run("run_A", billed_to_ms=T0)
    closed = {"job_A"}
    assert due() == ["job_A"]
    tx.add_comparisons([Comparison("job_A", 1, "same_machine", T0, "", 0, 0, None, "no step was recorded", None)])
    assert due() == []
    assert tx.job_facts("job_A").compared_at_ms == T0
    tx.add_entries([entry("ent_A", -1, kind="storage")])
    assert due() == ["job_A"]
    tx.set_job_facts("job_A", quarantined_at_ms=T0)
    assert due() == []


@pytest.mark.parametrize("table", APPEND_ONLY)
def test_what_is_append_only_cannot_be_changed(
    store: Store, job: Make, run: Make, offer: Make, event: Make, entry: Make, table: str
) -> None:
    with store.write() as tx:
        tx.add_job(job())
        tx.add_run(run())
        tx.put_offers("fake", [offer()])
        tx.add_prices([PricePoint(offer().id, 5, T0, T0, "test")])
        tx.add_availability(offer().id, T0, "refused")
        tx.record_poll("fake", T0, T0, 1, 1, None)
        tx.add_risks([Signal("placement_score", "fake", "r", "", "t", 1, 2, T0, T0, "test")])
        tx.add_event(event("evt_A"))
        tx.add_entries([entry("ent_A")])
        tx.add_comparisons([Comparison("job_A", 1, "same_machine", T0, "", 1, 1, None, "no step was recorded", None)])
    column = {"price_point": "nano_usd_per_hour", "poll": "changed", "risk_point": "observed_at_ms"}.get(table, "at_ms")
    for change in (f"UPDATE {table} SET {column} = 1", f"DELETE FROM {table}"):
        with pytest.raises(StoreError, match=f"{table} is append-only"), store.write() as tx:
            tx._connection.execute(text(change))


def plan(plan_id: str, *job_ids: str, at_ms: int = T0) -> Plan:
    offered = Alternative("fake/r/z/t/spot", 10**9, 1.5, 2.5, 111.1, 10**10, None, 10**11, 3600, True, "")
    placements = tuple(
        Placement(
            job_id,
            "place",
            offered.offer_id,
            "cheapest",
            10**10,
            T0 + 1,
            0,
            (offered,),
            None,
            Estimate(2.5, 0.1 + 0.2, float("inf"), "modelled"),
        )
        for job_id in job_ids
    )
    return Plan(plan_id, at_ms, "digest", True, placements)


def test_a_plan_comes_back_exactly(tx: Tx) -> None:
    tx.add_plan(plan("plan_A", "job_A", "job_B"))
    tx.add_plan(plan("plan_B"))
    assert tx.plan("plan_A") == plan("plan_A", "job_A", "job_B")
    assert tx.plan("plan_B") == plan("plan_B")
    with pytest.raises(NotFoundError, match="plan_X"):
        tx.plan("plan_X")


def test_the_same_plan_again_is_no_second_one(tx: Tx) -> None:
    tx.add_plan(plan("plan_A", "job_A"))
    tx.add_plan(plan("plan_B", "job_A"))
    tx.add_plan(plan("plan_A", "job_A"))
    assert tx.latest_plan() == plan("plan_B", "job_A")


def test_what_a_plan_decided_is_kept_where_it_was_acted_on_and_else_until_a_newer_one_looks_at_the_job(tx: Tx) -> None:
    tx.add_plan(plan("plan_A", "job_A", "job_B", "job_C"), acted_on=["job_A"])
    tx.add_plan(plan("plan_B", "job_A", "job_B"), acted_on=["job_B"])
    tx.add_plan(plan("plan_B", "job_A", "job_B"), acted_on=["job_A"])  # two are moved by one plan
    tx.add_plan(plan("plan_C", "job_A", "job_B"))
    assert tx.plan("plan_A") == plan("plan_A", "job_A", "job_C")
    assert tx.plan("plan_B") == plan("plan_B", "job_A", "job_B")
    assert tx.plan("plan_C") == plan("plan_C", "job_A", "job_B")
    assert [tx.plan_tally(each) for each in ("plan_A", "plan_B")] == [(3, 3), (2, 2)]
    assert tx.latest_plan("job_C") == plan("plan_A", "job_C")
    assert tx.latest_plan("job_A") == plan("plan_C", "job_A")


def test_a_plan_that_was_stored_in_full_is_still_read(tx: Tx) -> None:
    whole = plan("plan_A", "job_A", "job_B")
    tx.add_plan(plan("plan_A"))
    of_before = Codec(Plan, "plan/1").dumps(whole)
    tx._connection.exec_driver_sql("UPDATE plan SET looked_at = NULL, acting = NULL")
    tx._connection.execute(update(schema.plan).values(document=of_before))
    tx._connection.exec_driver_sql("INSERT INTO plan_job SELECT 'job_A', seq FROM plan")
    assert tx.plan("plan_A") == whole
    assert tx.plan_tally("plan_A") == (2, 2)
    assert tx.latest_plan("job_A") == whole
    assert tx.latest_plan() == whole
    tx.add_plan(plan("plan_B", "job_A"))
    assert tx.latest_plan("job_A") == plan("plan_B", "job_A")


def test_the_latest_plan_of_a_job_is_the_last_that_places_it(tx: Tx) -> None:
    assert tx.latest_plan() is None
    tx.add_plan(plan("plan_A", "job_A", "job_B"))
    tx.add_plan(plan("plan_B", "job_B"))
    assert tx.latest_plan() == plan("plan_B", "job_B")
    assert tx.latest_plan("job_A") == plan("plan_A", "job_A")
    assert tx.latest_plan("job_X") is None


def test_measured_speeds_are_kept_in_order_and_picked_by_job(tx: Tx) -> None:
    tx.add_perf("job_A", "V100", 2, 1.25, 100, 20)
    tx.add_perf("job_B", None, 0, 0.1, 10, 10)
    assert tx.perf() == [PerfPoint("job_A", "V100", 2, 1.25, 100, 20), PerfPoint("job_B", None, 0, 0.1, 10, 10)]
    assert [each.job_id for each in tx.perf({"job_B"})] == ["job_B"]
    assert tx.perf([]) == []


def test_however_long_a_job_trains_few_measurements_are_kept_and_no_step_or_second_of_them_is_lost(tx: Tx) -> None:
    draw = Random(1)
    given = [PerfPoint("job_A", "V100", 1, draw.uniform(0.5, 2.0), draw.randint(10, 20), at) for at in range(1000)]
    for at, point in enumerate(given, start=1):
        tx.add_perf(point.job_id, point.gpu, point.gpu_count, point.steps_per_s, point.steps, point.at_ms)
        kept = tx.perf()
        assert min(at, MAX_PERF_POINTS // 2) <= len(kept) <= MAX_PERF_POINTS
    assert kept[0] == given[0]
    assert kept[-1] == given[-1]
    assert [each.at_ms for each in kept] == sorted(each.at_ms for each in kept)
    assert sum(each.steps for each in kept) == sum(each.steps for each in given)
    trained_s = sum(each.steps / each.steps_per_s for each in given)
    assert sum(each.steps / each.steps_per_s for each in kept) == pytest.approx(trained_s)


def test_measurements_of_other_jobs_and_kinds_are_not_merged(tx: Tx) -> None:
    others = [
        PerfPoint("job_B", "V100", 1, 1.0, 10, 5),
        PerfPoint("job_A", None, 0, 1.0, 10, 5),
        PerfPoint("job_A", "V100", 2, 1.0, 10, 5),
    ]
    for at in range(200):
        tx.add_perf("job_A", "V100", 1, 1.0, 10, at)
        if at < len(others):
            tx.add_perf(*(getattr(others[at], field.name) for field in fields(PerfPoint)))
    assert [each for each in tx.perf() if (each.job_id, each.gpu, each.gpu_count) != ("job_A", "V100", 1)] == others
    for at in range(200):
        tx.add_perf("job_B", None, 0, 1.0, 10, at)
    assert len(tx.perf(["job_B"])) <= MAX_PERF_POINTS + 1


def test_the_jobs_measured_last_are_found_by_their_last_measurement(tx: Tx, job: Make) -> None:
    tx.add_job(job("job_C"))
    assert tx.measured_last(5) == []
    for job_id in ("job_A", "job_C", "job_A", "job_B", "job_A"):
        tx.add_perf(job_id, "V100", 1, 1.0, 10, 5)
    assert tx.measured_last(5) == ["job_A", "job_B", "job_C"]
    assert tx.measured_last(1) == ["job_A"]


def test_booked_until_is_the_end_of_the_last_machine_time_whatever_was_corrected_or_charged_besides(
    tx: Tx, entry: Make
) -> None:
    assert tx.booked_until_ms("run_A") is None
    tx.add_entries([entry("ent_A", 1000), entry("ent_B", 2000), entry("ent_X", 9000, run_id="run_B")])
    tx.add_entries([entry("ent_C", 3000, kind="minimum_charge", period_end_ms=60_000)])
    tx.add_entries([entry("ent_D", 3000, kind="correction", reverses="ent_C", period_end_ms=70_000)])
    assert tx.booked_until_ms("run_A") == tx.entries()[1].period_end_ms < 60_000
    assert (tx.charged_nano_usd("run_A"), tx.charged_nano_usd("run_B")) == (14, 0)


def test_what_is_charged_besides_time_counts_with_its_corrections_and_theirs(tx: Tx, entry: Make) -> None:
    tx.add_entries([entry("ent_A", 0, amount=5), entry("ent_B", 0, kind="disk", amount=7)])
    tx.add_entries([entry("ent_C", 0, kind="correction", amount=-3, reverses="ent_A")])
    tx.add_entries([entry("ent_D", 0, kind="correction", amount=-7, reverses="ent_B")])
    assert tx.charged_nano_usd("run_A") == 0
    tx.add_entries([entry("ent_E", 0, kind="correction", amount=2, reverses="ent_D")])
    assert tx.charged_nano_usd("run_A") == 2


def test_a_command_is_open_until_it_is_closed(tx: Tx, clock: VirtualClock) -> None:
    first = tx.add_command("pause", "job_A", {"reason": "lunch"}, "user:ann")
    clock.advance(1)
    second = tx.add_command("rest", None, {}, "user:bob")
    assert tx.open_commands() == [
        Command(first, "pause", "job_A", {"reason": "lunch"}, "user:ann", T0),
        Command(second, "rest", None, {}, "user:bob", T0 + 1000),
    ]
    assert tx.command_result(first) is None
    tx.close_command(first, "paused")
    assert tx.command_result(first) == "paused"
    assert [each.id for each in tx.open_commands()] == [second]
    with pytest.raises(NotFoundError, match="no open command"):
        tx.close_command(first, "paused again")
    with pytest.raises(NotFoundError):
        tx.command_result("cmd_X")


def test_a_command_for_an_unknown_job_is_refused(store: Store) -> None:
    with pytest.raises(StoreError), store.write() as tx:
        tx.add_command("pause", "job_X", {}, "user:ann")


def test_ids_of_commands_and_of_the_store_come_from_the_source_that_was_given(tmp_path: Path) -> None:
    made = []
    for name in "ab":
        store = Store.open(f"sqlite:///{tmp_path}/{name}.db", VirtualClock(T0), random=Random(7))
        with store.write() as tx:
            made.append((store.install_id, tx.add_command("rest", None, {}, "user:ann")))
        store.close()
    assert made[0] == made[1]


def test_a_periodic_task_remembers_when_it_was_last_done(tx: Tx) -> None:
    assert tx.task_done_ms("collect") is None
    tx.set_task_done("collect", 5)
    tx.set_task_done("collect", 9)
    tx.set_task_done("migrate", 1)
    assert (tx.task_done_ms("collect"), tx.task_done_ms("migrate")) == (9, 1)


def test_the_newest_profile_of_a_program_is_kept(store: Store) -> None:
    work = Work(1.5e9, 0.0, 1e9, 100, 10, 80, 40, 3.25)
    first, second = Program("/w:train:main", '{"layers": 2}'), Program("/w:train:main", "{}")
    with store.write() as tx:
        tx.put_work(first, work, 5)
        tx.put_work(second, work, 6)
        tx.put_work(first, replace(work, flops=2e9), 7)
    with store.read() as tx:
        assert tx.works() == {first: replace(work, flops=2e9), second: work}


def test_a_table_of_rates_takes_the_place_of_the_one_from_the_same_file(store: Store) -> None:
    first, second = Row("bert", "BERT", "V100", 1, 4.5), Row("bert", "BERT", "V100", 8, 30.0)
    other = Row("bert", "bert", "T4", 1, 0.1)
    with store.write() as tx:
        tx.put_rates("a.csv", [first, second, replace(second, steps_per_s=31.0)])
        tx.put_rates("b.csv", [other])
        assert tx.rates() == (first, replace(second, steps_per_s=31.0), other)
        tx.put_rates("a.csv", [second])
        tx.put_rates("b.csv", [])
    with store.read() as tx:
        assert tx.rates() == (second,)
