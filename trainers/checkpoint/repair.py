"""Repairs the fences of a job's checkpoint folder. The errors about damaged fences name this command.

    python -m trainers.checkpoint.repair FOLDER [--starts-from MANIFEST]

A fence says what it says twice: in words and as a hash of them. As long as one of the two is whole, the other follows.
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
    """Put back every fence that was altered, renamed or deleted; returns what was done, a sentence each.

    `starts_from` ("scratch" or a checkpoint's name) is for a newest fence of which too little is left. Raises
    DamagedCheckpoint when that is needed and missing, or for a file that is no fence at all.
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
            # It had the job, or lost it since. Of what it started from only its fallback depends: give that up.
            found = Fence(generation, None)
        if found is None:
            found = _told(root, job, generation, starts_from)
        _put(root, job, found)
        said = "is void" if found.void else f"starts from {found.manifest or _SCRATCH}"
        done.append(f"generation {generation} {said}: its fence is whole again")
    return done


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0 all fences are whole, 1 not."""
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
    """Give each whole fence that has another's name its own again."""
    folder, done = fence_folder(root, job), []
    for name in sorted(files.listing(folder)):
        raw = None if name.startswith(".") else _left(folder / name)
        said = None if raw is None else _whole(raw, job, folder)
        if said is not None and name != str(said.generation):
            path = folder / str(said.generation)
            if not path.exists() or _left(path) == raw:
                _put(root, job, said)
                files.delete(folder / name)
                done.append(f"{name} is called {said.generation} again")
                continue
        if raw is not None and not re.fullmatch(NUMBER, name):
            raise DamagedCheckpoint(f"{folder / name} is no fence of this job", hint="move it out of this folder")
    return done


def _left(path: Path) -> bytes:
    """What is left of a fence: the first bytes of its file, and nothing of what is no plain file."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(fences.MOST_BYTES)


def _whole(raw: bytes, job: str, folder: Path) -> Fence | None:
    """The fence that `raw` is, whatever its file is called; None if it is none."""
    with suppress(DamagedCheckpoint, ValueError, KeyError, TypeError, RecursionError):
        return Fence.from_bytes(raw, job, json.loads(raw)["generation"], folder)
    return None


def _recovered(root: str | Path, job: str, generation: int) -> Fence | None:
    """The one fence of this generation whose hash is in the damaged file, or else its words and most of its hash."""
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


def _told(root: str | Path, job: str, generation: int, starts_from: str | None) -> Fence:
    names = [str(name) for name in store.manifests(root, job) if name.generation < generation]
    if starts_from in (*names, _SCRATCH):
        return Fence(generation, None if starts_from == _SCRATCH else starts_from)
    raise DamagedCheckpoint(
        f"too little is left of the fence of generation {generation} to know what it starts from",
        hint=f"add --starts-from and one of: {', '.join([*names[-5:], _SCRATCH])}",
    )


def _put(root: str | Path, job: str, fence: Fence) -> None:
    folder = fence_folder(root, job)
    files.replace(folder / str(fence.generation), fence.to_bytes(job))
    files.sync_folder(folder)


if __name__ == "__main__":
    sys.exit(main())
