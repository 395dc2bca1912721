"""Fields of the job file by their place: an example of each; and for an unknown field the field that was probably
meant, by its spelling or because another tool calls it so."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from orchestrator.errors import nearest
from orchestrator.jobfile.schema import JobFile, Section, TrainSection
from orchestrator.jobfile.source.source_map import Loc

TRAIN = "train: {script: train.py}"
_WRITE: Mapping[str, str] = {
    "accelerators": "resources: {gpu: H100:8}",
    "batch_size": "train: {args: {batch_size: 32}}",
    "cloud": "where: {clouds: [aws]}",
    "command": TRAIN,
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
    "run": TRAIN,
    "spot": "capacity: [spot]",
    "spot_policy": "capacity: [spot]",
    "time_limit": "max_duration: 72h",
    "timeout": "max_duration: 72h",
    "use_spot": "capacity: [spot]",
    "zone": "where: {regions: [us-east-1]}",
    "zones": "where: {regions: [us-east-1]}",
}
"""What to write instead of another tool's field; empty if a job file has no such thing."""

OF_GROUPS: Mapping[str, str] = {
    **dict.fromkeys(
        ("group", "jobs", "policy", "defaults"), "only a group file, which lists several `jobs`, has this field"
    ),
    **dict.fromkeys(("file", "weight", "after", "matrix"), "write it in an entry of `jobs` in a group file"),
}
"""What to do about a field of group files."""


SECTIONS: frozenset[Loc] = frozenset(
    {("labels",), ("train", "env")}
    | {(name,) for name, field in JobFile.model_fields.items() if "'section'" in str(field.json_schema_extra)}
)
"""The fields whose value must be a mapping."""


def unknown_field_hint(loc: Loc, besides: Iterable[str] = ()) -> str:
    """The remedy for the unknown field at `loc`: a field of a similar name in the same section, the section that has a
    field of this name, or what to write instead of another tool's field. `besides` are fields that this place has in
    addition to those of a job file."""
    fields = _beside(loc, besides)
    word = _folded(loc)
    if len(loc) == 1 and word in OF_GROUPS and word not in fields:
        return OF_GROUPS[word]
    if (instead := _WRITE.get(word)) is not None and word not in fields:
        return f"write {instead}" if instead else "a job file has no such field; delete it"
    if (meant := meant_field(loc, besides)) is None:
        return f"valid fields: {', '.join(fields)}"
    if meant[:-1] == loc[:-1]:
        return f'did you mean "{meant[-1]}"?'
    return f"it belongs {f'in {meant[0]}' if meant[:-1] else 'at the top level'}, such as {_shown(_written(meant))}"


def meant_field(loc: Loc, besides: Iterable[str] = ()) -> Loc | None:
    """The place of the field that was probably meant by the unknown field at `loc`; None if there is none."""
    fields, word = _beside(loc, besides), _folded(loc)
    if word in fields:
        return (*loc[:-1], word)
    sections = _sections().items()
    if elsewhere := next(((*section, word) for section, model in sections if word in model.model_fields), None):
        return elsewhere
    near = nearest(str(loc[-1]), fields) if word not in _WRITE else ""
    return (*loc[:-1], near) if near else None


def _folded(loc: Loc) -> str:
    return str(loc[-1]).replace("-", "_").casefold()


def _beside(loc: Loc, besides: Iterable[str]) -> list[str]:
    home = tuple(part for part in loc[:-1] if isinstance(part, str))
    return [*besides, *_sections().get(home, JobFile).model_fields]


def example_hint(loc: Loc, model: type[Section] = JobFile) -> str:
    """`write it like "steps: 20000"`, of the innermost field of `model` that is at `loc` or around it; empty if there
    is none."""
    found = ""
    for part in loc:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        if field is None:
            break
        found = f"{part}: {_example(field)}"
        section = section_of(field.annotation)
        if section is None:
            break
        model = section
    return f"write it like {_shown(found)}" if found else ""


def allowed_hint(loc: Loc, model: type[Section] = JobFile) -> str:
    """`0 to 1,000`: the numbers that the field at `loc` may have; empty if it has no limits on both sides."""
    field: FieldInfo | None = None
    for part in loc:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        if field is None or (section := section_of(field.annotation)) is None:
            break
        model = section
    limits = {} if field is None else {type(each): each for each in field.metadata}
    least, most = limits.get(Ge), limits.get(Le)
    return f"{least.ge:,} to {most.le:,}" if isinstance(least, Ge) and isinstance(most, Le) else ""


def _shown(text: str) -> str:
    """What to write, in quotes if it has none."""
    return text if '"' in text else json.dumps(text)


def _written(loc: Loc) -> str:
    """A field with its example, in its section: `train: {steps: 20000}`."""
    model = _sections()[tuple(part for part in loc[:-1] if isinstance(part, str))]
    field = f"{loc[-1]}: {_example(model.model_fields[str(loc[-1])])}"
    if len(loc) == 1:
        return field
    listed = get_origin(JobFile.model_fields[str(loc[0])].annotation) is tuple
    return f"{loc[0]}: [{{{field}}}]" if listed else f"{loc[0]}: {{{field}}}"


def _example(field: FieldInfo) -> str:
    """The example of a field; of a section, its required fields, or else its first field."""
    if field.examples and field.examples[0]:
        return str(field.examples[0])
    model = section_of(field.annotation)
    if model is None:
        return ""
    if model is TrainSection:
        return TRAIN.partition(": ")[2]
    inner = model.model_fields
    shown = [name for name, each in inner.items() if each.is_required()] or [next(iter(inner))]
    text = f"{{{', '.join(f'{name}: {_example(inner[name])}' for name in shown)}}}"
    return f"[{text}]" if get_origin(field.annotation) is tuple else text


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
