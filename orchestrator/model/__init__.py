"""The nouns, as frozen dataclasses. Pure: no I/O, no clock, no random source."""

from orchestrator.model.event import Entry, EntryKind, Event
from orchestrator.model.ids import derived_id, new_id
from orchestrator.model.job import (
    CHEAPEST,
    FASTEST,
    TERMINAL,
    CheckpointSpec,
    DataSource,
    GpuRequest,
    Job,
    JobSpec,
    JobState,
    Objective,
    OutputSpec,
    Reproducible,
    Resources,
    TrainSpec,
    Where,
)
from orchestrator.model.plan import Action, Alternative, Estimate, Placement, Plan
from orchestrator.model.run import STEP_ORDER, Migration, Reason, Run, RunEnd, RunState, Step

__all__ = [
    "CHEAPEST",
    "FASTEST",
    "STEP_ORDER",
    "TERMINAL",
    "Action",
    "Alternative",
    "CheckpointSpec",
    "DataSource",
    "Entry",
    "EntryKind",
    "Estimate",
    "Event",
    "GpuRequest",
    "Job",
    "JobSpec",
    "JobState",
    "Migration",
    "Objective",
    "OutputSpec",
    "Placement",
    "Plan",
    "Reason",
    "Reproducible",
    "Resources",
    "Run",
    "RunEnd",
    "RunState",
    "Step",
    "TrainSpec",
    "Where",
    "derived_id",
    "new_id",
]
