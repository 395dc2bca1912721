"""Exports a checkpoint to a file that other programs can read, with torch.load or safetensors."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from orchestrator.errors import MissingExtraError, NotFoundError, StoreError, UsageError
from orchestrator.installation import Installation
from orchestrator.services.checkpoints.listing import LARGEST, place_of, readable, what_is_left
from orchestrator.services.checkpoints.views import CheckpointExported
from trainers.checkpoint import store
from trainers.checkpoint.manifest import ManifestName
from trainers.errors import message_of

TORCH, SAFETENSORS = "torch", "safetensors"
_OWN = ("given", "rng", "transient")
"""Parts that only Tradewind can use, to resume a job."""


def export(
    installation: Installation, ref: str, path: Path, *, name: str | None = None, replace: bool = False
) -> CheckpointExported:
    """Write the newest intact checkpoint of a job, or the one with the given name, to a file. The suffix of `path`
    selects the format: ".safetensors" has the tensors of the model; other files are for torch.load and have all parts
    that the program attached, the step and the epoch.

    The file appears only when it is complete. Raises NotFoundError, StoreError, MissingExtraError, and UsageError if
    the file exists (unless `replace`), if it is not a regular file, or if its folder does not exist.
    """
    _require_place(path, replace=replace)
    try:
        from trainers.checkpoint.reader import load
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "torch", "train") from error
    job, root = place_of(installation, ref)
    skipped: list[str] = []
    with readable():
        if name is None:
            found = store.first_usable(
                root, job.id, LARGEST, lambda each: load(root, job.id, each), lambda damage: skipped.append(str(damage))
            )
        else:
            found = load(root, job.id, _named(root, job.id, name))
    if found is None:
        why = f": {skipped[0]}" if skipped else ""
        with installation.store.read() as tx:
            typed = tx.typed_name(job.id, job.name)
        hint = what_is_left(installation, job) or f"tradewind checkpoints verify {typed}"
        raise NotFoundError(f"{job.name} has no checkpoint that can be exported{why}", hint=hint)
    parts = {key: value for key, value in found.items.items() if key not in _OWN}
    of = SAFETENSORS if path.suffix == ".safetensors" else TORCH
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        if of == SAFETENSORS:
            _write_safetensors(partial, parts["model"], {"job": job.id, "checkpoint": str(found.name)})
        else:
            import torch

            torch.save({**parts, "step": found.name.step, "epoch": found.position["epochs_done"]}, partial)
        os.replace(partial, path)
    except (OSError, RuntimeError) as error:  # torch raises RuntimeError
        raise StoreError(
            f"{path} cannot be written: {message_of(error)}", hint="choose a file on a disk with free space"
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return CheckpointExported(
        job.name, job.id, str(found.name), found.name.step, str(path), of, path.stat().st_size, tuple(skipped)
    )


def _require_place(path: Path, *, replace: bool) -> None:
    """Raises UsageError unless the file may be written there."""
    if not path.parent.is_dir():
        raise UsageError(
            f"the folder {path.parent} does not exist", hint="create it, or choose a file in another folder"
        )
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a file", hint="choose the path of a file")
    if path.exists() and not replace:
        raise UsageError(f"{path} already exists", hint="add --force to replace it")


def _named(root: Any, job_id: str, text: str) -> ManifestName:
    try:
        wanted = ManifestName.parse(text)
    except ValueError as error:
        raise UsageError(str(error), hint="tradewind checkpoints ls shows the names") from error
    if wanted not in store.manifests(root, job_id):
        raise NotFoundError(f"there is no checkpoint {text}", hint="tradewind checkpoints ls shows the names")
    return wanted


def _write_safetensors(path: Path, model: Any, about: dict[str, str]) -> None:
    try:
        save_file = import_module("safetensors.torch").save_file
    except ModuleNotFoundError as error:
        raise MissingExtraError("safetensors", "export") from error
    tensors = dict(_tensors(model, ""))
    if not tensors:
        raise UsageError(
            "the model of this checkpoint has no tensors", hint="export to a .pt file, which has everything else"
        )
    # safetensors does not allow tied tensors to share memory, so each name gets a copy
    try:
        save_file({key: tensor.contiguous().clone() for key, tensor in tensors.items()}, path, metadata=about)
    except import_module("safetensors").SafetensorError as error:
        raise OSError(str(error)) from error


def _tensors(value: Any, path: str) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f"{path}.{key}" if path else str(key))
