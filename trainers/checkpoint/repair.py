"""Repairs the fences of a job's checkpoint folder. Errors about damaged fences name this command.

    python -m trainers.checkpoint.repair FOLDER [--starts-from MANIFEST]

A fence has its content twice: as text and as a hash of the text. If one of them is intact, the other can be restored.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from contextlib import suppress
from pathlib import Path

from trainers.checkpoint import fences, files, store
from trainers.checkpoint.fences import Fence, fence_folder
from trainers.checkpoint.manifest import NUMBER
from trainers.errors import DamagedCheckpoint, TrainerError

_SCRATCH = "scratch"
_NAMES = re.compile(rf"{NUMBER}-{NUMBER}-{NUMBER}".encode())
_ALIKE = 56  # of the 64 characters of a hash: by chance 4 agree


def repair_fences(root: str | Path, job: str, starts_from: str | None = None) -> list[str]:
    """Restore every fence that was altered, renamed or deleted; returns one sentence per repair.

    `starts_from` ("scratch" or a checkpoint's name) is needed if the newest fence cannot be reconstructed. Raises
    DamagedCheckpoint if it is needed and missing, or for a file that is not a fence.
    """
    done = _names_put_back(root, job)
    owners = {name.generation for name in store.manifests(root, job)}
    wanted = {*fences.generations(root, job), *([max(owners)] if owners else [])}
    for generation in sorted(wanted):
        with suppress(DamagedCheckpoint):
            if fences.fence_of(root, job, generation) is not None:
                continue
        found = _recovered(root, job, generation)
        if found is None and (generation in owners or generation < max(wanted)):
            # It has or had the job. Its start matters only for falling back to older checkpoints: give that up.
            found = Fence(generation, None)
        if found is None:
            found = _as_requested(root, job, generation, starts_from)
        _put(root, job, found)
        state = "is void" if found.void else f"starts from {found.manifest or _SCRATCH}"
        done.append(f"restored the fence of generation {generation}, which {state}")
    return done


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0 if all fences are intact now, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m trainers.checkpoint.repair", description="Repair a job's fences.")
    parser.add_argument("folder", type=Path, help="the job's checkpoint folder")
    parser.add_argument("--starts-from", metavar="MANIFEST", help=f'a name from manifests/, or "{_SCRATCH}"')
    options = parser.parse_args(arguments)
    folder = options.folder.absolute()
    try:
        done = repair_fences(folder.parent, folder.name, options.starts_from)
    except (TrainerError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("".join(f"{sentence}\n" for sentence in done) or "nothing to repair\n")
    return 0


def _names_put_back(root: str | Path, job: str) -> list[str]:
    """Rename each intact fence that has a wrong name."""
    folder, done = fence_folder(root, job), []
    for name in sorted(files.listing(folder)):
        raw = None if name.startswith(".") else _left(folder / name)
        intact = None if raw is None else _whole(raw, job, folder)
        if intact is not None and name != str(intact.generation):
            path = folder / str(intact.generation)
            if not path.exists() or _left(path) == raw:
                _put(root, job, intact)
                files.delete(folder / name)
                done.append(f"renamed {name} to {intact.generation}")
                continue
        if raw is not None and not re.fullmatch(NUMBER, name):
            raise DamagedCheckpoint(f"{folder / name} is not a fence of this job", hint="move it out of this folder")
    return done


def _left(path: Path) -> bytes:
    """What remains of a fence: the first bytes of its file; empty if it is not a regular file."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(fences.MOST_BYTES)


def _whole(raw: bytes, job: str, folder: Path) -> Fence | None:
    """The fence in `raw`, regardless of its file name; None if it is not valid."""
    with suppress(DamagedCheckpoint, ValueError, KeyError, TypeError, RecursionError):
        return Fence.from_bytes(raw, job, json.loads(raw)["generation"], folder)
    return None


def _recovered(root: str | Path, job: str, generation: int) -> Fence | None:
    """The fence of this generation whose hash is in the damaged file, or else whose text and most of whose hash are."""
    raw = _left(fence_folder(root, job) / str(generation))
    named = {match.decode() for match in _NAMES.findall(raw)}
    named |= {str(name) for name in store.manifests(root, job) if name.generation < generation}
    possible = [Fence(generation, None), Fence(generation, None, void=True)]
    possible += [Fence(generation, name) for name in sorted(named)]
    by_words = []
    for candidate in possible:
        words, _, tail = candidate.to_bytes(job).partition(b',"hash":"')
        begin = raw.find(words + b",")
        digest = tail[:64]
        if digest in raw:
            return candidate
        found = raw[begin + len(words) + len(b',"hash":"') :][:64]
        if begin >= 0 and sum(a == b for a, b in zip(digest, found, strict=False)) >= _ALIKE:
            by_words.append(candidate)
    return by_words[0] if len(by_words) == 1 else None


def _as_requested(root: str | Path, job: str, generation: int, starts_from: str | None) -> Fence:
    names = [str(name) for name in store.manifests(root, job) if name.generation < generation]
    if starts_from in (*names, _SCRATCH):
        return Fence(generation, None if starts_from == _SCRATCH else starts_from)
    raise DamagedCheckpoint(
        f"the fence of generation {generation} cannot be reconstructed: its starting checkpoint is unknown",
        hint=f"add --starts-from and one of: {', '.join([*names[-5:], _SCRATCH])}",
    )


def _put(root: str | Path, job: str, fence: Fence) -> None:
    folder = fence_folder(root, job)
    files.replace(folder / str(fence.generation), fence.to_bytes(job))
    files.sync_folder(folder)


if __name__ == "__main__":
    sys.exit(main())
