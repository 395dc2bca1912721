"""A deadline that cannot be met is said where users look, once, and what was said before of it no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.cli.render.screens import jobs as screens
from orchestrator.cli.render.text import Screen
from orchestrator.engine.migration import lateness
from orchestrator.model import Expected, GpuRequest, Job
from orchestrator.services.jobs import current, explain
from tests.sim.harness import SimulatedInstallation, check_truth

Install = Callable[..., SimulatedInstallation]
TOO_FAST = Expected(GpuRequest("V100", 1), 20.0)  # it makes one step per second
CHECKED = {"policy.decide_every_s": 20.0}


def risks(home: SimulatedInstallation, job: Job) -> list[str]:
    return [event.kind for event in home.events(job, "job.at_risk", "job.on_time")]


def slow(home: SimulatedInstallation, *, deadline_s: float = 900.0) -> Job:
    """A job whose deadline could be met only at the speed that its user expected."""
    job = home.submit(steps=1500, deadline_s=deadline_s, expected=TOO_FAST)
    assert "before the deadline" in placed(home, job)
    home.until(lambda: bool(risks(home, job)))
    return job


def placed(home: SimulatedInstallation, job: Job) -> str:
    home.until(lambda: bool(home.events(job, "plan.decided")))
    return home.events(job, "plan.decided")[0].message


def test_a_job_whose_speed_turns_out_too_low_is_late_everywhere_and_that_is_reported_once(install: Install) -> None:
    home = install(overrides=CHECKED)
    job = slow(home)
    (event,) = home.events(job, "job.at_risk")
    assert event.message.startswith("expected to finish ")
    assert "after its deadline: the deadline cannot be met; this is the earliest finish" in event.message
    assert float(event.data["late_s"] or 0) > 60
    seen = current.status(home.installation, job.id).job
    assert seen.late_s is not None
    assert seen.late_s > 60
    assert seen.lateness.endswith("after its deadline")
    assert [each.late_s for each in current.jobs(home.installation).jobs] == [seen.late_s]
    explained = explain.explain(home.installation, job.id)
    assert f": {seen.lateness}; as of the decision: the deadline cannot be met" in explained.headline
    assert "before the deadline" not in f"{explained.headline} {explained.decisions}"
    home.settle(limit_s=4000.0)
    assert risks(home, job) == ["job.at_risk"]
    assert current.status(home.installation, job.id).job.late_s is None
    assert "after its deadline" in home.events(job, "job.finished")[0].message
    check_truth(home)


def test_a_deadline_that_is_hopeless_from_the_start_is_reported_with_the_first_placement(install: Install) -> None:
    home = install(overrides=CHECKED)
    job = home.submit(steps=300, deadline_s=60.0, expected=Expected(GpuRequest("V100", 1), 1.0))
    placed(home, job)
    assert [event.kind for event in home.events(job, "job.at_risk", "plan.decided")] == ["job.at_risk", "plan.decided"]
    home.settle()
    assert risks(home, job) == ["job.at_risk"]


def test_after_its_deadline_no_old_decision_says_that_it_will_be_met(install: Install) -> None:
    home = install(overrides={"policy.decide_every_s": 1e6})
    job = home.submit(steps=1500, deadline_s=900.0, expected=TOO_FAST)
    assert "before the deadline" in placed(home, job)
    home.clock.advance(2000.0)  # no control plane has looked at it since
    explained = explain.explain(home.installation, job.id)
    assert "before the deadline" not in f"{explained.headline} {explained.decisions}"
    assert "after its deadline" in explained.headline


def test_a_paused_job_says_that_its_deadline_has_passed(install: Install) -> None:
    home = install()
    job = home.submit(steps=300, deadline_s=600.0)
    home.until_step(job, 3)
    home.ask("pause", job)
    home.settle()
    assert current.status(home.installation, job.id).job.late_s is None
    home.clock.advance(7200.0)
    assert current.status(home.installation, job.id).job.lateness.startswith("its deadline passed 1.")
    assert "its deadline passed" in explain.explain(home.installation, job.id).headline


def test_queue_and_status_say_how_late_a_job_is(install: Install) -> None:
    home = install(overrides=CHECKED)
    job = slow(home)
    screen = Screen(width=80)
    listed, view = current.jobs(home.installation), current.status(home.installation, job.id)
    assert f"job: {view.job.lateness}" in screens.queue(listed, screen).splitlines()
    (deadline,) = [line for line in screens.status(view, screen).splitlines() if line.startswith("deadline")]
    assert deadline.endswith(f", {view.job.lateness}")


def test_a_late_job_recovers_only_when_an_offer_meets_its_deadline_safely(install: Install) -> None:
    home = install(overrides=CHECKED)
    job = slow(home)
    deadline_at_ms = home.job(job).deadline_at_ms or 0
    plan = home.read(lambda tx: tx.latest_plan(job.id))
    assert plan is not None

    def decide(finish_at_ms: int, chance: float | None) -> list[str]:
        placement = replace(plan.placement(job.id), finish_at_ms=finish_at_ms, chance=chance)
        ctx, decided = home.plane._ctx, replace(plan, placements=(placement,))
        for each in lateness.turned(ctx, decided):
            with ctx.write() as tx:
                lateness.report(ctx, tx, decided, each)
        return risks(home, job)[1:]

    assert decide(deadline_at_ms + 9_000, 0.0) == []
    assert decide(deadline_at_ms - 1_000, 0.6) == []
    assert decide(deadline_at_ms - 9_000, None) == ["job.on_time"]
    assert decide(deadline_at_ms - 9_000, None) == ["job.on_time"]
    assert decide(deadline_at_ms + 9_000, 0.4) == ["job.on_time", "job.at_risk"]
