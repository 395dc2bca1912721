"""The main job in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.harness import Installation, train_spec
from orchestrator.model import JobSpec
from providers.fake import Fault


@pytest.fixture
def home(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


def test_a_job_runs_to_its_end_and_the_books_agree_with_the_cloud(home: Installation) -> None:
    job = home.submit(JobSpec("plain", train_spec()))
    home.settle()
    assert home.job(job).state == "finished"
    assert len(home.runs(job)) == 1
    ledger, billed = home.books()
    assert ledger == billed > 0
