"""Money: what is booked while prices are unknown, and that one seed is one history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from providers.fake import Fault
from providers.money import usd
from tests.sim.harness import BRISK, CHEAP, DEAR, RESERVE, Installation, check_truth

Install = Callable[..., Installation]


def test_nothing_is_booked_past_the_prices_that_are_known_and_all_of_it_later(home: Installation) -> None:
    job = home.submit(steps=250)
    home.until_step(job, 10)
    polled_ms = home.read(lambda tx: tx.last_good_poll_ms("fake"))
    home.faults.inject("offers", *[Fault.NO_ANSWER] * 1000)
    for minute in range(3):
        home.cloud.set_price(CHEAP.id, usd(f"1.{minute}"))
        home.run_for(50)
    entries = home.read(lambda tx: tx.entries())
    assert polled_ms is not None
    assert all(entry.period_end_ms <= polled_ms for entry in entries)
    home.until_state(job, "finished")
    home.run_for(10)
    assert home.read(lambda tx: [run for run in tx.unsettled_runs() if run.end == "finished"])
    home.faults._script.clear()
    home.settle()
    check_truth(home)


def test_a_month_of_polls_that_failed_leaves_no_gap_in_the_prices(home: Installation) -> None:
    home.submit(steps=60)
    home.run_for(20)
    with home.store.write() as tx:
        for _ in range(200):
            tx.record_poll("fake", home.clock.now_ms(), home.clock.now_ms(), 0, 0, "no answer")
    home.cloud.set_price(CHEAP.id, usd("5.00"))
    home.clock.advance(3)
    home.cloud.set_price(CHEAP.id, usd("1.00"))
    home.settle()
    check_truth(home)


def test_each_charge_of_the_bill_is_in_the_ledger_under_its_kind(home: Installation) -> None:
    moved, short, never = home.submit("moved", steps=120), home.submit("short", steps=2), home.submit("never")
    home.until(lambda: bool(home.cloud.instances()))
    home.ask("cancel", never)
    home.until_step(moved, 5)
    home.ask("migrate", moved, offer_id=RESERVE.id)
    home.settle()
    check_truth(home)
    billed: Counter[tuple[str, str]] = Counter()
    for bill in home.cloud.bills():
        run_id = bill.tags["tradewind-run"]
        billed.update({(run_id, "compute"): bill.machine_nano_usd})
        billed.update({(run_id, kind): amount for kind, amount in bill.charges.items()})
    booked: Counter[tuple[str, str]] = Counter()
    for entry in home.read(lambda tx: tx.entries()):
        booked.update({(entry.run_id, entry.kind): entry.amount_nano_usd})
    assert booked == billed
    assert {"compute", "minimum_charge", "disk", "failed_launch"} <= {kind for _, kind in booked}
    assert home.runs(short)[-1].end == "finished"


def history(home: Installation) -> list[str]:
    """A job that is moved and one that loses its machine, on a cloud with drifting prices and faults."""
    moved, lost = home.submit("moved", steps=40), home.submit("lost", steps=30)
    home.faults.inject("launch", Fault.LOST_REPLY, None, Fault.CAPACITY)
    home.until_step(moved, 5)
    home.ask("migrate", moved, offer_id=RESERVE.id)
    home.cloud.crash(home.machine(home.until_step(lost, 9)).id)
    home.settle()
    check_truth(home)
    entries = home.read(lambda tx: tx.entries())
    return home.story() + [f"{e.run_id} {e.period_end_ms} {e.kind} {e.amount_nano_usd}" for e in entries]


def test_one_seed_is_one_history(install: Install) -> None:
    drifting = replace(BRISK, drift_s=60.0)
    one, same, other = (history(install(seed=seed, behaviour=drifting)) for seed in (7, 7, 8))
    assert one == same
    assert one != other


def test_the_duty_of_accrual_writes_few_rows(home: Installation) -> None:
    job = home.submit(steps=900)
    home.settle(limit_s=1200.0, stride_s=6.0)
    assert len(home.read(lambda tx: tx.entries(job_id=job.id))) <= 5
    assert DEAR.id not in {run.offer_id for run in home.runs(job)}
    check_truth(home)
