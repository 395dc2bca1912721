"""The sums that the store keeps are those of the ledger's entries, whatever is booked and however it is amended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.billing.machine_cost import machine_cost_nano_usd
from orchestrator.ledger import accrue, amend, total_nano_usd
from orchestrator.model import Entry, JobSpec
from orchestrator.store import Store, Tx
from providers.clock import VirtualClock
from providers.money import cost_nano_usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint
from tests.property.test_money_laws import JOB, RUN, price_paths
from tests.rig import train_spec

instants = st.integers(0, 10**8)
OFFER = Offer("acme", "r", "z", "t", "V100", 1, 8, 2**30, CapacityType.SPOT)
WORK = replace(JOB, spec=JobSpec("job", train_spec(10)))


class Undone(Exception):
    """Leaves the store as it was."""


@contextmanager
def undone(store: Store) -> Iterator[Tx]:
    """A transaction of which nothing stays."""
    with suppress(Undone), store.write() as tx:
        yield tx
        raise Undone


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder: Path = tmp_path_factory.mktemp("sums")
    opened = Store.open(f"sqlite:///{folder}/tradewind.db", VirtualClock())
    with opened.write() as tx:
        tx.add_job(WORK)
        tx.put_offers("acme", [OFFER])
    yield opened
    opened.close()


def brute_force(tx: Tx) -> dict[tuple[str, str, str], tuple[int, int]]:
    """(entries, nano-USD) by job, run and kind, read from the entries."""
    found: dict[tuple[str, str, str], tuple[int, int]] = {}
    for entry in tx.entries():
        key = (entry.job_id, entry.run_id, entry.kind)
        count, amount = found.get(key, (0, 0))
        found[key] = (count + 1, amount + entry.amount_nano_usd)
    return found


@settings(max_examples=30)
@given(price_paths(), price_paths(), st.lists(instants, min_size=3, max_size=6, unique=True))
def test_kept_sums_are_those_of_the_entries_also_when_they_are_amended(store, believed, truth, cuts):
    cuts = sorted(cuts)
    run = replace(RUN, job_id=WORK.id, billed_from_ms=cuts[0], billed_to_ms=None)
    other = replace(run, id="run_other", generation=run.generation + 1, billed_from_ms=cuts[1])
    with undone(store) as tx:
        written: list[Entry] = []
        for each in (run, other):
            tx.add_run(each)
            for begin, end in pairwise(each_cut for each_cut in cuts if each_cut >= (each.billed_from_ms or 0)):
                fresh = accrue(WORK, each, believed, end, None if begin == each.billed_from_ms else begin)
                tx.add_entries(fresh)
                written += fresh
        mine = [entry for entry in written if entry.run_id == run.id]
        tx.add_entries(amend(WORK, replace(run, billed_to_ms=cuts[-2]), mine, truth, 10**9))
        sums = {(each.job_id, each.run_id, each.kind): each[3:] for each in tx.ledger_sums([WORK.id])}
        assert sums == brute_force(tx)
        assert tx.total_nano_usd() == tx.total_nano_usd(WORK.id) == total_nano_usd(tx.entries())
        assert tx.total_nano_usd(WORK.id, run.id) == total_nano_usd(tx.entries(run_id=run.id))
        assert tx.unequal_sums() == []


@settings(max_examples=30)
@given(price_paths(), st.lists(instants, min_size=2, max_size=5, unique=True), instants)
def test_what_a_machine_has_cost_is_its_price_times_its_time_booked_or_not(store, path, cuts, later):
    """Of one that lives and is booked up to a point, and of one whose books are closed."""
    start, *rest = sorted(cuts)
    run = replace(RUN, job_id=WORK.id, offer_id=OFFER.id, billed_from_ms=start, billed_to_ms=None)
    end = rest[-1] + later
    with undone(store) as tx:
        tx.add_prices([PricePoint(OFFER.id, price, at_ms, at_ms, "test") for at_ms, price in path])
        tx.add_run(run)
        last = None
        for upto in rest:
            tx.add_entries(accrue(WORK, run, path, upto, last))
            last = upto
        assert machine_cost_nano_usd(tx, run, end) == cost_nano_usd(path, start, end)
        closed = replace(run, billed_to_ms=rest[-1])
        assert machine_cost_nano_usd(tx, closed, end) == cost_nano_usd(path, start, rest[-1])


def test_a_sum_that_is_not_that_of_its_entries_is_found(store: Store) -> None:
    with undone(store) as tx:
        tx.add_run(replace(RUN, job_id=WORK.id))
        entry = Entry("ent", RUN.id, WORK.id, 0, 1000, "compute", 7, "estimated", OFFER.id, 1)
        tx.add_entries([entry])
        assert tx.unequal_sums() == []
        tx._connection.exec_driver_sql("UPDATE ledger_sum SET amount_nano_usd = 8")
        assert tx.unequal_sums() == [f"compute of {RUN.id}"]
