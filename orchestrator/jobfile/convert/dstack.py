"""A task of dstack -> a job file. Fields have the meaning of dstack's reference of `type: task`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from orchestrator.errors import did_you_mean
from orchestrator.jobfile.convert.draft import STARTED_BY_RANK, Draft
from orchestrator.jobfile.convert.machines import (
    CLOUDS,
    gibibytes,
    gpus_of,
    is_pattern,
    kinds_named,
    kinds_with_memory,
)
from orchestrator.jobfile.convert.mounts import add_volume
from orchestrator.jobfile.convert.shapes import (
    COUNT,
    DURATION,
    LIST,
    MAPPING,
    MAPPING_OR_FLAG,
    MAPPING_OR_LIST,
    SPOT_POLICY,
    TEXT,
    note_odd_values,
)
from orchestrator.jobfile.source.source_map import Loc
from orchestrator.jobfile.units import BadValueError, parse_duration
from orchestrator.jobfile.values import PythonVersion
from providers.hardware import GPUS, canonical_gpu

_CONVERTED = (
    *("type", "name", "nodes", "commands", "env", "resources", "backends", "regions", "spot_policy", "max_duration"),
    *("python", "retry", "files", "repos", "working_dir", "tags", "instance_types"),
)
_SHAPES = {
    "working_dir": TEXT,
    "max_duration": DURATION,
    **dict.fromkeys(("resources", "tags"), MAPPING),
    **dict.fromkeys(("commands", "backends", "regions", "instance_types", "files", "repos"), LIST),
    "env": MAPPING_OR_LIST,
    "nodes": COUNT,
    "retry": MAPPING_OR_FLAG,
    "spot_policy": SPOT_POLICY,
}
_NO_CONTAINER = ("jobs run in the machine's own Python, without a container", "")
_NO_POOL = ("a machine is rented for one job and released after it", "")
_LEFT_OUT = {
    "availability_zones": ("you cannot choose zones", "set where.regions"),
    "creation_policy": _NO_POOL,
    "docker": _NO_CONTAINER,
    "entrypoint": _NO_CONTAINER,
    "fleets": _NO_POOL,
    "home_dir": _NO_CONTAINER,
    "idle_duration": _NO_POOL,
    "image": _NO_CONTAINER,
    "instance_name": _NO_POOL,
    "max_price": ("there is no limit on the hourly price", 'limit the cost of the whole job: "budget: 250 USD"'),
    "nvcc": _NO_CONTAINER,
    "pool_name": _NO_POOL,
    "ports": ("a job opens no ports", ""),
    "priority": ("jobs have no priority", ""),
    "privileged": _NO_CONTAINER,
    "registry_auth": _NO_CONTAINER,
    "reservation": ("reservations are not used", ""),
    "schedule": ("jobs are not repeated", "submit the job when it should run"),
    "setup": ("has no effect in dstack", ""),
    "shell": ("commands are not run in a shell", ""),
    "single_branch": ("Tradewind clones no repository", ""),
    "startup_order": ("a job runs on one node", ""),
    "stop_criteria": ("a job runs on one node", ""),
    "stop_duration": ("a program that must stop has 5 seconds to save", ""),
    "termination_idle_time": _NO_POOL,
    "termination_policy": _NO_POOL,
    "user": _NO_CONTAINER,
    "utilization_policy": ("low utilization does not end a job", "train.stall_after ends a job that stalls"),
    "volumes": ("volumes are not mounted", "keep results in run.output_dir"),
}
_GPU_VENDORS = frozenset({"nvidia"})
_OTHER_VENDORS = frozenset({"amd", "google", "tpu", "intel", "tenstorrent"})
_MOST_MEMORY_GB = 10_000.0


def from_dstack(draft: Draft, task: Mapping[str, Any], otherwise: str) -> tuple[dict[str, str], int | None]:
    """Fill the draft with everything except the code and the commands. `otherwise` is the name if the task has none.

    Returns the variables that commands may use, and the number of GPUs if it is known.
    """
    draft.add_name(task.get("name"), otherwise)
    for name, value in task.items():
        if name in _LEFT_OUT:
            if value not in (None, False, []):
                draft.left_out((name,), *_LEFT_OUT[name])
        elif name not in _CONVERTED:
            draft.left_out(
                (name,), "is not a field of a dstack task either", did_you_mean(name, (*_CONVERTED, *_LEFT_OUT))
            )
    for path in _volume_paths(task.get("volumes")):
        add_volume(draft, path)
    note_odd_values(draft, task, _SHAPES)
    draft.add_labels(task.get("tags"), ("tags",))
    _add_python(draft, task.get("python"))
    known = dict(_variables(draft, task.get("env")))
    resources = task.get("resources")
    wanted: dict[str, Any] = {}
    gpus = _add_resources(draft, resources if isinstance(resources, dict) else {}, wanted)
    _instance_types(draft, task.get("instance_types"), wanted)
    draft.job |= {"resources": wanted} if wanted else {}
    _add_capacity(draft, task.get("spot_policy"))
    _add_where(draft, task)
    _add_limits(draft, task)
    nodes = task.get("nodes")
    if isinstance(nodes, int) and nodes > 1:
        draft.job.setdefault("resources", {})["nodes"] = nodes
        draft.to_do(("nodes",), *STARTED_BY_RANK)
        known |= {"DSTACK_NODES_NUM": str(nodes)}
    else:
        known |= {"DSTACK_NODES_NUM": "1", "DSTACK_NODE_RANK": "0"}
    if gpus is not None:
        known |= {
            "DSTACK_GPUS_PER_NODE": str(gpus),
            "DSTACK_GPUS_NUM": str(gpus * (nodes if isinstance(nodes, int) else 1)),
        }
    return known, gpus


def _volume_paths(volumes: object) -> Iterator[str]:
    """Where volumes are mounted: `name:/path`, or a mapping with `path`."""
    for each in volumes if isinstance(volumes, list) else ():
        path = each.get("path") if isinstance(each, dict) else str(each).rpartition(":")[2]
        if path:
            yield str(path)


def _add_python(draft: Draft, version: object) -> None:
    if version is None:
        return
    try:
        draft.train["python"] = TypeAdapter(PythonVersion).validate_python(str(version))
    except ValidationError:
        draft.left_out(("python",), f"{version} is not a supported Python version", "write \"python: '3.12'\"")
    else:
        hint = "delete train.python to use the Python of the machine, which has torch"
        draft.changed(("python",), "the machine must have it installed", hint)


def _variables(draft: Draft, env: object) -> Iterator[tuple[str, str]]:
    """The variables of a mapping, or of a list of NAME=VALUE and NAME; NAME takes its value from the environment."""
    items: list[tuple[str, object, Loc]] = []
    if isinstance(env, dict):
        items = [(str(name), value, ("env", name)) for name, value in env.items()]
    elif isinstance(env, list):
        for index, each in enumerate(env):
            variable, equals, text = str(each).partition("=")
            items.append((variable.strip(), text if equals else None, ("env", index)))
    for name, value, loc in items:
        kept = draft.add_variable(name, value, loc)
        if kept is not None:
            yield name, kept


def _add_resources(draft: Draft, resources: Mapping[str, Any], wanted: dict[str, Any]) -> int | None:
    """Returns the number of GPUs of a machine if it is known."""
    gpus = None
    for name, value in resources.items():
        loc: Loc = ("resources", name)
        if value is None:
            continue
        if name == "gpu":
            gpus = _add_gpu(draft, value, loc, wanted)
        elif name == "cpu":
            _add_cpu(draft, value, loc, wanted)
        elif name == "memory":
            low = _least(draft, value, loc)
            size = gibibytes(low) if low else None
            if size is not None:
                wanted["memory"] = size
            else:
                draft.left_out(loc, "has no minimum size", 'write "memory: 64 GiB" under resources')
        elif name == "disk":
            draft.left_out(
                loc, "the disk's size follows from the job's data and checkpoints, and disk_gb of the provider"
            )
        elif name == "shm_size":
            draft.left_out(loc, "shared memory is not limited, because there is no container")
        else:
            draft.left_out(loc, "is not a dstack field either", did_you_mean(name, ("gpu", "cpu", "memory", "disk")))
    return gpus


def _least(draft: Draft, value: object, loc: Loc) -> str:
    """The lower end of a number or range: `2..8`, `16GB..`, {min: 2, max: 8}; empty if it has none."""
    if isinstance(value, dict):
        low, high = value.get("min"), value.get("max")
        text, ends = str(low if low is not None else ""), low != high
    else:
        text, dots, after = str(value).replace(" ", "").partition("..")
        ends = bool(dots)
        high = after or None
    if ends and high is not None:
        draft.changed(loc, f"the upper limit {high} is left out")
    elif not ends:
        draft.changed(loc, "means at least this much here, not exactly")
    return text


def _add_cpu(draft: Draft, value: object, loc: Loc, wanted: dict[str, Any]) -> None:
    count: object
    if isinstance(value, dict):
        arch, count = str(value.get("arch", "x86")), value.get("count", "")
    else:
        arch, _, count = str(value).rpartition(":")
    if arch not in ("", "x86"):
        draft.left_out(loc, f"{arch}: you cannot choose the architecture")
    low = _least(draft, count, loc) if count != "" else ""
    if low.isdecimal() and int(low) > 0:
        wanted["cpu"] = int(low)


def _add_gpu(draft: Draft, value: object, loc: Loc, wanted: dict[str, Any]) -> int | None:
    """`A100:80GB:2`, `24GB..40GB`, `A10G,A100`, a number, or a mapping of the same. Returns the number of GPUs."""
    spec = _gpu_spec(value)
    count_text = _least(draft, spec["count"], loc) if ".." in spec["count"] else spec["count"]
    count = int(count_text) if count_text.isdecimal() else 1
    if count == 0:
        return None
    for extra in ("total_memory", "compute_capability"):
        if spec[extra]:
            draft.left_out((*loc, extra), "GPUs are chosen by name or by memory per GPU")
    if spec["vendor"] in _OTHER_VENDORS and not spec["name"]:
        draft.to_do(loc, f"GPUs of {spec['vendor']} are chosen by name", "name GPUs in resources.gpu")
        wanted["gpu"] = spec["vendor"]
        return None
    low, high = _memory_range(spec["memory"])
    kinds: list[str] = []
    for name in filter(None, spec["name"].split(",")):
        found = kinds_named(name)
        if spec["memory"] and low == high and (exact := canonical_gpu(f"{name}-{low:g}GB")):
            found = [exact]
        elif spec["memory"]:
            found = [kind for kind in found if low <= GPUS[kind].memory_bytes / 1e9 <= high]
        if not found:
            draft.left_out(loc, f"{name} is not offered", did_you_mean(name, GPUS))
        kinds += found
    if spec["name"] and not kinds:
        draft.to_do(loc, "Tradewind knows none of these", "name GPUs in resources.gpu: tradewind offers lists them")
        kinds = spec["name"].split(",")
    if not spec["name"]:
        kinds = kinds_with_memory(low, high)
        draft.changed(loc, f"lists every kind of GPU that fits ({len(kinds)})", "delete the kinds that you do not want")
    gpus = [f"{kind}:{count}" if count > 1 else kind for kind in dict.fromkeys(kinds)]
    if gpus:
        wanted["gpu"] = gpus[0] if len(gpus) == 1 else gpus
    return count if gpus else None


def _gpu_spec(value: object) -> dict[str, str]:
    spec = dict.fromkeys(("vendor", "name", "memory", "count", "total_memory", "compute_capability"), "")
    if isinstance(value, dict):
        for key in spec:
            part = value.get(key)
            if isinstance(part, list):
                spec[key] = ",".join(map(str, part))
            elif isinstance(part, dict):
                spec[key] = f"{part.get('min') or ''}..{part.get('max') or ''}"
            elif part is not None:
                spec[key] = str(part)
        spec["vendor"] = spec["vendor"].lower()
        return spec
    for token in str(value).replace(" ", "").split(":"):
        if token.lower() in _GPU_VENDORS | _OTHER_VENDORS:
            spec["vendor"] = token.lower()
        elif token[:1].isalpha():
            spec["name"] = token
        elif re.search(r"[A-Za-z]", token):
            spec["memory"] = token
        else:
            spec["count"] = token
    return spec


def _memory_range(text: str) -> tuple[float, float]:
    """The lowest and highest memory of one GPU in GB."""
    low, dots, high = text.partition("..")
    least = _gb(low, 0.0)
    return least, _gb(high, _MOST_MEMORY_GB) if dots or not text else least


def _gb(text: str, otherwise: float) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(gb|tb|mb)?", text.strip().lower())
    return otherwise if match is None else float(match[1]) * {"tb": 1024, "mb": 1 / 1024}.get(match[2] or "", 1)


def _instance_types(draft: Draft, names: object, wanted: dict[str, Any]) -> None:
    if not isinstance(names, list) or not names:
        return
    gpus = [gpu.removesuffix(":1") for name in names if (gpu := gpus_of(str(name)))]
    if gpus and "gpu" not in wanted:
        wanted["gpu"] = gpus[0] if len(set(gpus)) == 1 else list(dict.fromkeys(gpus))
        draft.changed(("instance_types",), "any machine with these GPUs is allowed", "tradewind offers lists them")
    else:
        draft.left_out(
            ("instance_types",), "a job file does not name machine types", "write resources: gpu, cpu, memory"
        )


def _add_capacity(draft: Draft, policy: object) -> None:
    capacity = {"spot": ["spot"], "auto": ["spot", "on_demand"]}.get(str(policy), ["on_demand"])
    draft.job["capacity"] = capacity
    if policy is None:
        hint = "write [spot, on_demand] to save money: a program that calls trainers.attach() survives preemptions"
        draft.changed(("type",), "without spot_policy, dstack rents on demand, so capacity is on_demand", hint)


def _add_where(draft: Draft, task: Mapping[str, Any]) -> None:
    where: dict[str, Any] = {}
    backends = task.get("backends")
    if isinstance(backends, list):
        clouds = [CLOUDS.get(str(name)) for name in backends]
        for index, name in enumerate(backends):
            if clouds[index] is None:
                draft.left_out(("backends", index), f"{name} is not a known cloud")
        if kept := [cloud for cloud in clouds if cloud]:
            where["clouds"] = list(dict.fromkeys(kept))
        elif names := [str(name) for name in backends if is_pattern(str(name))]:
            where["clouds"] = names
            hint = "set where.clouds, or leave it out for all enabled clouds"
            draft.to_do(("backends",), "Tradewind knows none of these clouds", hint)
    regions = task.get("regions")
    if isinstance(regions, list) and (names := [str(name) for name in regions if is_pattern(str(name))]):
        where["regions"] = list(dict.fromkeys(names))
    draft.job |= {"where": where} if where else {}


def _add_limits(draft: Draft, task: Mapping[str, Any]) -> None:
    longest = task.get("max_duration")
    if isinstance(longest, int) and not isinstance(longest, bool):
        longest = f"{longest}s"
    if isinstance(longest, str) and longest != "off":
        try:
            parse_duration(longest)
            draft.job["max_duration"] = longest
            draft.changed(("max_duration",), "counts only training time, not the wait for machines")
        except BadValueError:
            draft.left_out(("max_duration",), "is not a duration", 'write it like "48h"')
    retry = task.get("retry")
    events = retry.get("on_events", ["error"]) if isinstance(retry, dict) else None
    if retry is False or (isinstance(events, list) and "error" not in events):
        draft.job["retries"] = 0
    if isinstance(retry, dict) and retry.get("duration") is not None:
        message = "a job waits for machines without a limit; after its own errors it gets a fixed number of retries"
        draft.left_out(("retry", "duration"), message, 'set "retries" or "deadline"')
