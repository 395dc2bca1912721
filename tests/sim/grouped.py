"""Groups of jobs in a simulated installation: chains, pairs, side by side."""

from __future__ import annotations

from typing import Any

from orchestrator.model import Expected, GpuRequest, Group, Job, JobSpec
from providers.hardware import GIB
from providers.money import usd
from providers.offer import CapacityType, Offer
from tests.sim.harness import SimulatedInstallation, train_spec


def grouped(
    home: SimulatedInstallation,
    names: str = "abc",
    budget: str | None = None,
    steps: int = 10,
    expected: Expected | None = None,
) -> list[Job]:
    """A chain: each job after the one before it."""
    now = home.clock.now_ms()
    group = Group("group_A", "chain", "cheapest", "default", "me", now, None if budget is None else usd(budget))
    jobs: list[Job] = []
    for name in names:
        after = (jobs[-1].id,) if jobs else ()
        job = Job(
            f"job_{name}",
            JobSpec(name, train_spec(steps), expected=expected),
            "me",
            now,
            "queued",
            group.id,
            after=after,
        )
        jobs.append(job)
    with home.installation.store.write() as tx:
        tx.add_group(group)
        for job in jobs:
            tx.add_job(job)
    return jobs


def reasons(home: SimulatedInstallation, job: Job) -> list[str]:
    return [each.message for each in home.read(lambda tx: tx.events(job_id=job.id)) if each.kind == "job.waits"]


SLOW, FAST = (
    Offer("fake", "alpha", "alpha-1", name, gpu, 1, 8, 64 * GIB, CapacityType.ON_DEMAND, simulated=True)
    for name, gpu in (("v100.1", "V100"), ("a100.1", "A100-40GB"))
)
SLOW_AND_FAST = ((SLOW, usd("1.00")), (FAST, usd("9.00")))


def pair(home: SimulatedInstallation, deadline_s: float | None, **first: Any) -> Job:
    """A job of 2000 steps, and one after it with a deadline."""
    now, known = home.clock.now_ms(), Expected(GpuRequest("V100"), 1.0)
    leads = Job("job_a", JobSpec("a", train_spec(2000), expected=known, **first), "me", now, "queued", "group_A")
    spec = JobSpec("b", train_spec(2000), expected=known, deadline_s=deadline_s)
    with home.installation.store.write() as tx:
        tx.add_group(Group("group_A", "chain", "cheapest", "default", "me", now, None))
        tx.add_job(leads)
        tx.add_job(Job("job_b", spec, "me", now, "queued", "group_A", after=(leads.id,)))
    return leads


def order(home: SimulatedInstallation, nano_usd: int | None) -> str:
    with home.installation.store.write() as tx:
        return tx.add_command("group-budget", None, {"group_id": "group_A", "nano_usd": nano_usd}, "user:me")


def side_by_side(home: SimulatedInstallation, steps: dict[str, int]) -> list[Job]:
    """Jobs of known speed in a group without a budget."""
    now, known = home.clock.now_ms(), Expected(GpuRequest("V100"), 1.0)
    jobs = [
        Job(f"job_{name}", JobSpec(name, train_spec(each), expected=known), "me", now, "queued", "group_A")
        for name, each in steps.items()
    ]
    with home.installation.store.write() as tx:
        tx.add_group(Group("group_A", "chain", "cheapest", "default", "me", now, None))
        for job in jobs:
            tx.add_job(job)
    return jobs
