"""Converts the files and folders that a task file mounts to the `data` of a job file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.jobfile.checks import COPY_DATA, OBJECT_STORES, scheme
from orchestrator.jobfile.convert.draft import Draft
from orchestrator.jobfile.source.source_map import Loc

_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)
_CHECKPOINTS = re.compile(r"(?i)ckpt|checkpoint")
_RESULTS = re.compile(r"(?i)output|result|artifact")
_FOR_CHECKPOINTS = 'let the program write checkpoints to os.environ["TRADEWIND_CHECKPOINT_DIR"], or attach'
_FOR_RESULTS = 'let the program write results to os.environ["TRADEWIND_OUTPUT_DIR"]'
_FOR_DATA_OR_RESULTS = f'{COPY_DATA}; results go to os.environ["TRADEWIND_OUTPUT_DIR"]'
_STORES = {"s3": "s3", "gcs": "gs"}


def substituted(text: str, known: Mapping[str, str]) -> str:
    """`text` with `${NAME}` and `$NAME` replaced by their values, if they have one."""
    return _VARIABLE.sub(lambda match: known.get(match[1] or match[2], match[0]), text)


def add_mount(draft: Draft, loc: Loc, target: str, source: object) -> None:
    """`source` (a path, a URL, or SkyPilot's description of a bucket or volume) is mounted at `target`."""
    store = None
    writable = False
    if isinstance(source, dict):
        if source.get("store") == "volume":
            draft.left_out(loc, "volumes are not mounted", "keep results in run.output_dir")
            add_volume(draft, target)
            return
        writable = str(source.get("mode", "MOUNT")).upper() != "COPY"
        store = _STORES.get(str(source.get("store", "")).lower())
        source = _located(source, store)
    if isinstance(source, list):
        for each in source:
            add_mount(draft, loc, target, each)
        return
    if writable and _CHECKPOINTS.search(target):
        hint = "call trainers.attach(); checkpoint.to sets where they are stored"
        draft.left_out(loc, "checkpoints are kept by Tradewind", hint)
        draft.unmounted[target] = _FOR_CHECKPOINTS
    elif not isinstance(source, str) or not source or (writable and _RESULTS.search(target)):
        hint = 'write to run.output_dir and list it: "outputs: [{path: runs/}]"'
        draft.left_out(loc, "an empty or shared folder for results is not mounted", hint)
        draft.unmounted[target] = _FOR_RESULTS
    else:
        _add_data(draft, loc, target, source, writable)


def add_volume(draft: Draft, target: str) -> None:
    """Note that a volume is not mounted at `target`. Only its name may show what it is for."""
    remedy = _FOR_DATA_OR_RESULTS
    if _CHECKPOINTS.search(target):
        remedy = _FOR_CHECKPOINTS
    elif _RESULTS.search(target):
        remedy = _FOR_RESULTS
    draft.unmounted[target] = remedy


def _located(source: Mapping[str, Any], store: str | None) -> object:
    if source.get("source"):
        return source["source"]
    name = source.get("name")
    return f"{store}://{name}" if name and store else None


def _add_data(draft: Draft, loc: Loc, target: str, source: str, writable: bool) -> None:
    url = scheme(source)
    if "$" in target or "$" in source:
        draft.left_out(loc, "has a variable whose value is known only at run time", "write data: source and mount")
    elif url is not None and url not in OBJECT_STORES:
        draft.left_out(loc, f"{url}:// is not a source of data", COPY_DATA)
    elif not target.startswith("/"):
        hint = "name its path in train.args, or write data: source and mount"
        draft.left_out(loc, f"{target}: data needs an absolute path", hint)
    else:
        draft.job.setdefault("data", []).append({"source": source, "mount": target})
        if url is not None:
            draft.to_do(loc, "not supported yet: fetching data from object stores", COPY_DATA)
        elif source != target:
            draft.to_do(loc, "not supported yet: mounting data at another path", "set mount to its source path")
        if writable:
            draft.changed(loc, "is read-only", "write results to run.output_dir and name them in outputs")
