"""`standby: warm` on real processes: the spare's trainer waits with its libraries loaded, and takes over."""

from __future__ import annotations

import pytest

from orchestrator.engine.site.environment import end_session
from orchestrator.model import Migration, Step
from tests.e2e.living import Reference, Tradewind, until

pytestmark = pytest.mark.ray


def test_a_killed_machine_is_followed_by_the_spare(tradewind: Tradewind, reference: Reference) -> None:
    job = tradewind.submit("spared", standby="warm")

    def waiting() -> Migration | None:
        spares = [move for move in tradewind.migrations(job) if move.reason == "standby"]
        return spares[-1] if spares and spares[-1].step is Step.CHECKPOINT else None

    spare = until("a spare waits", waiting)
    assert spare is not None
    source = tradewind.training(job, steps=15)
    assert source.id != spare.target_run_id
    assert source.offer_id.split("/")[:3] != spare.offer_id.split("/")[:3]
    machines = set(tradewind.rented(job))

    end_session(tradewind.agent(source))
    target = tradewind.training(job, after=source)
    assert target.id == spare.target_run_id
    assert target.instance_id in machines, "another machine was started"
    assert target.start_step > 0

    tradewind.finish(job)
    assert tradewind.losses(job) == reference.losses()
    assert tradewind.weights_hash(job) == reference.weights_hash()
    runs = tradewind.runs(job)
    until("its spares are gone", lambda: not any(tradewind.processes(run) for run in runs))
    billed = sum(tradewind.cloud.bill_nano_usd(run.instance_id) for run in runs if run.instance_id is not None)
    with tradewind.world.store.read() as tx:
        assert tx.total_nano_usd(job_id=job) == billed
