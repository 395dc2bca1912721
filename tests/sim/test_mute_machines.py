"""Machines of clouds that boot and never report, and networks that are deleted under a running job.

The machine is ended in time, the job goes on elsewhere, and what happened is said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.engine.inputs import snapshot
from orchestrator.engine.migration.timeouts import READY_MARKET_S
from orchestrator.model import Job, JobSpec
from orchestrator.policy import decide
from providers import traits
from providers.base import LaunchSpec
from providers.errors import SetupError
from providers.instance import EndReason
from providers.money import usd
from providers.offer import CapacityType
from tests.sim.harness import CHEAP, EXPENSIVE, SimulatedInstallation, check_truth, train_spec


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(traits._OF, "fake", replace(traits.traits_of("fake"), shares_host=False))


def submitted(home: SimulatedInstallation, steps: int = 20) -> Job:
    return home.submit_job(JobSpec("job", replace(train_spec(steps), code="0" * 64)))


def test_a_machine_that_boots_and_never_reports_is_ended_in_time_and_its_place_is_avoided(
    home: SimulatedInstallation,
) -> None:
    home.site.mute = {CHEAP.id}
    job = submitted(home)
    home.until(lambda: bool(home.events(job, "placement.wasted")), limit_s=READY_MARKET_S + 60.0, stride_s=5.0)
    (wasted,) = home.events(job, "placement.wasted")
    assert f"its agent did not report within {READY_MARKET_S:.0f} s" in wasted.message
    inputs = home.read(lambda tx: snapshot.inputs(tx, home.clock.now_ms(), home.config))
    plan = decide(inputs.demands, inputs.market, inputs.perf, inputs.running)
    (avoided,) = (each for each in plan.placement(job.id).alternatives if each.offer_id == CHEAP.id)
    assert not avoided.feasible
    assert "did not report" in avoided.reason
    assert "console output" in avoided.reason
    home.settle(limit_s=1200.0)
    assert home.job(job).state == "finished"
    first, second = home.runs(job)
    assert (first.offer_id, second.offer_id) == (CHEAP.id, EXPENSIVE.id)
    machine = home.machine(first)
    assert machine.end_reason is EndReason.USER
    assert machine.billed_from_ms is not None
    assert machine.billed_to_ms is not None
    assert machine.billed_to_ms - machine.billed_from_ms < (READY_MARKET_S + 60.0) * 1000
    check_truth(home)


def test_a_network_that_is_deleted_under_a_running_job_moves_it_to_where_there_is_one(
    install: Callable[..., SimulatedInstallation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its agent reaches the store no longer, and nothing can be launched there."""
    here, there = (replace(each, capacity_type=CapacityType.ON_DEMAND) for each in (CHEAP, EXPENSIVE))
    catalog = [(here, usd("1.00")), (there, usd("1.60"))]
    home = install(overrides={"lease_s": 20.0, "suspect_after_s": 5.0}, catalog=catalog)
    job = submitted(home, steps=60)
    run = home.until_step(job, 7)
    home.site.drop_reports(run.id)
    provider = home.installation.providers["fake"]
    launch = provider.launch

    def refused(spec: LaunchSpec) -> tuple[str, ...]:
        if spec.offer_id == here.id:
            raise SetupError("the network was deleted", hint="create it again: tradewind up --cloud x", scope="region")
        return launch(spec)

    monkeypatch.setattr(provider, "launch", refused)
    home.settle()
    assert home.job(job).state == "finished"
    assert [(each.offer_id, each.end) for each in home.runs(job)] == [
        (here.id, "lost"),
        (here.id, "aborted"),
        (there.id, "finished"),
    ]
    (aborted,) = home.events(job, "migration.aborted")
    assert "the network was deleted" in aborted.message
    check_truth(home)
