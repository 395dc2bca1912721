"""Money: what is booked while prices are unknown, and that one seed is one history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from orchestrator.engine.billing.accrue import settle
from orchestrator.engine.billing.machine_cost import machine_cost_nano_usd
from orchestrator.engine.inputs import snapshot
from orchestrator.ledger import usage_of
from orchestrator.model import CheckpointSpec, Job, Resources
from orchestrator.policy.ranking.transition_costs import transition_costs
from orchestrator.prices.recorded import import_prices
from providers.billing.charges import CHARGE_KINDS, egress_nano_usd, egress_rate, requests_nano_usd
from providers.fake import Fault
from providers.money import usd
from providers.offer import Offer
from tests.rig.wires import Delay
from tests.sim.harness import BRISK, CHEAP, EXPENSIVE, FINE_STRIDE_S, RESERVE, SimulatedInstallation, check_truth

Install = Callable[..., SimulatedInstallation]


SLOW = Delay(1.0, 1.0)


def test_a_run_on_several_machines_is_booked_although_one_of_them_ended_before_its_bill_began(
    home: SimulatedInstallation,
) -> None:
    """Calls take time, so prices are known up to the last poll only: books that waited for more would never close."""
    job = home.submit(steps=20, resources=Resources(nodes=2))
    home.wires.rate, home.wires.slow = 1.0, (SLOW,)
    home.until(lambda: bool(home.runs(job)) and home.runs(job)[-1].instance_id is not None)
    (run,) = home.runs(job)
    home.cloud.crash(run.instance_ids[0])
    home.settle()
    began = [bill.from_ms for bill in home.cloud.bills() if bill.instance_id in run.instance_ids]
    assert None in began
    assert set(began) != {None}
    check_truth(home)


def test_a_machine_that_its_provider_forgets_is_booked_until_it_was_missed(install: Install) -> None:
    home = install(behaviour=replace(BRISK, forget_s=0.5))
    job = home.submit(steps=30)
    run = home.until_step(job, 7)
    home.wires.rate, home.wires.slow = 1.0, (SLOW,)
    home.cloud.crash(home.machine(run).id)
    crashed_ms = home.clock.now_ms()
    home.settle()
    booked = home.runs(job)[0]
    assert booked.billed_to_ms is not None
    assert crashed_ms <= booked.billed_to_ms <= crashed_ms + 60_000
    entries = home.read(lambda tx: tx.entries(run_id=run.id))
    assert max(entry.period_end_ms for entry in entries) == booked.billed_to_ms


def test_nothing_is_booked_past_the_prices_that_are_known_and_all_of_it_later(home: SimulatedInstallation) -> None:
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


def test_an_imported_table_changes_no_price_at_which_a_machine_is_billed(
    home: SimulatedInstallation, tmp_path: Path
) -> None:
    job = home.submit(steps=60)
    home.until_step(job, 20)
    began_ms, now_ms = 1_699_999_000_000, home.clock.now_ms()

    def dated(at_ms: int, dollars: int) -> str:
        at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
        return f"fake,{CHEAP.region},{CHEAP.zone},{CHEAP.instance_type},V100,1,spot,{dollars},{at}"

    table = tmp_path / "table.csv"
    head = "provider,region,zone,instance_type,gpu,gpu_count,capacity_type,price_per_hour,effective_at"
    table.write_text("\n".join([head, dated(began_ms, 8), dated(now_ms - 5000, 9), dated(now_ms + 5000, 7)]) + "\n")
    found = import_prices(home.store, [table], reserved=home.installation.providers)
    assert (found.new_prices, found.files[0].flagged) == (1, {"not_its_own": 2})
    home.settle()
    check_truth(home)
    with home.store.read() as tx:
        assert tx.price_changes(CHEAP.id, 0, 2**50)[0] == (began_ms, usd("8")), "what was before is history"


def test_a_month_of_polls_that_failed_leaves_no_gap_in_the_prices(home: SimulatedInstallation) -> None:
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


def test_each_charge_of_the_bill_is_in_the_ledger_under_its_kind(home: SimulatedInstallation) -> None:
    home.stride_s = FINE_STRIDE_S
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
    assert {"compute", *CHARGE_KINDS} - {"egress_estimate"} <= {kind for _, kind in booked}
    assert home.runs(short)[-1].end == "finished"


def test_what_a_plan_counts_for_a_move_is_what_the_ledger_books_when_it_is_made(home: SimulatedInstallation) -> None:
    job = home.submit(steps=120)
    home.until_step(job, 20)
    expected = expected_there(home, job, RESERVE)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until_state(job, "finished")
    home.settle()
    _, target = home.runs(job)
    assert target.billed_from_ms is not None
    assert target.billed_to_ms is not None
    booked = Counter[str]()
    for entry in home.read(lambda tx: tx.entries(run_id=target.id)):
        booked.update({entry.kind: entry.amount_nano_usd})
    billed_s = (target.billed_to_ms - target.billed_from_ms) / 1000
    assert booked["egress"] + booked["requests"] == expected.to_get_there > 0
    assert booked["storage"] + booked["disk"] == pytest.approx(expected.storage_per_s * billed_s, abs=2)
    assert booked["storage"] > 0
    check_truth(home)


def test_what_is_known_of_checkpoints_is_reported_again_until_their_provider_has_received_it(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=60)
    home.until_step(job, 20)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.faults.inject("meter", Fault.NO_ANSWER, Fault.LOST_REPLY, Fault.THROTTLED)
    home.until_state(job, "finished")
    home.settle()
    assert not home.faults._script.get("meter")
    check_truth(home)


def test_a_budget_counts_a_checkpoint_before_its_machine_has_ended(home: SimulatedInstallation) -> None:
    job = home.submit(steps=120, checkpoint=CheckpointSpec(keep=50))
    home.until_step(job, 20)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until(lambda: (run := home.current(job)) is not None and run.offer_id == RESERVE.id)
    home.run_for(30)
    with home.store.read() as tx:
        _, run = tx.runs(job_id=job.id)
        known = machine_cost_nano_usd(tx, run, home.clock.now_ms())
        without = machine_cost_nano_usd(tx, replace(run, moved_bytes=None, kept_bytes=None), home.clock.now_ms())
    usage = usage_of(run)
    assert usage is not None
    moved = egress_nano_usd(egress_rate(usage.moved_from, usage.at), usage.moved_bytes)
    assert known - without > moved + requests_nano_usd(usage.moved_from, usage.at, usage.moved_bytes) > moved > 0


class Expected(NamedTuple):
    to_get_there: int
    storage_per_s: float


def expected_there(home: SimulatedInstallation, job: Job, offer: Offer) -> Expected:
    """What a plan made now counts for the job's checkpoints, were it to move to this offer."""
    with home.store.read() as tx:
        inputs = snapshot.inputs(tx, home.clock.now_ms(), home.config, only=[job.id])
    (demand,), market, running = inputs.demands, inputs.market, inputs.running[job.id]
    counted = transition_costs(demand, market, running, market.row(running.offer_id), 5.0)
    row = market.row(offer.id)
    assert row is not None
    site = int(market.listing.site[row])
    return Expected(int(counted.egress[site]), float(counted.storage_s[site]))


