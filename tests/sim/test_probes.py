"""A long job's probe, carried out: a run of a few minutes on another kind, then the decision again with what it showed.

The simulated trainers are equally fast on every kind, which no table of ratios expects.
"""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.model import Job
from orchestrator.store import Store
from providers.hardware import GIB
from providers.money import usd
from providers.offer import CapacityType, Offer
from tests.sim.harness import SimulatedInstallation, check_truth

STEPS = 200_000  # at one per second
OLD, NEW = (
    Offer("fake", "alpha", "alpha-1", f"{gpu}.1".lower(), gpu, 1, 8, 64 * GIB, CapacityType.ON_DEMAND, simulated=True)
    for gpu in ("K80", "V100")
)
Install = Callable[..., SimulatedInstallation]


def market(install: Install, old: str, new: str) -> SimulatedInstallation:
    return install(catalog=((OLD, usd(old)), (NEW, usd(new))), overrides={"policy.min_dwell_s": 3600.0})


def moves(home: SimulatedInstallation, job: Job) -> list[tuple[str, str]]:
    return [(each.reason, each.offer_id) for each in home.migrations(job)]


def train_until(home: SimulatedInstallation, job: Job, step: int) -> None:
    home.until(lambda: (run := home.current(job)) is not None and run.last_step >= step, 3000, stride_s=15.0)


def test_a_long_job_that_was_measured_tries_another_kind_and_stays_where_that_was_better(install: Install) -> None:
    """By prediction a step may cost less on the V100; the true speeds are equal, and the K80 costs less."""
    home = market(install, "0.90", "1.50")
    job = home.submit(steps=STEPS)
    train_until(home, job, 1500)
    assert moves(home, job) == [("first placement", NEW.id), ("probe", OLD.id)]
    first, second = home.runs(job)
    assert first.training_from_ms is not None
    assert first.training_to_ms is not None
    assert (first.training_to_ms - first.training_from_ms) / 1000 < 200
    assert (second.offer_id, first.repeated_steps, second.repeated_steps) == (OLD.id, 0, 0)
    reported = [event.message for event in home.events(job, "plan.decided")]
    assert reported[0].startswith(f"start on {NEW.id}: not measured yet")
    (second_message,) = reported[1:]
    assert second_message.startswith(f"move to {OLD.id}: a probe: 8 min on K80")
    assert home.current(job) is not None
    home.ask("cancel", job)
    home.settle(stride_s=5.0)
    check_truth(home)


def test_a_probe_that_disappoints_is_over_after_its_minutes(install: Install) -> None:
    """Both have the same true speed; once measured on the cheaper one, the job probes the more expensive one."""
    home = market(install, "0.90", "1.50")
    job = home.submit(steps=STEPS)
    with Store.write(home.store) as tx:
        tx.add_perf(job.id, OLD.gpu, 1, 1.0, 500, home.clock.now_ms())
    train_until(home, job, 1500)
    assert moves(home, job) == [("probe", NEW.id), ("cheaper offer", OLD.id)]
    first, second = home.runs(job)
    assert first.training_from_ms is not None
    assert first.training_to_ms is not None
    assert 480 <= (first.training_to_ms - first.training_from_ms) / 1000 < 700
    assert (first.repeated_steps, second.repeated_steps) == (0, 0)


def test_who_asked_not_to_be_tried_is_not(install: Install) -> None:
    home = market(install, "0.90", "1.50")
    job = home.submit(steps=STEPS, probe=False)
    train_until(home, job, 300)
    ((reason, _),) = moves(home, job)
    assert reason == "first placement"
