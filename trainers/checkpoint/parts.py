"""The parts of a checkpoint that several ranks write together, and how they become one manifest. Needs no torch.

    <root>/<job>/parts/<generation>-<step>-<attempt>-<rank>.json     during background writes

A part lists what a rank has stored: the JSON of its state, and the pieces of each box that it had to write. It is
written when all of these are durable, so the manifest is committed only after all ranks have stored theirs. Parts have
no meaning without the manifest, and are deleted after the commit.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainers.checkpoint.manifest import MOST_BYTES, NUMBER, Box, Manifest, ManifestName, Piece, TensorEntry
from trainers.checkpoint.place import job_store, named_errors
from trainers.errors import StateError, StoreUnavailable
from trainers.objects.opening import Root

PARTS = "parts"
WAIT_S = 600.0
"""How long to wait for another rank's part, after this rank's is durable; more with a bandwidth limit (see
`patience_s`)."""
MOST_ITEM_BYTES = 16
_NAME = re.compile(rf"({NUMBER}-{NUMBER}-{NUMBER})-{NUMBER}\.json")


@dataclass(frozen=True, slots=True)
class Shares:
    """Who writes what. `entries`: path, dtype and shape of the manifest's tensors; `places`: for each rank, the entries
    of its tensors; `writes`: for each rank, the entries and boxes that it writes, in order.
    """

    entries: Sequence[tuple[str, str, tuple[int, ...]]]
    places: Sequence[Sequence[int]]
    writes: Sequence[Sequence[tuple[int, Box]]]

    def to_json(self) -> dict[str, Any]:
        """For from_json."""
        writes = [[(entry, box.begin, box.lengths) for entry, box in of_rank] for of_rank in self.writes]
        return {"entries": self.entries, "places": self.places, "writes": writes}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Shares:
        """The plan that another process of this run made."""
        writes = [
            [(entry, Box(tuple(begin), tuple(lengths))) for entry, begin, lengths in of_rank]
            for of_rank in body["writes"]
        ]
        return cls([(path, dtype, tuple(shape)) for path, dtype, shape in body["entries"]], body["places"], writes)


def part_of(items: Mapping[str, Any], position: Any, written: Sequence[TensorEntry]) -> dict[str, Any]:
    """The part of a rank. `written`: an entry for each box of its share, in order."""
    pieces = [[(piece.chunk, piece.begin, piece.end) for piece in entry.pieces] for entry in written]
    return {"items": items, "position": position, "pieces": pieces}


def assembled(
    job: str,
    name: ManifestName,
    plan: Shares,
    parts: Sequence[Mapping[str, Any]],
    versions: Mapping[str, str],
    about: Mapping[str, float],
) -> Manifest:
    """The manifest of all ranks' parts. Raises StateError if the ranks have not saved the same items."""
    held: list[list[tuple[Box, list[Piece]]]] = [[] for _ in plan.entries]
    for writes, part in zip(plan.writes, parts, strict=True):
        for (entry, box), pieces in zip(writes, part["pieces"], strict=True):
            held[entry].append((box, [Piece(*piece) for piece in pieces]))
    first = parts[0]
    return Manifest(
        job=job,
        name=name,
        world_size=len(parts),
        position=first["position"],
        items=first["items"],
        tensors=tuple(_entry(*entry, boxes) for entry, boxes in zip(plan.entries, held, strict=True)),
        versions=versions,
        about=about,
        parts=tuple(_differing(first, part, place) for part, place in zip(parts[1:], plan.places[1:], strict=True)),
    )


def _entry(path: str, dtype: str, shape: tuple[int, ...], held: list[tuple[Box, list[Piece]]]) -> TensorEntry:
    held.sort(key=lambda each: each[0].begin)
    pieces = tuple(piece for _, of_box in held for piece in of_box)
    whole = len(held) == 1 or not math.prod(shape)
    return TensorEntry(path, dtype, shape, pieces, () if whole else tuple(box for box, _ in held))


def _differing(first: Mapping[str, Any], part: Mapping[str, Any], places: Sequence[int]) -> dict[str, Any]:
    """The part of a rank in the manifest."""
    if part["items"].keys() != first["items"].keys():
        raise StateError(
            "not all ranks attached the same parts", hint="call attach() with the same arguments on every rank"
        )
    differs: dict[str, Any] = {}
    if items := {key: node for key, node in part["items"].items() if node != first["items"][key]}:
        differs["items"] = items
    if part["position"] != first["position"]:
        differs["position"] = part["position"]
    if [*places] != [*range(len(places))]:
        differs["tensors"] = places
    return differs


# In the store


def put_part(root: Root, job: str, name: ManifestName, rank: int, attempt: str, part: Mapping[str, Any]) -> None:
    """Store the part of a rank, whose chunks are durable. `attempt` is the same on all ranks, and different each
    time."""
    raw = json.dumps({"attempt": attempt, "rank": rank, **part}, separators=(",", ":"), allow_nan=False).encode()
    with named_errors():
        job_store(root, job).put(_key(name, rank), hashlib.sha256(raw).hexdigest().encode() + raw)


def patience_s(plan: Shares, bytes_per_s: float | None) -> float:
    """How long to wait for the parts of ranks that write at most `bytes_per_s` each (None: no limit)."""
    if bytes_per_s is None:
        return WAIT_S
    numbers = [sum(math.prod(box.lengths) for _, box in of_rank) for of_rank in plan.writes]
    return WAIT_S + max(numbers, default=0) * MOST_ITEM_BYTES / bytes_per_s


def await_parts(
    root: Root,
    job: str,
    name: ManifestName,
    ranks: int,
    attempt: str,
    go_on: Callable[[], object],
    wait_s: float = WAIT_S,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> list[dict[str, Any]]:
    """The parts of ranks 1 and up, when all have arrived. `go_on` may raise an error to end the wait.

    Raises StoreUnavailable, which names a rank whose part has not arrived after `wait_s`.
    """
    objects, give_up_s = job_store(root, job), monotonic() + wait_s
    found: list[dict[str, Any]] = []
    while len(found) < ranks - 1:
        go_on()
        rank = len(found) + 1
        answer = objects.get(_key(name, rank), MOST_BYTES)
        part = None if answer is None else _parsed(answer.data, rank, attempt)
        if part is not None:
            found.append(part)
        elif monotonic() > give_up_s:
            raise StoreUnavailable(
                f"rank {rank} has not written its part of checkpoint {name} within {wait_s:.0f} s",
                hint="see the log of its machine; training continues, and the next checkpoint is tried later",
            )
        else:
            sleep(objects.poll_s)
    return found


def delete_parts(root: Root, job: str, upto: ManifestName) -> None:
    """Delete the remaining parts of this checkpoint and older ones."""
    objects = job_store(root, job)
    names = {key: _NAME.fullmatch(key[len(PARTS) + 1 :]) for key in objects.keys(PARTS)}
    with named_errors():
        objects.delete(*(key for key, name in names.items() if name and ManifestName.parse(name[1]) <= upto))


def _parsed(raw: bytes, rank: int, attempt: str) -> dict[str, Any] | None:
    """The part; None if it belongs to another rank or attempt, or is not valid."""
    if hashlib.sha256(raw[64:]).hexdigest().encode() != raw[:64]:
        return None
    part: dict[str, Any] = json.loads(raw[64:])
    return part if (part.pop("rank"), part.pop("attempt")) == (rank, attempt) else None


def _key(name: ManifestName, rank: int) -> str:
    return f"{PARTS}/{name}-{rank}.json"
