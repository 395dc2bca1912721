"""Fields that a job file does not have: the one that was meant, by its spelling or by another tool's word for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from orchestrator.errors import did_you_mean
from orchestrator.jobfile.schema import JobFile, Section
from orchestrator.jobfile.source.source_map import Loc

_WRITE: Mapping[str, str] = {
    "accelerators": "resources: {gpu: H100:8}",
    "batch_size": "train: {args: {batch_size: 32}}",
    "cloud": "where: {clouds: [aws]}",
    "command": "train: {script: train.py}",
    "cpus": "resources: {cpu: 8}",
    "disk_size": "",
    "envs": "train: {env: {NAME: value}}",
    "environment": "train: {env: {NAME: value}}",
    "gpus": "resources: {gpu: H100:8}",
    "image": "",
    "image_id": "",
    "instance_type": "resources: {gpu: H100:8}",
    "learning_rate": "train: {args: {learning_rate: 3.0e-4}}",
    "lr": "train: {args: {lr: 3.0e-4}}",
    "max_retries": "retries: 5",
    "max_steps": "train: {steps: 20000}",
    "num_gpus": "resources: {gpu: H100:8}",
    "num_nodes": "resources: {nodes: 1}",
    "preemptible": "capacity: [spot]",
    "priority": "",
    "provider": "where: {clouds: [aws]}",
    "providers": "where: {clouds: [aws]}",
    "python_version": "",
    "region": "where: {regions: [us-east-1]}",
    "run": "train: {script: train.py}",
    "spot": "capacity: [spot]",
    "spot_policy": "capacity: [spot]",
    "time_limit": "max_duration: 72h",
    "timeout": "max_duration: 72h",
    "use_spot": "capacity: [spot]",
    "zone": "where: {regions: [us-east-1]}",
    "zones": "where: {regions: [us-east-1]}",
}
"""What to write for the word of another tool; empty where a job file has nothing for it."""


def unknown_field_hint(loc: Loc, besides: Iterable[str] = ()) -> str:
    """What to do about the unknown field at `loc`: the like-named one beside it, the section that has one of this name,
    or what to write for another tool's word. `besides` are fields that this place has beside those of a job file."""
    name, sections = str(loc[-1]), _sections()
    home = tuple(part for part in loc[:-1] if isinstance(part, str))
    fields = [*besides, *sections.get(home, JobFile).model_fields]
    word = name.replace("-", "_").casefold()
    if word in fields:
        return f'did you mean "{word}"?'
    if (instead := _WRITE.get(word)) is not None:
        return f"write {instead}" if instead else "a job file has no such field; delete it"
    if near := did_you_mean(name, fields):
        return near
    for section, model in sections.items():
        if word in model.model_fields:
            return f'did you mean "{".".join((*section, word))}"?'
    return f"valid fields: {', '.join(fields)}"


def _sections() -> dict[tuple[str, ...], type[Section]]:
    found: dict[tuple[str, ...], type[Section]] = {(): JobFile}
    for name, field in JobFile.model_fields.items():
        if model := section_of(field.annotation):
            found[(name,)] = model
    return found


def section_of(annotation: Any) -> type[Section] | None:
    """The section that a field's type holds, alone or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    if get_origin(annotation) in (tuple, Union, UnionType):
        for inner in get_args(annotation):
            if model := section_of(inner):
                return model
    return None
