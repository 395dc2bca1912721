"""The end of a machine of another host waits, for a bounded time, until the last of its job's log is stored."""

from __future__ import annotations

import pytest

from orchestrator.engine.machines import reap
from orchestrator.errors import SiteError
from tests.sim.harness import SimulatedInstallation


@pytest.fixture
def parted(home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What machines answer to whether all is stored: the last item; without any, they cannot be asked."""
    monkeypatch.setattr(reap, "shares_host", lambda _offer_id: False)
    answers = [False]

    def answer(_run_id: str) -> bool:
        if not answers:
            raise SiteError("the store does not answer", hint="Tradewind tries again")
        return answers[-1]

    monkeypatch.setattr(home.site, "parted", answer)
    return answers


@pytest.mark.parametrize("asked", ["cancelled", "finished"])
def test_a_cancelled_jobs_machine_is_ended_when_its_log_is_stored_and_a_finished_ones_at_once(
    home: SimulatedInstallation, parted: list[bool], asked: str
) -> None:
    job = home.submit(steps=4000 if asked == "cancelled" else 20)
    run = home.until_step(job, 10)
    if asked == "cancelled":
        home.ask("cancel", job)
        home.until(lambda: home.job(job).state == "cancelled")
        home.run_for(reap.PARTING_S / 2)
        assert home.machine(run).alive
        parted.append(True)
    home.until(lambda: not home.machine(run).alive, limit_s=100.0)
    home.settle()


@pytest.mark.parametrize("answers", [True, False])
def test_a_machine_that_never_stores_it_is_ended_nevertheless(
    home: SimulatedInstallation, parted: list[bool], answers: bool
) -> None:
    if not answers:
        parted.clear()
    job = home.submit(steps=4000)
    run = home.until_step(job, 10)
    home.ask("cancel", job)
    home.until(lambda: home.job(job).state == "cancelled")
    home.until(lambda: not home.machine(run).alive, limit_s=reap.PARTING_S + 5.0)
    home.settle()
