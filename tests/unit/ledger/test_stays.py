"""Which of a job's billed time machines that are never reclaimed would have billed, and what that would cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.ledger import Inputs, Part, Stay, baseline_nano_usd, carried_nano_usd, elsewhere, stays
from orchestrator.model import Entry, Run
from providers.billing.charges import GB, RateCard, disk_nano_usd
from providers.money import usd

HOUR = 3_600_000
SPOT, ON_DEMAND = "c/r/z/t/spot", "c/r/z/t/on_demand"


def run(number: int, offer_id: str, begin_h: float, trained_h: float, stopped_h: float, end_h: float, end: str) -> Run:
    """Begins to be billed, to train, stops to train and to be billed at these hours; saves nothing, repeats nothing."""
    begin, trained, stopped, ended = (int(each * HOUR) for each in (begin_h, trained_h, stopped_h, end_h))
    return Run(
        f"run_{number}", "job_1", number, offer_id, "i", "ended", begin, begin, ended, trained, stopped, end,
        last_step=number, step_wall_s=3.6, useful_s=(stopped - trained) / 1000,
    )  # fmt: skip


def hours(*runs: Run) -> list[list[float]]:
    """Of each stay, what counts of each of its runs."""
    return [[(part.kept_ms + part.worked_ms) / HOUR for part in stay.parts] for stay in stays(runs, {}, factor=1.0)]


def test_one_run_counts_whole() -> None:
    assert hours(run(1, SPOT, 0, 1, 5, 6, "finished")) == [[6]]


@pytest.mark.parametrize("end", ["preempted", "lost", "moved"])
def test_what_a_loss_or_a_move_added_does_not_count(end: str) -> None:
    first, second = run(1, SPOT, 0, 1, 5, 6, end), run(2, SPOT, 7, 9, 12, 14, "finished")
    again = replace(second, repeated_steps=1000)  # an hour of 3.6 s each
    assert hours(first, second) == [[5, 5]]
    assert hours(first, again) == [[5, 4]]


@pytest.mark.parametrize("end", ["paused", "failed"])
def test_what_would_have_come_on_any_machine_counts(end: str) -> None:
    first, second = run(1, SPOT, 0, 1, 5, 6, end), run(2, SPOT, 7, 9, 12, 14, "finished")
    again = replace(second, repeated_steps=1000)
    assert hours(first, again) == [[6], [7]]
    assert [stay.from_ms for stay in stays([first, again], {}, factor=1.0)] == [0, 7 * HOUR]


def test_the_loss_of_an_on_demand_machine_is_not_a_preemption() -> None:
    assert hours(run(1, ON_DEMAND, 0, 1, 5, 6, "lost"), run(2, ON_DEMAND, 7, 9, 12, 14, "finished")) == [[6], [7]]


def test_attempts_that_never_trained_do_not_count() -> None:
    never = replace(run(1, SPOT, 0, 0, 0, 2, "aborted"), training_from_ms=None)
    given_up = run(2, SPOT, 0, 1, 2, 3, "aborted")
    assert hours(never, given_up, run(3, SPOT, 4, 5, 6, 7, "finished")) == [[3]]


def test_a_spare_that_waited_counts_from_when_it_was_wanted() -> None:
    first = run(1, SPOT, 0, 1, 5, 5, "preempted")
    standby = replace(run(2, SPOT, 0, 6, 9, 9, "finished"), created_at_ms=5 * HOUR)
    assert hours(first, standby) == [[5, 3]]


def test_a_run_that_lives_counts_up_to_what_is_booked_of_it() -> None:
    living = replace(run(1, SPOT, 0, 1, 9, 9, "finished"), end=None, billed_to_ms=None, training_to_ms=None)
    (stay,) = stays([living], {living.id: 4 * HOUR}, factor=1.0)
    assert (stay.parts[0].kept_ms + stay.parts[0].worked_ms, stay.ended) == (4 * HOUR, False)
    (nothing,) = stays([living], {}, factor=1.0)
    assert nothing.parts[0].kept_ms + nothing.parts[0].worked_ms == 0


def test_a_slower_machine_takes_longer_for_the_work_and_not_for_the_rest() -> None:
    (stay,) = stays([run(1, SPOT, 0, 1, 5, 6, "finished")], {}, factor=1.0)
    there = elsewhere([stay], lambda part: ("d/r/z/t/on_demand", 2.5))
    inputs = Inputs(there, {"d/r/z/t/on_demand": ((0, usd(1)), (6 * HOUR, usd(3)))}, {}, 0)
    assert baseline_nano_usd(inputs) == usd(6) + usd(3) * 6  # 2 h that are kept, 4 h of work made 10
    assert there[0].parts[0].run_id == "run_1"


def test_machines_follow_one_another_and_each_bills_its_disk_and_its_shortest_time() -> None:
    card = RateCard("", minimum_ms=2 * HOUR, disk_bytes=GB, disk_nano_usd_per_gb_month=usd(1))
    parts = (Part("a", "c/1", HOUR, 0), Part("b", "c/1", HOUR, 0), Part("c", "d/2", HOUR, 0))
    prices = {"c/1": ((0, usd(1)),), "d/2": ((0, usd(9)), (2 * HOUR, usd(2)), (3 * HOUR, usd(7)))}
    disk = disk_nano_usd(card, 0, 2 * HOUR) + disk_nano_usd(card, 0, HOUR)
    cards = {"c": card, "d": card}
    assert baseline_nano_usd(Inputs((Stay(0, True, parts),), prices, cards, 5)) == usd(2) + usd(4) + disk + 5
    assert baseline_nano_usd(Inputs((Stay(0, False, parts),), prices, cards, 5)) == usd(2) + usd(2) + 5  # not yet


def test_without_a_price_at_the_beginning_there_is_no_cost() -> None:
    inputs = Inputs((Stay(0, True, (Part("a", "c/1", HOUR, 0),)),), {"c/1": ((1, usd(1)),)}, {}, 0)
    with pytest.raises(ValueError, match="no price of c/1 is known at 0"):
        baseline_nano_usd(inputs)


def test_charges_that_any_machine_brings_are_carried_over_with_their_corrections() -> None:
    first, second = run(1, SPOT, 0, 1, 5, 6, "preempted"), run(2, SPOT, 7, 9, 12, 14, "finished")

    def entry(number: int, of: Run, kind: str, amount: int, reverses: str | None = None) -> Entry:
        return Entry(f"ent_{number}", of.id, "job_1", 0, 1, kind, amount, "billed", SPOT, 1, reverses)

    booked = [
        entry(1, first, "compute", 1000),
        entry(2, first, "disk", 1000),
        entry(3, first, "egress", 1),  # of the only start that it would have had
        entry(4, second, "egress", 1000),
        entry(5, second, "storage", 20),
        entry(6, second, "correction", -3, "ent_5"),
        entry(7, second, "correction", 400, "ent_4"),
        entry(8, second, "correction", 1, "ent_6"),
        entry(9, second, "requests", 1000),
    ]
    assert carried_nano_usd([first, second], booked) == 1 + 20 - 3 + 1
