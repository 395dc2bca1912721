"""Where the code of a task file is on this machine, relative to the folder of the job file.

SkyPilot copies one folder; dstack maps files and a repository to places in a container, below its working folder. This
module must not depend on what the code does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.jobfile.convert.draft import Draft
from orchestrator.jobfile.convert.mounts import add_mount
from orchestrator.jobfile.convert.train import CodePlace

_DSTACK_FOLDER = "/workflow"


@dataclass(frozen=True, slots=True)
class Folders:
    """The folder of the task file, to which its paths are relative, and the folder of the job file."""

    source: Path
    target: Path

    def place(self, path: str) -> CodePlace:
        """The place of a path of the task file: on this machine, and relative to the job file."""
        full = os.path.normpath(os.path.join(self.source.absolute(), os.path.expanduser(path)))
        return CodePlace(full, self.seen(path))

    def seen(self, path: str) -> str:
        """A path of the task file as it is written in the job file."""
        expanded = os.path.expanduser(path)
        if os.path.isabs(expanded) or path.startswith("~") or self.source.absolute() == self.target.absolute():
            return os.path.normpath(path)
        return os.path.relpath(os.path.join(self.source.absolute(), expanded), self.target.absolute())


def skypilot_place(draft: Draft, workdir: object, folders: Folders) -> CodePlace:
    """The folder `workdir`, which for SkyPilot is relative to the folder where `sky` is called."""
    if isinstance(workdir, dict):
        draft.to_do(("workdir",), "Tradewind clones no repository", "clone it next to the job file and name its folder")
        return folders.place(".")
    place = folders.place(workdir if isinstance(workdir, str) and workdir.strip() else ".")
    if workdir is None:
        draft.changed(
            ("workdir",),
            "without workdir, SkyPilot copies no code; train.workdir is set to the folder of the task file",
        )
    elif not os.path.isdir(place.folder):
        hint = "here it is relative to the job file; in SkyPilot, to the folder where sky is called"
        draft.to_do(("workdir",), f"the folder {place.folder} does not exist", hint)
    return place


def dstack_place(draft: Draft, task: Mapping[str, Any], folders: Folders) -> CodePlace:
    """The content of the working folder of the container; other files become `data`."""
    working = str(task.get("working_dir") or _DSTACK_FOLDER)
    code: dict[str, str] = {}
    repos = task.get("repos")
    for index, repo in enumerate(repos if isinstance(repos, list) else ()):
        local, target = _pair(repo, "local_path")
        if local is None or "://" in local or "@" in local:
            draft.to_do(
                ("repos", index), "Tradewind clones no repository", "clone it next to the job file and name its folder"
            )
        else:
            code[os.path.normpath(os.path.join(working, target or "."))] = local
    files = task.get("files")
    for index, file in enumerate(files if isinstance(files, list) else ()):
        local, target = _pair(file, "local_path")
        if local is None:
            continue
        inside = os.path.normpath(os.path.join(_DSTACK_FOLDER, target or local))
        if inside == working or (inside.startswith(f"{working}/") and os.path.isdir(folders.place(local).folder)):
            code[inside] = local
        else:
            add_mount(draft, ("files", index), inside, folders.seen(local))
    within = {folder: local for folder, local in code.items() if folder == working or folder.startswith(f"{working}/")}
    if working in within or not within:
        return folders.place(within.get(working, "."))
    folder, local = next(iter(within.items()))
    steps = len(Path(os.path.relpath(folder, working)).parts)
    above = os.path.normpath(os.path.join(folders.place(local).folder, *[".."] * steps))
    draft.changed(("files",), f"train.workdir is the folder that contains {os.path.basename(folder)}")
    return folders.place(os.path.relpath(above, folders.source.absolute()))


def _pair(value: object, key: str) -> tuple[str | None, str | None]:
    """`local:target`, `local`, or a mapping of the same."""
    if isinstance(value, dict):
        local, target = value.get(key), value.get("path")
        return (None if local is None else str(local)), (None if target is None else str(target))
    text = str(value)
    if "://" in text or "@" in text:
        return text, None
    local, colon, target = text.rpartition(":")
    return (local, target) if colon else (text, None)
