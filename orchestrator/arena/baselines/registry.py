"""Registry: BASELINES, all policies that the product's are compared with, by name."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.arena.baselines.daily import Daily
from orchestrator.arena.baselines.progress import UniformProgress, UniformProgressHere, UniformProgressMulti
from orchestrator.arena.baselines.simple import Baseline, Greedy, OnDemandOnly
from orchestrator.arena.baselines.skynomad import SkyNomad, SkyNomadRateRatio
from orchestrator.arena.baselines.skypilot import EagerAsShipped, EagerNextRegion, Failover
from orchestrator.arena.baselines.static import Karpenter, OneZone, PaperDaily, SageMaker

BASELINES: Mapping[str, type[Baseline]] = {
    kind.name: kind
    for kind in (
        OnDemandOnly,
        Greedy,
        OneZone,
        PaperDaily,
        UniformProgressHere,
        UniformProgress,
        UniformProgressMulti,
        Failover,
        EagerNextRegion,
        EagerAsShipped,
        SageMaker,
        Karpenter,
        SkyNomad,
        SkyNomadRateRatio,
        Daily,
    )
}
