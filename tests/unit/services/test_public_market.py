"""What the live engine's market takes from the catalogue: tariffs and interruption rates of real clouds, as `plan
--anywhere` does; the simulated ones keep theirs. And a profiled job that fits nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from orchestrator.engine.inputs import snapshot
from orchestrator.errors import InfeasibleError
from orchestrator.installation import Installation
from orchestrator.market import TYPICAL
from orchestrator.model import GpuRequest, Resources
from orchestrator.perf import Work, program_of
from orchestrator.prices.collected import collected
from orchestrator.services.catalog.market import catalogue_market
from orchestrator.services.offers.filters import OfferQuery
from orchestrator.services.offers.listing import offers
from orchestrator.services.offers.ranking import rank_for_job
from providers.catalog import load
from providers.collect.facts import Signal
from providers.offer import CapacityType, Offer
from tests.unit.services.recorded_history import spec

REAL = Offer("aws", "af-south-1", "afs1-az1", "g4dn.12xlarge", "T4", 4, 48, 192 * 10**9, CapacityType.SPOT)


def test_real_offers_bring_their_tariff_and_hazards(installation: Installation) -> None:
    with installation.store.write() as tx:
        tx.put_offers("aws", [REAL])
    with installation.store.read() as tx:
        enabled = replace(installation.config, providers=replace(installation.config.providers, enabled=("aws",)))
        live = snapshot.market(tx, installation.clock.now_ms(), enabled)
    planned = catalogue_market(installation.clock.now_ms())
    row, same = live.row(REAL.id), [i for i in planned.ids if "/af-south-1/" in i and "/g4dn.12xlarge/spot" in i]
    assert row is not None
    assert live.tariff is planned.tariff is load().egress()
    assert "AWS Spot Advisor" in live.hazard_provenance(row)
    for each in same:
        assert live.hazard[row] == planned.hazard[planned.row(each)]


def test_what_was_collected_of_interruptions_stands_in_the_place_of_the_catalogues(installation: Installation) -> None:
    def heard(kind: str, provider: str, region: str, machine: str, low: float, high: float, at: int) -> Signal:
        return Signal(kind, provider, region, "", machine, low, high, at, at, "published today")

    evicted = Offer("azure", "eastus", "", "Standard_ND96isr_H100_v5", "H100", 8, 96, 10**12, CapacityType.SPOT)
    now = installation.clock.now_ms()
    with installation.store.write() as tx:
        tx.put_offers("aws", [REAL])
        tx.put_offers("azure", [evicted])
        tx.add_risks(
            [
                heard("interruption_percent", "aws", REAL.region, REAL.instance_type, 5, 10, now - 2),
                heard("interruption_percent", "aws", REAL.region, REAL.instance_type, 20, 100, now - 1),
                heard("placement_score", "aws", REAL.region, REAL.instance_type, 3, 3, now),
                heard("eviction_percent", "azure", "eastus", evicted.instance_type, 5, 10, now),
            ]
        )
    with installation.store.read() as tx:
        enabled = replace(
            installation.config, providers=replace(installation.config.providers, enabled=("aws", "azure"))
        )
        live = snapshot.market(tx, now, enabled)
    rows = [live.row(offer.id) for offer in (REAL, evicted)]
    assert [live.hazard[row] for row in rows] == pytest.approx([-math.log(1 - 0.35) / 3.45, -math.log(1 - 0.075)])
    assert ["published today" in live.hazard_provenance(row) for row in rows if row is not None] == [True, True]


def test_simulated_offers_alone_bring_none(installation: Installation) -> None:
    from orchestrator.engine.machines.collect import collect

    collect(installation)
    with installation.store.read() as tx:
        live = snapshot.market(tx, installation.clock.now_ms(), installation.config)
    assert len(live) > 0
    assert live.tariff is TYPICAL
    assert live.priors == {}


def test_a_profiled_job_that_fits_no_offer_says_by_how_much(installation: Installation) -> None:
    job = spec(resources=Resources(gpus=(GpuRequest("A100-80GB"),)))
    with installation.store.write() as tx:
        tx.put_work(program_of(job.train), Work(1e12, 0, 1e10, 10, 10**9, 400 * 10**9, 10**9, 1.0), 1)
    now = installation.clock.now_ms()
    listed = offers(
        installation.config, lambda: installation, OfferQuery.of(gpu="A100-80GB:1", cloud=["aws", "gcp"]), now_ms=now
    )
    with pytest.raises(InfeasibleError, match=r"402 GB per GPU .* 322 GB less"):
        rank_for_job(job, listed.offers, installation, now, collected(installation))
