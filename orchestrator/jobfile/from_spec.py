"""JobSpec -> the mapping of an equal job file, so that the rules for job files can be checked again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from orchestrator.model import DataSource, GpuRequest, JobSpec, Setup, TrainSpec


def mapping_from_spec(spec: JobSpec) -> dict[str, Any]:
    """The mapping from which `job_from_mapping` makes an equal spec, if a job file can express it.

    A value that a job file cannot contain is written in a form that the rules for job files refuse.
    """
    where, checkpoint, resources = spec.where, spec.checkpoint, spec.resources
    return {
        "name": spec.name,
        "project": spec.project,
        "labels": spec.labels,
        "train": _train(spec.train),
        "data": [_data(each) for each in spec.data],
        "outputs": [{"path": each.path, "keep": each.keep} for each in spec.outputs],
        "resources": {
            "gpu": [_gpu(each) for each in resources.gpus] or None,
            "gpu_memory": None if resources.gpu_memory_bytes is None else _size_range(*resources.gpu_memory_bytes),
            "cpu": resources.cpu,
            "memory": _size(resources.memory_bytes),
            "nodes": resources.nodes,
            "processes": resources.processes,
        },
        "objective": {"cost": spec.objective.cost_weight, "time": spec.objective.time_weight},
        "deadline": _duration(spec.deadline_s) if spec.deadline_at_ms is None else _instant(spec.deadline_at_ms),
        "budget": None if spec.budget_nano_usd is None else f"{Decimal(spec.budget_nano_usd).scaleb(-9):f} USD",
        "capacity": [each.value for each in spec.capacity],
        "where": {"clouds": list(where.clouds) or None, "regions": list(where.regions) or None},
        "checkpoint": {
            "to": checkpoint.to,
            "keep": checkpoint.keep,
            "keep_hourly": checkpoint.keep_hourly,
            "keep_best": checkpoint.keep_best,
            "max_overhead": checkpoint.max_overhead,
            "max_in_flight": checkpoint.max_in_flight,
            "max_upload": None
            if checkpoint.max_upload_bytes_per_s is None
            else f"{_size(checkpoint.max_upload_bytes_per_s)}/s",
        },
        "reproducible": {
            "threads": spec.reproducible.threads,
            "deterministic": spec.reproducible.deterministic,
            "seed": spec.reproducible.seed,
        },
        "standby": spec.standby,
        "probe": spec.probe,
        "retries": spec.retries,
        "max_duration": _duration(spec.max_duration_s),
        "precision": spec.precision,
        "sharding": spec.sharding,
        "expected": None
        if spec.expected is None
        else {"gpu": _gpu(spec.expected.gpu), "steps_per_s": spec.expected.steps_per_s},
    }


def _train(train: TrainSpec) -> dict[str, Any]:
    setup = train.setup or Setup()
    return {
        "entry": train.entry,
        "script": train.script,
        "args": list(train.argv) or train.args,
        "setup": setup.command,
        "requirements": _requirements(setup),
        "python": setup.python,
        "workdir": train.workdir,
        "env": train.env,
        "secrets": list(train.secrets),
        "steps": train.steps,
        "epochs": train.epochs,
        "stall_after": _duration(train.stall_after_s),
    }


def _requirements(setup: Setup) -> str | list[str] | Mapping[str, object] | None:
    if setup.requirements and setup.requirement_files:
        return {"packages": setup.requirements, "files": setup.requirement_files}
    if len(setup.requirement_files) == 1:
        return setup.requirement_files[0]
    return list(setup.requirements or setup.requirement_files) or None


def _data(data: DataSource) -> dict[str, Any]:
    return {"source": data.source, "mount": data.mount, "size": _size(data.size_bytes)}


def _gpu(gpu: GpuRequest) -> str:
    return f"{gpu.name}:{gpu.count}"


def _size(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else f"{size_bytes} B"


def _size_range(least_bytes: int, most_bytes: int | None) -> str:
    least = _size(least_bytes) if least_bytes or most_bytes is None else ""
    return f"{least}..{_size(most_bytes) or ''}"


def _duration(duration_s: float | None) -> str | None:
    return None if duration_s is None else f"{duration_s:.9f}s"  # a job file has at most 9 decimals


def _instant(at_ms: int) -> str:
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)).isoformat()
    except OverflowError:  # beyond the year 9999, or before the first
        return f"{at_ms} ms"
