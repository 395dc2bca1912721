"""What is written of migrations and runs that were under way when everything was ended for good."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.config import load_config
from orchestrator.engine.billing.accrue import settle_all
from orchestrator.engine.direct_calls import at_once
from orchestrator.engine.jobs.checkpoints import FileCatalog
from orchestrator.installation import Installation, open_installation
from orchestrator.model import Job, JobSpec, Migration, Run, Step, TrainSpec

TRAIN = TrainSpec(entry="m:f", script=None, args={}, workdir="/", env={}, secrets=(), steps=9, epochs=None)


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    given = {"state_dir": str(tmp_path / "state"), "providers.enabled": "fake"}
    opened = open_installation(load_config(given, cwd=tmp_path, environ={}))
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("step", "fenced", "end"),
    [
        (Step.VERIFY, False, Step.ABORTED),
        (Step.CUTOVER, False, Step.ABORTED),
        (Step.CUTOVER, True, Step.DONE),
        (Step.RELEASE, True, Step.DONE),
    ],
)
def test_a_migration_is_done_when_the_job_was_handed_over(
    installation: Installation, step: Step, fenced: bool, end: Step
) -> None:
    offer_id = installation.providers["fake"].offers()[0].id
    with installation.store.write() as tx:
        tx.add_job(Job("job_A", JobSpec("j", TRAIN), "ann", 1, "starting"))
        tx.add_run(Run("run_A", "job_A", 1, offer_id, "gone", "starting", 1))
        tx.add_migration(
            Migration("mig_A", "job_A", None, "run_A", offer_id, 1, "first placement", step, 1, "token", 1, 1)
        )
    if fenced:
        FileCatalog().fence(installation.checkpoint_root(None), "job_A", 1, None)
    leadership = installation.store.campaign("down")
    assert leadership is not None
    settle_all(installation, leadership, at_once)
    with installation.store.read() as tx:
        assert tx.migration("mig_A").step is end
        assert (tx.migration("mig_A").error is None) is (end is Step.DONE)
        assert (tx.run("run_A").state, tx.job("job_A").state) == ("ended", "paused")
