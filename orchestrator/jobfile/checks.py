"""Rules of a job file that concern several fields, or files on this machine.

They read the plain tree, not validated models, so that they also work if other fields are wrong.
"""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable, Collection, Iterator

from orchestrator.jobfile.places import cloud_meant, known_cloud, region_meant
from orchestrator.jobfile.program.arguments import misfits
from orchestrator.jobfile.program.entrypoint import (
    ENTRY_PATTERN,
    entry_problem,
    entry_source,
    has_module,
    script_problem,
)
from orchestrator.jobfile.source.source_map import Finding, Loc, lost_at
from trainers.errors import StoreNotFound
from trainers.objects.services import SERVICES, place_of

OBJECT_STORES = ("s3", "gs", "az")
USE_A_STORE = f"use a path, or one of {', '.join(f'{name}://' for name in OBJECT_STORES)}"
COPY_DATA = "copy the data to this machine and pass its path in train.args"
"""The remedies for an unsupported URL: of checkpoints, and of data (data is not fetched from object stores)."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def check(tree: dict[str, object], base_dir: str, lost: Collection[Loc] = ()) -> Iterator[Finding]:
    """The mistakes in `tree` that are not in a single value. Relative paths are relative to `base_dir`. The values at
    the places `lost` could not be read."""
    if isinstance(tree.get("train"), dict):
        train = _section(tree, "train")
        yield from _check_train(train)
        if "workdir" in train or not lost_at(("train", "workdir"), lost):
            yield from _check_code(train, base_dir)
    yield from _check_resources(_section(tree, "resources"))
    yield from _check_objective(_section(tree, "objective"))
    yield from _check_places(_section(tree, "where"))
    yield from _check_locations(tree, base_dir)
    yield from _check_outputs(tree)


def absolute(path: str, base_dir: str) -> str:
    """The absolute path: `~` is the home folder, other paths are relative to the file's folder."""
    return os.path.abspath(os.path.join(base_dir, os.path.expanduser(path)))


def scheme(location: str) -> str | None:
    """`s3` of `s3://bucket/key`; None for a path."""
    match = _URL.match(location)
    return match[1].lower() if match else None


def _section(tree: dict[str, object], name: str) -> dict[str, object]:
    section = tree.get(name)
    return {k: v for k, v in section.items() if v is not None} if isinstance(section, dict) else {}


def _check_train(train: dict[str, object]) -> Iterator[Finding]:
    entry, script = train.get("entry"), train.get("script")
    if (entry is None) == (script is None):
        wrong = "has neither entry nor script" if entry is None else "has both entry and script"
        hint = 'give one: "entry: module:function" or "script: file.py"'
        either = (("train", "entry"), ("train", "script"))
        yield Finding(("train",), wrong, hint, "key", lacks=either if entry is None else ())
    if "steps" in train and "epochs" in train:
        yield Finding(("train", "epochs"), "cannot be combined with steps", "keep one of the two", "key")
    if entry is not None and script is None and not {"steps", "epochs"} & train.keys():
        hint, either = 'say how long to train, such as "steps: 20000"', (("train", "steps"), ("train", "epochs"))
        yield Finding(("train",), "has neither steps nor epochs", hint, "key", lacks=either)
    if entry is not None and isinstance(train.get("args"), list):
        hint = 'write a mapping, such as "args: {lr: 3.0e-4}"; a list is for train.script'
        yield Finding(("train", "args"), "a function takes its arguments by name", hint)
    yield from _check_lengths(train)
    env, secrets = train.get("env"), train.get("secrets")
    if isinstance(env, dict) and isinstance(secrets, list):
        for index, name in enumerate(secrets):
            if isinstance(name, str) and name in env:
                yield Finding(("train", "secrets", index), "also set in env", "keep one of the two")


def _check_lengths(train: dict[str, object]) -> Iterator[Finding]:
    """The program gets `steps` and `epochs` as arguments with these names; other values in `args` are a mistake."""
    args = train.get("args")
    for name in ("steps", "epochs"):
        if isinstance(args, dict) and {name} <= args.keys() & train.keys() and args[name] != train[name]:
            wrong = f"is {reprlib.repr(args[name])}, but train.{name} is {reprlib.repr(train[name])}"
            yield Finding(("train", "args", name), wrong, f"delete it: the program gets train.{name}")


