"""Entries are exact for any split, idempotent, and never edited: what was learned late becomes a correction."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.ledger import accrue, charge, correction, restate, total_nano_usd, totals
from orchestrator.model import Job, JobSpec, Run, TrainSpec
from providers.money import cost_nano_usd, usd

HOUR = 3_600_000
SPEC = JobSpec("j", TrainSpec("m:f", None, {}, "/w", {}, (), 1, None), project="research", labels={"team": "x"})
JOB = Job("job_1", SPEC, "ada", 0, "running")
RUN = Run("run_1", "job_1", 1, "local/r/z/t/spot", "i-1", "training", 0, billed_from_ms=1000)
PRICES = [(0, usd("0.123456789")), (HOUR, usd("0.3"))]


def ended(at_ms: int) -> Run:
    return replace(RUN, billed_to_ms=at_ms, state="ended", end="finished")


def test_an_entry_carries_the_period_the_offer_and_the_identity_of_its_job():
    (entry,) = accrue(JOB, RUN, PRICES, 5000, None)
    assert (entry.period_start_ms, entry.period_end_ms, entry.kind, entry.basis) == (1000, 5000, "compute", "estimated")
    assert (entry.run_id, entry.job_id, entry.offer_id) == ("run_1", "job_1", RUN.offer_id)
    assert (entry.project, entry.owner, entry.labels) == ("research", "ada", {"team": "x"})
    assert entry.amount_nano_usd == usd("0.123456789") * 4000 // HOUR


def test_periods_sum_to_the_cost_of_the_whole():
    entries, last = [], None
    for upto in (1001, 1002, 5000, HOUR + 7, 2 * HOUR):
        new = accrue(JOB, RUN, PRICES, upto, last)
        entries += new
        last = new[-1].period_end_ms
    assert total_nano_usd(entries) == cost_nano_usd(PRICES, 1000, 2 * HOUR)


def test_accruing_again_after_a_crash_gives_the_same_rows_and_after_the_end_none():
    run = ended(5000)
    assert accrue(JOB, run, PRICES, 9000, 1500) == accrue(JOB, run, PRICES, 9000, 1500)
    assert accrue(JOB, run, PRICES, 9000, 5000) == []


def test_a_run_that_was_never_billable_costs_nothing():
    assert accrue(JOB, replace(RUN, billed_from_ms=None), PRICES, 9000, None) == []


def test_a_finished_run_costs_the_same_whatever_prices_do_later():
    before = accrue(JOB, ended(5000), PRICES, 9000, None)
    assert accrue(JOB, ended(5000), [*PRICES, (6000, usd(99))][::1], 9000, None) == before


def test_an_unknown_price_is_an_error_and_no_zero():
    with pytest.raises(ValueError, match="no price is known"):
        accrue(JOB, RUN, [(2000, 1)], 5000, None)


def test_charges_besides_time_are_one_entry_of_each_kind_and_nothing_when_booked_again():
    run = ended(21_000)
    entries = charge(JOB, run, {"minimum_charge": 7, "disk": 3}, [], 30_000)
    assert [(each.kind, each.amount_nano_usd) for each in entries] == [("minimum_charge", 7), ("disk", 3)]
    assert {(each.period_start_ms, each.period_end_ms) for each in entries} == {(1000, 21_000)}
    assert charge(JOB, run, {"minimum_charge": 7, "disk": 3}, entries, 30_000) == []
    assert charge(JOB, run, {"disk": 3, "minimum_charge": 7}, [], 30_000) == entries


def test_a_machine_that_came_back_has_its_charges_corrected_and_those_no_longer_due_taken_back():
    entries = charge(JOB, ended(21_000), {"minimum_charge": 7, "disk": 3}, [], 30_000)
    entries += charge(JOB, ended(90_000), {"disk": 5}, entries, 90_000)
    assert [each.kind for each in entries] == ["minimum_charge", "disk", "correction", "correction"]
    assert total_nano_usd(entries) == 5
    assert charge(JOB, ended(90_000), {"disk": 5}, entries, 99_000) == []
    entries += charge(JOB, ended(90_000), {"disk": 4, "minimum_charge": 1}, entries, 99_000)
    assert total_nano_usd(entries) == 5


def test_a_failed_launch_is_booked_at_its_known_instant():
    never = replace(RUN, billed_from_ms=None, state="ended", end="aborted")
    (entry,) = charge(JOB, never, {"failed_launch": 9}, [], 30_000)
    assert (entry.kind, entry.period_start_ms, entry.period_end_ms) == ("failed_launch", 30_000, 30_000)
    assert charge(JOB, never, {"failed_launch": 9}, [entry], 40_000) == []


def test_a_price_learned_late_becomes_corrections_that_name_what_they_reverse():
    first = accrue(JOB, RUN, PRICES, HOUR // 2, None)
    entries = first + accrue(JOB, RUN, PRICES, HOUR, HOUR // 2)
    truth = [(0, usd("0.123456789")), (HOUR // 2, usd(2))]
    changes = restate(RUN, entries, truth, 2 * HOUR)
    assert [c.reverses for c in changes] == [entries[1].id]
    assert changes[0].kind == "correction"
    assert total_nano_usd(entries + changes) == cost_nano_usd(truth, 1000, HOUR)
    assert restate(RUN, entries + changes, truth, 3 * HOUR) == []


def test_a_machine_that_ended_earlier_than_accrued_is_credited():
    entries = accrue(JOB, RUN, PRICES, 9000, None)
    run = ended(5000)
    changes = restate(run, entries, PRICES, 10_000)
    assert changes[0].amount_nano_usd < 0
    assert total_nano_usd(entries + changes) == cost_nano_usd(PRICES, 1000, 5000)


def test_a_bill_that_agrees_needs_no_correction():
    (entry,) = accrue(JOB, RUN, PRICES, 9000, None)
    assert correction(entry, entry.amount_nano_usd, 10_000) is None
    change = correction(entry, 0, 10_000)
    assert change.amount_nano_usd == -entry.amount_nano_usd
    assert correction(entry, 0, 11_000, earlier=[change]) is None


def test_totals_by_any_key_sum_to_the_total():
    entries = accrue(JOB, ended(21_000), PRICES, 30_000, None)
    entries += charge(JOB, ended(21_000), {"minimum_charge": 7}, entries, 30_000)
    by_kind = totals(entries, "kind")
    assert list(by_kind) == ["compute", "minimum_charge"]
    assert sum(by_kind.values()) == total_nano_usd(entries)
    assert totals(entries, "project") == {"research": total_nano_usd(entries)}
