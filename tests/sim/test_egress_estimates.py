"""What real clouds bill for fetching a checkpoint from its bucket is booked as an estimate, and said to be one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.billing.egress_estimates import estimated_nano_usd, fetched
from orchestrator.engine.billing.machine_cost import job_cost_nano_usd
from orchestrator.engine.context import Context
from orchestrator.market import OWN_STORE
from providers.billing.charges import RATE_CARDS, Usage, egress_nano_usd
from providers.catalog import load
from providers.offer import location_of
from tests.sim.harness import RESERVE, SimulatedInstallation

BUCKET = ("aws", "us-east-1")


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake cloud counts as a real one, whose checkpoints are in a bucket of AWS."""
    monkeypatch.setitem(RATE_CARDS, "fake", replace(RATE_CARDS["fake"], bills_checkpoints=False))
    monkeypatch.setattr(Context, "bucket_of", lambda *_: BUCKET)


def test_the_checkpoint_of_a_move_is_booked_as_an_estimate_with_its_bytes_and_the_source_of_the_price(
    real: None, home: SimulatedInstallation
) -> None:
    job = home.submit(steps=120)
    home.until_step(job, 20)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until_state(job, "finished")
    home.settle()
    moved = home.runs(job)[-1]
    assert moved.moved_from == "aws/us-east-1/"
    assert moved.moved_bytes
    rate = load().egress().rate(BUCKET, location_of(RESERVE.id))
    expected = egress_nano_usd(rate, moved.moved_bytes)
    assert expected > 0
    booked = home.read(lambda tx: [each for each in tx.entries() if each.kind == "egress_estimate"])
    assert [(each.run_id, each.amount_nano_usd, each.basis) for each in booked] == [(moved.id, expected, "estimated")]
    (estimated,) = home.events(job, "egress.estimated")
    assert (estimated.data["bytes"], estimated.data["nano_usd"]) == (moved.moved_bytes, expected)
    assert (estimated.data["source"], estimated.data["nano_usd_per_gb"]) == ("aws/us-east-1", rate)
    assert "estimate from the list price of the catalogue" in estimated.message
    kinds = {each.kind for each in home.read(lambda tx: tx.entries())}
    assert not {"egress", "requests"} & kinds


def test_it_counts_against_the_budget_before_it_is_booked(real: None, home: SimulatedInstallation) -> None:
    job = home.submit(steps=600)
    home.until_step(job, 20)
    run = home.runs(job)[-1]
    with home.store.write() as tx:
        before = job_cost_nano_usd(tx, job.id, [run], home.clock.now_ms())
        tx.update_run(run.id, moved_from="aws/us-east-1/", moved_bytes=100 * 10**9)
        after = job_cost_nano_usd(tx, job.id, [tx.run(run.id)], home.clock.now_ms())
    assert after - before == estimated_nano_usd(Usage(location_of(run.offer_id), BUCKET, 100 * 10**9)) > 0


def test_from_where_a_checkpoint_is_fetched() -> None:
    here, there = ("gcp", "us-central1", "us-central1-b"), ("aws", "us-east-1", "use1-az1")
    assert fetched(here, there, BUCKET) == BUCKET
    assert fetched(here, there, ("gcp", "")) == ("gcp", ""), "saved on AWS, into a bucket of Google"
    assert fetched(here, ("gcp", "us-west1", "us-west1-a"), ("gcp", "")) == ("gcp", "us-west1")
    assert fetched(here, there, None) is None, "a folder of this host: nobody bills that"
    assert fetched(here, None, BUCKET) is None, "it starts from scratch"
    assert fetched(here, there, OWN_STORE) == OWN_STORE
    assert estimated_nano_usd(Usage(here, OWN_STORE, 10**12)) == 0
    assert estimated_nano_usd(Usage(here, (*OWN_STORE, ""), 10**12)) == 0, "as a run's row has it"
    assert fetched(("local", "a", "b"), ("local", "c", "d"), BUCKET) == ("local", "c", "d")


def test_what_stays_in_its_region_is_free_and_an_unknown_region_is_the_nearest() -> None:
    size = 10**9
    assert estimated_nano_usd(Usage(("aws", "us-east-1", "use1-az1"), BUCKET, size)) == 0
    assert estimated_nano_usd(Usage(("aws", "eu-west-1", "euw1-az1"), BUCKET, size)) > 0
    assert estimated_nano_usd(Usage(("gcp", "us-central1", "us-central1-b"), BUCKET, size)) > 0
    assert estimated_nano_usd(Usage(("aws", "us-east-1", ""), ("aws", "", ""), size)) == 0
    assert estimated_nano_usd(Usage(("gcp", "us-central1", ""), ("aws", "", ""), size)) > 0
    assert estimated_nano_usd(None) == 0