def _check_code(train: dict[str, object], base_dir: str) -> Iterator[Finding]:
    entry, script, workdir = train.get("entry"), train.get("script"), train.get("workdir", ".")
    if not isinstance(workdir, str) or not workdir.strip():
        return  # the type is wrong, which is already reported
    folder = absolute(workdir, base_dir)
    if not os.path.isdir(folder):
        hint = "the path is relative to the job file"
        if os.path.isabs(os.path.expanduser(workdir)):
            hint = "name the folder on this machine that holds the code"
        yield Finding(("train", "workdir"), f"the folder {folder} does not exist", hint)
        return
    requirements, installs = train.get("requirements"), bool({"setup", "requirements", "python"} & train.keys())
    if isinstance(requirements, str) and requirements.strip():
        path = os.path.abspath(os.path.join(folder, requirements))
        if os.path.commonpath([folder, path]) != folder:
            yield Finding(("train", "requirements"), "the file must be inside train.workdir", f"which is {folder}")
        elif not os.path.isfile(path):
            hint = f"a list names packages: [{requirements}]" if "/" not in requirements else "create it"
            yield Finding(("train", "requirements"), f"there is no file {path}", hint)
    if isinstance(entry, str) and ENTRY_PATTERN.fullmatch(entry):
        problem = entry_problem(entry, folder)
        if problem is not None and installs and not has_module(entry, folder):
            pass  # the set-up may install the module
        elif problem is not None:
            yield Finding(("train", "entry"), *problem)
        elif (source := entry_source(entry, folder)) is not None:
            for each in misfits(source, entry, train):
                if each.name is None:
                    every = ("train", "args", "")
                    yield Finding(("train", "args"), each.message, each.hint, "key", lacks=(every,))
                else:
                    yield Finding(("train", "args", each.name), each.message, each.hint)
    if isinstance(script, str) and script.strip() and (problem := script_problem(script, folder)):
        yield Finding(("train", "script"), *problem)


def _check_resources(resources: dict[str, object]) -> Iterator[Finding]:
    if "gpu" in resources and "gpu_memory" in resources:
        yield Finding(("resources", "gpu_memory"), "cannot be combined with gpu", "keep one of the two", "key")


def _check_objective(objective: dict[str, object]) -> Iterator[Finding]:
    if objective.get("cost") == 0 and objective.get("time") == 0:
        yield Finding(("objective",), "the weights of cost and time are both 0", "set at least one of them above 0")


def _check_places(where: dict[str, object]) -> Iterator[Finding]:
    """Misspelt clouds; and misspelt regions, unless `where` names a cloud that only a price source knows."""
    clouds, regions = (list(_texts(where.get(name))) for name in ("clouds", "regions"))
    for loc, cloud in clouds:
        if meant := cloud_meant(cloud):
            yield Finding(("where", "clouds", *loc), f'there is no cloud "{cloud}"', f'did you mean "{meant}"?')
    if not all(known_cloud(cloud) for _, cloud in clouds):
        return
    for loc, region in regions:
        if meant := region_meant(region):
            yield Finding(("where", "regions", *loc), f'there is no region "{region}"', f'did you mean "{meant}"?')


def _texts(value: object) -> Iterator[tuple[Loc, str]]:
    """(place in the value, text) of one value or of a list of them."""
    listed: list[tuple[Loc, object]] = [((i,), each) for i, each in enumerate(value)] if isinstance(value, list) else []
    return ((loc, each) for loc, each in listed or [((), value)] if isinstance(each, str))


def _check_locations(tree: dict[str, object], base_dir: str) -> Iterator[Finding]:
    to = _section(tree, "checkpoint").get("to")
    if isinstance(to, str):
        yield from _check_location(("checkpoint", "to"), to, lambda path: _folder_problem(path, base_dir), USE_A_STORE)
        if scheme(to) in SERVICES:
            try:
                place_of(to)
            except StoreNotFound as error:
                yield Finding(("checkpoint", "to"), "is not the URL of a bucket", error.hint)
    for index, source in _items(tree, "data", "source"):
        yield from _check_location(("data", index, "source"), source, lambda path: _missing(path, base_dir), COPY_DATA)


def _check_location(
    loc: tuple[str | int, ...], location: str, problem: Callable[[str], str], instead: str
) -> Iterator[Finding]:
    """The `problem` of a path; or, for a URL that is not of an object store, that fact with the remedy `instead`."""
    store = scheme(location)
    if store is None:
        if location.strip() and (message := problem(location)):
            yield Finding(loc, message, "correct the path: it is relative to the file that contains it")
    elif store not in OBJECT_STORES:
        yield Finding(loc, f"{store}:// is not supported", instead)


def _folder_problem(path: str, base_dir: str) -> str:
    full = absolute(path, base_dir)
    return f"{full} is a file, not a folder" if os.path.isfile(full) else ""


def _missing(path: str, base_dir: str) -> str:
    full = absolute(path, base_dir)
    return "" if os.path.exists(full) else f"{full} does not exist"


def _check_outputs(tree: dict[str, object]) -> Iterator[Finding]:
    for index, path in _items(tree, "outputs", "path"):
        if os.path.isabs(path) or ".." in path.split("/"):
            hint = 'write a path relative to it, such as "runs/"'
            yield Finding(("outputs", index, "path"), "must be inside the job's output folder", hint)


def _items(tree: dict[str, object], name: str, key: str) -> Iterator[tuple[int, str]]:
    """(index, text) of a key in each section of a list."""
    sections = tree.get(name)
    for index, section in enumerate(sections if isinstance(sections, list) else ()):
        value = section.get(key) if isinstance(section, dict) else None
        if isinstance(value, str):
            yield index, value
