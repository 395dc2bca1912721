"""A task file of SkyPilot -> a job file. Fields have the meaning of SkyPilot's YAML reference."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.errors import did_you_mean
from orchestrator.jobfile.convert.draft import STARTED_BY_RANK, Draft
from orchestrator.jobfile.convert.machines import CLOUDS, gibibytes, gpus_of, is_pattern
from orchestrator.jobfile.convert.mounts import add_mount, add_volume, substituted
from orchestrator.jobfile.convert.shapes import (
    COUNT,
    MAPPING,
    MAPPING_OR_TEXT,
    MAPPINGS,
    SPOT,
    TEXT,
    note_odd_values,
)
from orchestrator.jobfile.source.source_map import Loc
from orchestrator.jobfile.units import parse_size
from providers.hardware import GPUS, canonical_gpu

FIELDS = (
    *(
        "name",
        "workdir",
        "num_nodes",
        "resources",
        "envs",
        "secrets",
        "file_mounts",
        "setup",
        "run",
        "config",
        "service",
    ),
    *("volumes", "pool", "inputs", "outputs", "event_callback", "experimental"),
)
_RESOURCES = (
    *("accelerators", "gpus", "cpus", "memory", "infra", "cloud", "region", "zone", "use_spot", "instance_type"),
    *("job_recovery", "labels", "any_of", "ordered"),
)
_PLACE = ("infra", "cloud", "region", "zone")
_SHAPES = {
    **dict.fromkeys(("resources", "envs", "secrets", "file_mounts"), MAPPING),
    "workdir": MAPPING_OR_TEXT,
    "num_nodes": COUNT,
}
_RESOURCE_SHAPES = {
    **dict.fromkeys(("cpus", "memory", "instance_type", *_PLACE), TEXT),
    "use_spot": SPOT,
    "job_recovery": MAPPING_OR_TEXT,
    "labels": MAPPING,
    "any_of": MAPPINGS,
    "ordered": MAPPINGS,
}
_NO_DISK = "the disk's size follows from the job's data and checkpoints, and disk_gb of the provider"
_LEFT_OUT = {
    "accelerator_args": ("TPUs are not offered", ""),
    "autostop": ("a machine is released as soon as its job ends or moves", ""),
    "disk_size": (_NO_DISK, ""),
    "disk_tier": (_NO_DISK, ""),
    "ephemeral_storage": (_NO_DISK, ""),
    "hooks": ("a job has no hooks", "trainers.attach() saves before a machine is lost"),
    "image_id": ("jobs run in the machine's own Python, without your container or image", ""),
    "local_disk": (_NO_DISK, ""),
    "max_hourly_cost": ("there is no limit on the hourly price", 'limit the cost of the whole job: "budget: 250 USD"'),
    "network_tier": ("you cannot choose networks", ""),
    "ports": ("a job opens no ports", ""),
    "priority": ("jobs have no priority", ""),
    "priority_class": ("jobs have no priority", ""),
    "volumes": ("volumes are not mounted", "keep results in run.output_dir"),
    "config": ("settings are not in a job file", "see tradewind config show"),
    "event_callback": ("there are no callbacks for events", "read them with tradewind events"),
    "pool": ("there are no pools of machines", ""),
    "inputs": ("data comes from file_mounts", ""),
    "outputs": ("results are named in a job file's outputs", ""),
    "experimental": ("settings are not in a job file", ""),
}


@dataclass(slots=True)
class _Wanted:
    """One alternative of `resources`."""

    gpus: list[str] = field(default_factory=list)
    cloud: str = ""
    unknown_cloud: str = ""
    region: str | None = None
    spot: bool = False
    cpu: int | None = None
    memory: str | None = None


def from_skypilot(draft: Draft, task: Mapping[str, Any], otherwise: str) -> tuple[dict[str, str], int | None]:
    """Fill the draft with everything except `workdir`, `setup` and `run`. `otherwise` is the name if the task has none.

    Returns the variables that commands may use, and the number of GPUs if it is known.
    """
    draft.add_name(task.get("name"), otherwise)
    for name in task:
        if name not in FIELDS:
            draft.left_out((name,), "is not a SkyPilot field either", did_you_mean(name, FIELDS))
        elif name in _LEFT_OUT and task[name]:
            draft.left_out((name,), *_LEFT_OUT[name])
    note_odd_values(draft, task, _SHAPES)
    known = dict(_variables(draft, task.get("envs")))
    secrets = task.get("secrets")
    if isinstance(secrets, dict):
        draft.add_secrets(((str(name), bool(value)) for name, value in secrets.items()), ("secrets",))
    mounts = task.get("file_mounts")
    for target, source in mounts.items() if isinstance(mounts, dict) else ():
        add_mount(draft, ("file_mounts", target), substituted(target, known), _mount_source(source, known))
    volumes = task.get("volumes")
    for path in map(str, volumes if isinstance(volumes, dict) else ()):
        add_volume(draft, path)
    resources = task.get("resources")
    gpus = _add_resources(draft, resources if isinstance(resources, dict) else {})
    nodes = task.get("num_nodes")
    if isinstance(nodes, int) and nodes > 1:
        draft.job.setdefault("resources", {})["nodes"] = nodes
        draft.to_do(("num_nodes",), *STARTED_BY_RANK)
        known |= {"SKYPILOT_NUM_NODES": str(nodes)}
    else:
        known |= {"SKYPILOT_NUM_NODES": "1", "SKYPILOT_NODE_RANK": "0"}
    return known | ({} if gpus is None else {"SKYPILOT_NUM_GPUS_PER_NODE": str(gpus)}), gpus


def _variables(draft: Draft, envs: object) -> Iterator[tuple[str, str]]:
    for name, value in envs.items() if isinstance(envs, dict) else ():
        text = draft.add_variable(str(name), value, ("envs", name))
        if text is not None:
            yield str(name), text


def _mount_source(source: object, known: Mapping[str, str]) -> object:
    if isinstance(source, str):
        return substituted(source, known)
    if isinstance(source, dict):
        return {key: substituted(value, known) if isinstance(value, str) else value for key, value in source.items()}
    return source


def _add_resources(draft: Draft, resources: Mapping[str, Any]) -> int | None:
    """Returns the number of GPUs of a machine if it is known."""
    note_odd_values(draft, {key: resources.get(key) for key in ("any_of", "ordered")}, _RESOURCE_SHAPES, ("resources",))
    base = {key: value for key, value in resources.items() if key not in ("any_of", "ordered")}
    _pass_over(draft, base, ("resources",))
    wanted: list[_Wanted] = []
    for choice in ("any_of", "ordered"):
        choices = resources.get(choice)
        for index, item in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(item, dict):
                loc: Loc = ("resources", choice, index)
                _pass_over(draft, item, loc)
                outside = {k: v for k, v in base.items() if not (k in _PLACE and any(p in item for p in _PLACE))}
                outside = {k: v for k, v in outside.items() if not (k in ("accelerators", "gpus") and _gpus_in(item))}
                wanted.append(_one(draft, {k: (v, (*loc, k)) for k, v in item.items()}, outside))
    if isinstance(resources.get("ordered"), list):
        draft.changed(
            ("resources", "ordered"), "the order is not kept", "the objective decides; the default is cheapest"
        )
    wanted = wanted or [_one(draft, {}, base)]
    _combine(draft, wanted, ("resources", "any_of" if "any_of" in resources else "ordered"))
    if not any("use_spot" in each for each in (base, *_choices(resources))):
        hint = "write [spot, on_demand] to save money: a program that calls trainers.attach() survives preemptions"
        draft.changed(("resources",), "without use_spot, SkyPilot rents on demand, so capacity is on_demand", hint)
    counts = {gpu.partition(":")[2] or "1" for each in wanted for gpu in each.gpus}
    count = counts.pop() if len(counts) == 1 else ""
    return int(count) if count.isdecimal() else None


def _choices(resources: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    lists = [each for name in ("any_of", "ordered") if isinstance(each := resources.get(name), list)]
    return [item for each in lists for item in each if isinstance(item, dict)]


def _gpus_in(item: Mapping[str, Any]) -> bool:
    return "accelerators" in item or "gpus" in item


def _pass_over(draft: Draft, fields: Mapping[str, Any], loc: Loc) -> None:
    """Note the fields that a job file does not have, and values without effect."""
    note_odd_values(draft, fields, _RESOURCE_SHAPES, loc)
    for name, value in fields.items():
        if name in _LEFT_OUT:
            if value not in (None, False):
                draft.left_out((*loc, name), *_LEFT_OUT[name])
        elif name not in _RESOURCES:
            hint = did_you_mean(name, (*_RESOURCES, *_LEFT_OUT))
            draft.left_out((*loc, name), "is not a SkyPilot field either", hint)
    draft.add_labels(fields.get("labels"), (*loc, "labels"))
    recovery = fields.get("job_recovery")
    if isinstance(recovery, dict):
        note_odd_values(draft, recovery, {"max_restarts_on_errors": COUNT}, (*loc, "job_recovery"))
        if isinstance(restarts := recovery.get("max_restarts_on_errors"), int):
            draft.job["retries"] = restarts
    if isinstance(recovery, str) or (isinstance(recovery, dict) and recovery.get("strategy")):
        message = "after a preemption, a job moves to the offer that is best then"
        draft.left_out((*loc, "job_recovery"), message)


def _one(draft: Draft, own: Mapping[str, tuple[Any, Loc]], base: Mapping[str, Any]) -> _Wanted:
    """One alternative, from its `own` fields with their places, and the common fields of `resources`."""
    fields = {name: (value, ("resources", name)) for name, value in base.items()} | dict(own)
    wanted = _Wanted()
    for name, (value, loc) in fields.items():
        if value is None or (name in _RESOURCE_SHAPES and not _RESOURCE_SHAPES[name][0](value)):
            continue
        if name in ("accelerators", "gpus"):
            wanted.gpus = list(_gpus(draft, value, loc))
        elif name == "instance_type":
            _instance_type(draft, str(value), loc, wanted)
        elif name == "use_spot":
            wanted.spot = value is True
        elif name == "cpus":
            wanted.cpu = _cpus(draft, str(value), loc)
        elif name == "memory":
            wanted.memory = _memory(draft, str(value), loc)
        elif name in _PLACE:
            _place(draft, name, str(value), loc, wanted)
    return wanted


def _gpus(draft: Draft, value: object, loc: Loc) -> Iterator[str]:
    """`H100:8`, a list or a set of such names, or a mapping of names to counts -> `H100:8` in our names."""
    if isinstance(value, str) and value.strip().startswith(("{", "[")):
        value = [each.strip(" '\"") for each in value.strip(" {}[]").split(",")]
    if isinstance(value, dict):
        items = [(str(name), None if count is None else str(count)) for name, count in value.items()]
    else:
        items = [(str(each), None) for each in (value if isinstance(value, list) else [value])]
    if isinstance(value, list) and len(value) > 1:
        draft.changed(loc, "the order is not kept", "the objective decides; the default is cheapest")
    if not any(canonical_gpu(text.partition(":")[0]) for text, _ in items):
        draft.to_do(loc, "Tradewind knows none of these", "name GPUs in resources.gpu: tradewind offers lists them")
        yield from (text for text, _ in items)
        return
    for text, count in items:
        name, _, after = text.partition(":")
        gpu = canonical_gpu(name)
        number = count or after or "1"
        if gpu is None:
            draft.left_out(loc, f"{name} is not offered", did_you_mean(name, GPUS) or "nor are TPUs and other chips")
        elif not re.fullmatch(r"\d{1,4}(\.\d+)?", number) or float(number) == 0:
            draft.left_out(loc, f"{text}: this is not a number of GPUs")
        else:
            whole = math.ceil(float(number))
            if whole != float(number):
                draft.changed(loc, f"{text}: only whole GPUs can be rented")
            yield f"{gpu}:{whole}" if whole > 1 else gpu


def _instance_type(draft: Draft, name: str, loc: Loc, wanted: _Wanted) -> None:
    gpu = gpus_of(name)
    if gpu is None:
        draft.left_out(loc, "a job file does not name machine types", "write resources: gpu, cpu, memory")
    else:
        wanted.gpus = wanted.gpus or [gpu.removesuffix(":1")]
        draft.changed(loc, f"any machine with {gpu.replace(':', ' x ')} is allowed", "tradewind offers lists them")


def _cpus(draft: Draft, text: str, loc: Loc) -> int | None:
    match = re.fullmatch(r"(\d{1,4}(?:\.\d+)?)(\+?)", text.strip())
    if match is None or float(match[1]) == 0:
        draft.left_out(loc, "is not a number of CPUs", 'write "cpu: 4" under resources')
        return None
    if not match[2]:
        draft.changed(loc, "means at least this many here, not exactly")
    return math.ceil(float(match[1]))


def _memory(draft: Draft, text: str, loc: Loc) -> str | None:
    size = gibibytes(text.strip().removesuffix("+"))
    if size is None:
        draft.left_out(loc, "is not a size", 'write "memory: 64 GiB" under resources')
    elif not text.strip().endswith("+"):
        draft.changed(loc, "means at least this much here, not exactly")
    return size


def _place(draft: Draft, name: str, text: str, loc: Loc, wanted: _Wanted) -> None:
    cloud, region, zone = "", "", ""
    if name == "infra":
        kubernetes = text.lower().startswith(("k8s", "kubernetes", "ssh", "slurm"))
        cloud, region, zone = (text, "", "") if kubernetes else (*text.split("/"), "", "", "")[:3]
    else:
        cloud, region, zone = ((text if name == each else "") for each in ("cloud", "region", "zone"))
    if cloud not in ("", "*"):
        wanted.cloud = CLOUDS.get(cloud.lower(), "")
        if not wanted.cloud:
            wanted.unknown_cloud = cloud.partition("/")[0]
            draft.to_do(
                loc,
                f"{cloud} is not a known cloud",
                "set where.clouds, or leave it out for all enabled clouds",
            )
    if region not in ("", "*"):
        if is_pattern(region):
            wanted.region = region
        else:
            draft.left_out(loc, f"{region} is not a region name")
    if zone not in ("", "*"):
        draft.left_out(loc, "you cannot choose zones", "set where.regions to its region")


def _combine(draft: Draft, wanted: list[_Wanted], loc: Loc) -> None:
    """Fill in the fields of the job that allow each of the alternatives."""
    resources: dict[str, Any] = {}
    gpus = list(dict.fromkeys(gpu for each in wanted for gpu in each.gpus))
    if gpus:
        resources["gpu"] = gpus[0] if len(gpus) == 1 else gpus
    if cpus := [each.cpu for each in wanted if each.cpu is not None]:
        resources["cpu"] = min(cpus)
    if memories := [each.memory for each in wanted if each.memory is not None]:
        resources["memory"] = min(memories, key=parse_size)
    if len(set(memories)) > 1 or len(set(cpus)) > 1:
        draft.changed(loc, "all alternatives have the same CPUs and memory", "check resources")
    where: dict[str, Any] = {}
    if all(each.cloud or each.unknown_cloud for each in wanted):
        known = [each.cloud for each in wanted if each.cloud]
        where["clouds"] = list(dict.fromkeys(known or [each.unknown_cloud for each in wanted]))
    if all(each.region for each in wanted):
        where["regions"] = list(dict.fromkeys(each.region for each in wanted))
    spot = {each.spot for each in wanted}
    capacity = [name for name, flag in (("spot", True), ("on_demand", False)) if flag in spot]
    kinds = {(tuple(each.gpus), each.cloud, each.region, each.spot) for each in wanted}
    differing = [len({kind[index] for kind in kinds}) > 1 for index in (0, 1, 3)] + [len({k[2] for k in kinds}) > 1]
    if sum(differing) > 1:
        message = "every combination of the alternatives is allowed, not only the listed ones"
        draft.changed(loc, message, "restrict resources.gpu, where or capacity")
    draft.job |= {"resources": resources} if resources else {}
    draft.job["capacity"] = capacity
    draft.job |= {"where": where} if where else {}
