"""What a job saved: worked out once, when its books close, and never moved; provisional before that."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from orchestrator.cli.render import render
from orchestrator.cli.render.text import Screen
from orchestrator.engine.billing.comparisons import conclude
from orchestrator.formats.documents import to_json
from orchestrator.installation import Installation
from orchestrator.ledger import Comparison
from orchestrator.model import Entry
from orchestrator.reports.html import page
from orchestrator.reports.report import report
from orchestrator.reports.savings import compared
from orchestrator.reports.savings_csv import savings_csv
from orchestrator.reports.views import JobReport
from orchestrator.services.store.check import check
from orchestrator.services.store.ledger_correction import correct
from orchestrator.store import Store
from providers.billing.charges import disk_nano_usd, rate_card
from providers.clock import VirtualClock
from providers.money import format_usd
from providers.price import PricePoint
from tests import reconciled
from tests.unit.services.recorded_history import HOUR_MS, ME, ON_DEMAND, Past, spec, submit_job

HOUR_S = HOUR_MS / 1000


def of(installation: Installation, name: str) -> JobReport:
    return report(installation, name).jobs[0]


def test_a_finished_jobs_savings_stay_whatever_is_measured_booked_or_priced_later(
    installation: Installation, past: Past, clock: VirtualClock
) -> None:
    before = of(installation, "gpt")
    assert (before.provisional, before.version) == (False, 1)
    fourth = submit_job(installation, "fourth")
    with installation.store.write() as tx:
        tx.add_perf(fourth.id, "V100", 1, 900.0, 10**6, clock.now_ms())  # the same program, faster than gpt was
        tx.add_perf(past.gpt, "V100", 1, 500.0, 10**6, clock.now_ms())
        for offer in tx.offers():
            tx.add_prices([PricePoint(offer.id, 7, past.start_ms + 1, clock.now_ms(), "learned late")])
            tx.add_prices([PricePoint(offer.id, 9, clock.now_ms(), clock.now_ms(), "today")])
    clock.advance(100 * HOUR_S)
    after = of(installation, "gpt")
    assert after.compared == before.compared
    assert (after.paid_nano_usd, after.version, after.compared_at_ms) == (
        before.paid_nano_usd,
        1,
        before.compared_at_ms,
    )


def test_staying_on_the_same_machine_costs_no_second_start_and_no_work_twice(
    installation: Installation, past: Past
) -> None:
    """Runs of 1.0, 0.9 and 1.0 h; the later two had a start of 0.1 h each, and the second repeated 20 s of work."""
    cell = of(installation, "gpt").against("same_machine")
    there = (ON_DEMAND, ON_DEMAND.replace("alpha", "beta"))
    with installation.store.read() as tx:
        first, second = (tx.price_changes(each, past.start_ms, past.start_ms + 1)[0][1] for each in there)
    assert cell.offer_ids == there
    alpha_ms, beta_ms = 18 * HOUR_MS // 10 - 20_000, 9 * HOUR_MS // 10
    disks = sum(disk_nano_usd(rate_card("fake"), 0, each) for each in (alpha_ms, beta_ms))
    assert cell.baseline_nano_usd == first * alpha_ms // HOUR_MS + second * beta_ms // HOUR_MS + disks


def test_a_job_that_runs_is_labelled_provisional_on_every_surface(installation: Installation, past: Past) -> None:
    view = report(installation)
    conv = next(row for row in view.jobs if row.job.name == "conv")
    assert (conv.provisional, conv.version) == (True, None)
    assert conv.verdict.startswith("provisional: saved $")
    line = next(each for each in render(view, Screen()).splitlines() if each.startswith("conv  "))
    assert line.endswith("provisional")
    assert to_json(view)["jobs"][view.jobs.index(conv)]["provisional"] is True
    assert "<td>provisional</td>" in page(view)
    rows = [row for row in csv.DictReader(io.StringIO(savings_csv(view.jobs))) if row["name"] == "conv"]
    assert {row["standing"] for row in rows} == {"provisional"}


def test_a_job_without_a_step_is_left_out_by_name_and_with_the_reason_on_every_surface(
    installation: Installation, past: Past
) -> None:
    view = report(installation)
    for total in view.totals:
        assert [(each.name, each.reason) for each in total.left_out] == [("lstm", "no step was recorded")]
    assert "lstm: left out of every comparison: no step was recorded" in render(view, Screen())
    assert "left out: no step was recorded" in page(view)
    assert "lstm" in {row["name"] for row in csv.DictReader(io.StringIO(savings_csv(view.jobs))) if row["left_out"]}
    assert to_json(view)["totals"][0]["left_out"][0]["name"] == "lstm"
    reconciled.check(view)


def test_the_cost_of_a_failed_job_counts_and_no_saving_is_claimed(installation: Installation, past: Past) -> None:
    before = report(installation)
    with installation.store.write() as tx:
        tx.set_job_state(past.conv, "failed")
    view = report(installation)
    assert view.paid_nano_usd == before.paid_nano_usd
    for total in view.totals:
        assert ("conv", "the job failed") in [(each.name, each.reason) for each in total.left_out]
    assert "conv: left out of every comparison: the job failed" in render(view, Screen())
    reconciled.check(view)


def test_each_baseline_is_defined_in_words_next_to_its_number(installation: Installation, past: Past) -> None:
    view = report(installation)
    assert len({total.definition for total in view.totals}) == len(view.totals) == 3
    for total in view.totals:
        for text in (render(view, Screen()), page(view), savings_csv(view.jobs)):
            assert total.definition in text


def test_a_correction_makes_another_version_with_its_reason_and_the_older_stays(
    installation: Installation, past: Past, clock: VirtualClock
) -> None:
    first = of(installation, "gpt")
    with installation.store.write() as tx:
        last = tx.entries(run_id=past.runs[2])[-1]
        tx.add_entries([replace(last, id="ent_wrong", kind="correction", reverses=last.id, amount_nano_usd=-(10**9))])
    unsettled = of(installation, "gpt")  # before the next tick
    assert unsettled.provisional
    assert unsettled.paid_nano_usd == first.paid_nano_usd - 10**9
    correct(installation, "it was no refund", caller=ME)
    second = of(installation, "gpt")
    assert (second.provisional, second.version) == (False, 2)
    assert second.paid_nano_usd == first.paid_nano_usd
    assert second.corrected == "booked after the books had closed: correction $0.000000 (it was no refund)"
    assert "gpt: version 2, booked after the books had closed" in render(report(installation), Screen())
    with installation.store.read() as tx:
        versions = tx.comparisons(past.gpt, all_versions=True)
    assert [each.version for each in versions] == [1, 1, 1, 2, 2, 2]
    assert [each.baseline_nano_usd for each in versions[:3]] == [each.baseline_nano_usd for each in first.compared]
    reconciled.check(report(installation))


def test_a_charge_that_comes_late_keeps_the_machines_and_the_speeds_of_the_first_version(
    installation: Installation, past: Past, clock: VirtualClock
) -> None:
    first = of(installation, "gpt")
    with installation.store.write() as tx:
        last = tx.entries(run_id=past.runs[2])[-1]
        late = Entry(
            "ent_late", last.run_id, last.job_id, last.period_end_ms, last.period_end_ms + 1, "disk", 5 * 10**8,
            "billed", last.offer_id, clock.now_ms(),
        )  # fmt: skip
        tx.add_entries([late])
        tx.add_perf(past.gpt, "V100", 1, 500.0, 10**6, clock.now_ms())
        assert conclude(installation, tx, past.gpt)
        assert not conclude(installation, tx, past.gpt)
    second = of(installation, "gpt")
    assert second.corrected == "booked after the books had closed: disk $0.500000"
    for before, after in zip(first.compared, second.compared, strict=True):
        assert after.paid_nano_usd == before.paid_nano_usd + 5 * 10**8
        assert after.baseline_nano_usd == before.baseline_nano_usd
        assert (after.offer_ids, after.speed) == (before.offer_ids, before.speed)


def test_a_job_whose_speed_was_not_measured_is_compared_with_no_other_kind_of_machine(
    installation: Installation, past: Past
) -> None:
    with installation.store.write() as tx:
        tx.set_job_facts(past.conv, baseline_offer_id=_other_kind(installation))
    same, at_submission, hindsight = of(installation, "conv").compared
    assert same.baseline_nano_usd is not None
    assert at_submission.left_out == "its speed was not measured"
    assert hindsight.baseline_nano_usd is not None  # where it ran
    reconciled.check(report(installation))


def _other_kind(installation: Installation) -> str:
    with installation.store.read() as tx:
        return next(each.id for each in tx.offers() if each.gpu != "V100" and not each.spot)


def test_a_negative_saving_is_reported(installation: Installation, past: Past) -> None:
    with installation.store.write() as tx:
        last = tx.entries(run_id=past.runs[2])[-1]
        fee = replace(last, id="ent_fee", kind="disk", amount_nano_usd=10**11, period_start_ms=last.period_end_ms)
        tx.add_entries([fee])
    gpt = of(installation, "gpt")
    assert gpt.against("same_machine").saved_nano_usd is not None
    assert gpt.against("same_machine").verdict.startswith("cost $96.")
    assert gpt.against("same_machine").verdict.endswith("more than same machine on demand: migrating saved nothing")
    reconciled.check(report(installation))


@pytest.mark.parametrize("baseline", [0, -(10**9)])
def test_a_refund_that_leaves_nothing_to_compare_with_is_shown_without_a_share(baseline: int) -> None:
    paid = -(2 * 10**9)
    said = compared(Comparison("job", 1, "same_machine", 0, "", paid, 1, baseline, "", None), ())
    assert said.verdict == f"saved {format_usd(baseline - paid)} compared with same machine on demand"


def test_a_comparison_that_does_not_follow_from_its_inputs_is_reported_by_the_check(
    installation: Installation, past: Past
) -> None:
    def checked() -> str:
        return next(each.state for each in check(installation.config).checks if each.name == "comparisons")

    assert checked() == "ok"
    with installation.store.write() as tx:
        kept = [each for each in tx.comparisons(past.gpt) if each.baseline_nano_usd is not None]
        tx.add_comparisons([replace(kept[0], version=2, baseline_nano_usd=1)])
    assert checked() == "fail"


def test_a_run_that_cannot_be_read_leaves_its_job_out_of_the_provisional_report_and_nothing_is_kept(
    installation: Installation, past: Past
) -> None:
    with installation.store.write() as tx:
        tx._connection.exec_driver_sql("UPDATE run SET last_step = 'x' WHERE id = 'run_4'")
    view = report(installation)
    conv = next(row for row in view.jobs if row.job.name == "conv")
    assert conv.provisional
    assert {cell.left_out.partition(":")[0] for cell in conv.compared} == {"one of its runs cannot be read"}
    reconciled.in_the_view(view)


def test_many_jobs_reconcile_together(installation: Installation, past: Past, store_of_many: int) -> None:
    view = report(installation)
    assert len(view.jobs) == store_of_many + 3
    reconciled.check(view)


@pytest.fixture
def store_of_many(installation: Installation, past: Past) -> int:
    """Copies of what gpt did, cut short in different ways."""
    count = 12
    store: Store = installation.store
    with store.write() as tx:
        runs = tx.runs(job_id=past.gpt)
        booked = tx.entries(job_id=past.gpt)
        gpt = tx.job(past.gpt)
        for number in range(count):
            job = replace(gpt, id=f"job_{number}", spec=spec(f"copy {number}"), state="queued")
            tx.add_job(job)
            tx.set_job_facts(job.id, baseline_offer_id=ON_DEMAND if number % 2 else None)
            for run in runs[: number % 4]:
                run_id = f"{run.id}_{number}"
                tx.add_run(replace(run, id=run_id, job_id=job.id, last_step=run.last_step if number % 5 else 0))
                own = [each for each in booked if each.run_id == run.id]
                tx.add_entries(replace(each, id=f"{each.id}_{number}", run_id=run_id, job_id=job.id) for each in own)
            tx.set_job_state(job.id, ("finished", "failed", "cancelled", "running")[number % 4])
            conclude(installation, tx, job.id)
    return count
