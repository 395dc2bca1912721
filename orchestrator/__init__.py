"""Tradewind's SDK: `orchestrator.Client`, the nouns of a job, and the errors. Everything loads when it is first used.

Must not load anything by itself: `import orchestrator` costs a few milliseconds and creates nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.client.pages import pages
    from orchestrator.config import Config, load_config
    from orchestrator.errors import (
        BookingError,
        InfeasibleError,
        LimitError,
        MissingExtraError,
        NotFoundError,
        NotLeaderError,
        OutputError,
        PartialFailure,
        Problem,
        ProviderFailure,
        Relaxation,
        RowError,
        SiteError,
        SpecError,
        StalePlanError,
        StoreDamagedError,
        StoreError,
        StoreVersionError,
        SupersededError,
        TokenConflictError,
        TradewindError,
        UnreadableRowError,
        UsageError,
    )
    from orchestrator.formats.documents import to_json
    from orchestrator.jobfile import job_from_mapping, load_job
    from orchestrator.model import (
        CHEAPEST,
        FASTEST,
        CheckpointSpec,
        DataSource,
        GpuRequest,
        JobSpec,
        Objective,
        OutputSpec,
        Reproducible,
        Resources,
        TrainSpec,
        Where,
    )
    from orchestrator.services.caller import Caller

_HOMES = {
    "orchestrator.client": ("Client",),
    "orchestrator.client.pages": ("pages",),
    "orchestrator.config": ("Config", "load_config"),
    "orchestrator.errors": (
        "BookingError",
        "InfeasibleError",
        "MissingExtraError",
        "NotFoundError",
        "NotLeaderError",
        "OutputError",
        "PartialFailure",
        "Problem",
        "ProviderFailure",
        "Relaxation",
        "LimitError",
        "RowError",
        "SiteError",
        "SpecError",
        "StalePlanError",
        "StoreDamagedError",
        "StoreError",
        "StoreVersionError",
        "SupersededError",
        "TokenConflictError",
        "TradewindError",
        "UnreadableRowError",
        "UsageError",
    ),
    "orchestrator.model": (
        "CHEAPEST",
        "CheckpointSpec",
        "DataSource",
        "FASTEST",
        "GpuRequest",
        "JobSpec",
        "Objective",
        "OutputSpec",
        "Reproducible",
        "Resources",
        "TrainSpec",
        "Where",
    ),
    "orchestrator.formats.documents": ("to_json",),
    "orchestrator.jobfile": ("job_from_mapping", "load_job"),
    "orchestrator.services.caller": ("Caller",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CHEAPEST",
    "FASTEST",
    "BookingError",
    "Caller",
    "CheckpointSpec",
    "Client",
    "Config",
    "DataSource",
    "GpuRequest",
    "InfeasibleError",
    "JobSpec",
    "LimitError",
    "MissingExtraError",
    "NotFoundError",
    "NotLeaderError",
    "Objective",
    "OutputError",
    "OutputSpec",
    "PartialFailure",
    "Problem",
    "ProviderFailure",
    "Relaxation",
    "Reproducible",
    "Resources",
    "RowError",
    "SiteError",
    "SpecError",
    "StalePlanError",
    "StoreDamagedError",
    "StoreError",
    "StoreVersionError",
    "SupersededError",
    "TokenConflictError",
    "TradewindError",
    "TrainSpec",
    "UnreadableRowError",
    "UsageError",
    "Where",
    "job_from_mapping",
    "load_config",
    "load_job",
    "pages",
    "to_json",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
