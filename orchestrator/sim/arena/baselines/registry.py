"""BASELINES: every published policy by its name.

Must not know: traces; our own policies.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.sim.arena.baselines.progress import UniformProgress, UniformProgressHere, UniformProgressMulti
from orchestrator.sim.arena.baselines.simple import Baseline, Greedy, OnDemandOnly
from orchestrator.sim.arena.baselines.skynomad import SkyNomad, SkyNomadRateRatio
from orchestrator.sim.arena.baselines.skypilot import EagerAsShipped, EagerNextRegion, Failover
from orchestrator.sim.arena.baselines.static import Karpenter, OneZone, PaperDaily, SageMaker

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
    )
}
