"""What a job will still cost and take: one forecast on every surface, and none for a job that was never measured."""

from __future__ import annotations

import dataclasses
import re

import pytest

from orchestrator.cli.render.screens.decisions import decision
from orchestrator.cli.render.screens.jobs import queue, status
from orchestrator.cli.render.screens.plans import plan as rendered
from orchestrator.cli.render.text import Screen
from orchestrator.formats.documents import to_json
from orchestrator.installation import Installation
from orchestrator.model import TrainSpec
from orchestrator.reports.html.page import page
from orchestrator.reports.report import report
from orchestrator.services.jobs import current, plan, submit
from orchestrator.services.views import JobView
from providers.money import usd
from tests.unit.services.recorded_history import ME, Past, spec, submit_job


def everywhere(installation: Installation, job_id: str) -> list[JobView]:
    """The job as queue, status and report have it."""
    listed = next(each for each in current.jobs(installation, ended=True).jobs if each.id == job_id)
    reported = next(row.job for row in report(installation).jobs if row.job.id == job_id)
    return [listed, current.status(installation, job_id).job, reported]


@pytest.mark.parametrize("name", ["conv", "lstm"])
def test_queue_status_and_report_say_of_a_job_what_its_plan_says(
    installation: Installation, past: Past, name: str
) -> None:
    job_id = getattr(past, name)
    planned = next(each for each in plan.preview(installation, [], all_jobs=True).decisions if each.job_id == job_id)
    seen = everywhere(installation, job_id)
    assert len({(each.forecast, each.to_go, each.no_forecast) for each in seen}) == 1
    forecast = seen[0].forecast
    assert forecast is not None
    assert forecast.cost_nano_usd == planned.cost_nano_usd
    assert planned.finish_at_ms is not None
    assert forecast.at_ms + round(forecast.duration_s * 1000) == planned.finish_at_ms
    assert forecast.cost_low_nano_usd <= forecast.cost_nano_usd <= forecast.cost_high_nano_usd
    assert forecast.duration_low_s <= forecast.duration_s <= forecast.duration_high_s
    assert forecast.evidence == planned.evidence
    assert seen[0].no_forecast == ""
    assert seen[0].to_go.startswith("$")


def test_the_range_of_the_time_to_go_has_the_unit_of_the_time(installation: Installation, past: Past) -> None:
    view = current.status(installation, past.conv)
    assert view.job.forecast is not None
    times = {"duration_low_s": 4320.0, "duration_s": 4680.0, "duration_high_s": 5040.0}
    job = dataclasses.replace(view.job, forecast=dataclasses.replace(view.job.forecast, **times))
    shown = status(dataclasses.replace(view, job=job), Screen())
    assert re.search(r"to go .*, 78 min \(\S+ to \S+, 72 min to 84 min, p5-p95\)", shown)


def test_an_interval_whose_ends_read_alike_is_not_shown(installation: Installation, past: Past) -> None:
    view = current.status(installation, past.conv)
    assert view.job.forecast is not None
    times = {"duration_low_s": 355.0, "duration_s": 360.0, "duration_high_s": 362.0}
    money = {"cost_low_nano_usd": 10**9, "cost_nano_usd": 10**9, "cost_high_nano_usd": 10**9 + 1}
    narrowed = dataclasses.replace(view.job.forecast, **times, **money)
    job = dataclasses.replace(view.job, forecast=narrowed)
    assert "p5-p95" not in status(dataclasses.replace(view, job=job), Screen())
    wider = dataclasses.replace(narrowed, cost_high_nano_usd=2 * 10**9)
    shown = status(dataclasses.replace(view, job=dataclasses.replace(job, forecast=wider)), Screen())
    assert "($1.00 to $2.00, p5-p95)" in shown
    planned = plan.preview(installation, [], all_jobs=True)
    decided = next(each for each in planned.decisions if each.job_id == past.lstm)
    choices = tuple(dataclasses.replace(each, **times, **money) for each in decided.choices)
    narrow = dataclasses.replace(decided, choices=choices, deadline_at_ms=None)
    shown = rendered(dataclasses.replace(planned, decisions=(narrow,)), Screen())
    assert "finish" in shown
    assert "90%" not in shown
    assert "p5-p95" not in decision(narrow, Screen())


def test_an_unmeasured_job_has_no_forecast_and_every_surface_says_the_same(
    installation: Installation, past: Past
) -> None:
    train = dataclasses.replace(spec().train, args={"of": "a program that never ran"})
    unknown = submit_job(installation, "unknown", expected=None, train=train)
    for seen in everywhere(installation, unknown.id):
        assert (seen.forecast, seen.no_forecast, seen.to_go) == (None, "not measured yet", "not measured yet")
        answer = to_json(seen)
        assert (answer["forecast"], answer["no_forecast"]) == (None, "not measured yet")
    decided = plan.preview(installation, [], all_jobs=True).decisions
    assert next(each for each in decided if each.job_id == unknown.id).throughput_source == "not measured yet"
    assert "to go: not measured yet; " in page(report(installation))


def test_a_job_that_has_ended_or_is_paused_says_so_instead(installation: Installation, past: Past) -> None:
    for seen in everywhere(installation, past.gpt):
        assert (seen.forecast, seen.no_forecast, seen.to_go) == (None, "it has ended", "")
    with installation.store.write() as tx:
        tx.set_job_state(past.conv, "paused")
    assert {each.to_go for each in everywhere(installation, past.conv)} == {"it is paused"}


def test_a_job_with_an_unknown_number_of_steps_has_no_forecast(installation: Installation, past: Past) -> None:
    train: TrainSpec = dataclasses.replace(spec().train, steps=None, epochs=3)
    made = submit.submit(installation, plan.preview(installation, [spec("endless", train=train)]), caller=ME)
    assert current.status(installation, made.id).job.no_forecast == "the number of remaining steps is not known yet"


def test_a_long_reason_for_no_forecast_hides_no_column_of_the_queue(installation: Installation, past: Past) -> None:
    listed = current.jobs(installation)
    head = queue(listed, Screen(width=80)).splitlines()[0]
    why = (
        "no offer fits: 12 of 30 fail on the budget, 3 on the price; nearest miss fake/alpha/alpha-1/v100.1/spot: $1.34"
    )
    job = dataclasses.replace(listed.jobs[0], forecast=None, no_forecast=why)
    shown = queue(dataclasses.replace(listed, jobs=(job, *listed.jobs[1:])), Screen(width=80))
    assert "to go" in head
    assert shown.splitlines()[0].split() == head.split()
    assert "no offer fits" in shown
    assert job.to_go == why


def test_the_offer_that_a_refusal_names_is_the_first_that_its_plan_lists(
    installation: Installation, past: Past
) -> None:
    (view,) = plan.preview(installation, [spec("conv", budget_nano_usd=usd("0.01"))]).decisions
    named = re.search(r"nearest miss (\S+): would cost", view.reason)
    assert named is not None
    misses = [line for line in decision(view, Screen(wide=True)).splitlines() if line.startswith("  no")]
    assert named[1] in misses[0]
    last = [each for each in view.choices if each.role == "no"][-1].offer_id
    other = dataclasses.replace(view, reason=view.reason.replace(named[1], last))
    assert last in next(line for line in decision(other, Screen(wide=True)).splitlines() if line.startswith("  no"))