def history(home: SimulatedInstallation) -> list[str]:
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


def test_accrual_writes_few_rows(home: SimulatedInstallation) -> None:
    job = home.submit(steps=900)
    home.settle(limit_s=1200.0, stride_s=6.0)
    entries = home.read(lambda tx: tx.entries(job_id=job.id))
    assert sum(each.kind == "compute" for each in entries) <= 4
    assert max(Counter(each.kind for each in entries if each.kind != "compute").values()) == 1
    assert EXPENSIVE.id not in {run.offer_id for run in home.runs(job)}
    check_truth(home)


def test_a_machine_that_turns_out_to_have_ended_at_once_costs_no_time(home: SimulatedInstallation) -> None:
    """Its provider said so only after some of its time had been booked."""
    job = home.submit(steps=2000)
    run = home.until_step(job, 20)
    home.until(lambda: any(entry.kind == "compute" for entry in home.read(lambda tx: tx.entries(run_id=run.id))))
    with home.store.write() as tx:
        tx.update_run(run.id, end="aborted", state="ended")
    ctx = home.plane._ctx
    at_once = [replace(each, billed_to_ms=each.billed_from_ms) for each in run.machines]
    assert settle(ctx.installation, ctx.leadership, home.read(lambda tx: tx.run(run.id)), at_once)
    entries = home.read(lambda tx: tx.entries(run_id=run.id))
    assert sum(each.amount_nano_usd for each in entries if each.kind == "compute" or each.reverses is not None) == 0
