"""However the books of a run came to be wrong, amending them once makes them right, and a second time adds nothing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger import accrue, amend, total_nano_usd, twice_booked
from orchestrator.model import Entry
from providers.money import cost_nano_usd
from tests.property.test_money_laws import JOB, RUN, price_paths

instants = st.integers(0, 10**8)
periods = st.lists(st.tuples(instants, instants, st.integers(-(10**15), 10**15)), max_size=6)


def booked(number: int, begin: int, end: int, amount: int) -> Entry:
    return Entry(f"ent_{number}", RUN.id, JOB.id, begin, end, "compute", amount, "estimated", RUN.offer_id, end)


@given(price_paths(), periods, st.tuples(instants, instants))
def test_any_books_of_a_closed_run_are_made_right_by_new_entries_and_stay_so(path, written, billed):
    run = replace(RUN, billed_from_ms=min(billed), billed_to_ms=max(billed))
    entries = [booked(n, min(a, b), max(a, b), amount) for n, (a, b, amount) in enumerate(written)]
    fresh = amend(JOB, run, entries, path, 10**9)
    assert total_nano_usd(entries + fresh) == cost_nano_usd(path, min(billed), max(billed))
    assert amend(JOB, run, entries + fresh, path, 2 * 10**9) == []
    assert len({entry.id for entry in entries + fresh}) == len(entries + fresh)
    keys = {(entry.period_start_ms, entry.kind, entry.reverses) for entry in fresh}
    assert len(keys) == len(fresh)


@given(price_paths(), price_paths(), st.lists(instants, min_size=2, max_size=6, unique=True))
def test_what_was_corrected_can_be_corrected_again(believed, truth, cuts):
    start, *rest = sorted(cuts)
    run = replace(RUN, billed_from_ms=start, billed_to_ms=rest[-1])
    entries, last = [], None
    for upto in rest:
        entries += accrue(JOB, run, believed, upto, last)
        last = upto
    for at_ms, path in ((10**9, truth), (2 * 10**9, believed), (3 * 10**9, truth)):
        fresh = amend(JOB, run, entries, path, at_ms)
        corrected = [entry.reverses for entry in entries if entry.reverses]
        assert not {entry.reverses for entry in fresh} & set(corrected)  # each row is corrected once
        entries += fresh
        assert total_nano_usd(entries) == cost_nano_usd(path, start, rest[-1])


@given(price_paths(), st.lists(instants, min_size=3, max_size=3, unique=True))
def test_a_time_that_was_booked_twice_is_paid_once_also_while_the_machine_lives(path, cuts):
    start, middle, end = sorted(cuts)
    run = replace(RUN, billed_from_ms=start)
    (whole,) = accrue(JOB, run, path, end, None)
    (again,) = accrue(JOB, run, path, end, middle)
    assert twice_booked(again, end, [whole, again])
    fresh = amend(JOB, run, [whole, again], path, end)
    assert total_nano_usd([whole, again, *fresh]) == cost_nano_usd(path, start, end)
    assert not twice_booked(again, end, [whole, again, *fresh])
