"""Manifest: the contents of one checkpoint, as JSON whose last field is the hash of every byte before it.

    {"format": 2, "job": ..., "generation": ..., "step": ..., "attempt": ..., "world_size": ...,
     "position": ..., "items": {...},
     "tensors": [{"name", "dtype", "shape", "pieces": [[chunk, begin, end]]}], "about": {...}, "versions": {...},
     "hash": sha256}

"about" has numbers that retention and reports use, if they are known: "saved_at" (seconds since 1970, by the clock of
rank 0) and "loss" (the last loss that rank 0 recorded).

A sharded tensor (FSDP2, DTensor) also has "boxes": [[begin, lengths], ...], which divide it like a grid. Its bytes are
then the bytes of its boxes, one after the other. Its name and shape are those of the whole tensor, so they do not
depend on the number of ranks. Format 1 had no boxes, and can still be read.

A checkpoint of a run with several ranks also has "parts", one for each rank from 1 on:

    {"items": {...}, "position": ..., "tensors": [...]}

Here "items" has only the items that differ from rank 0, and "position" is absent if it does not differ. The n-th tensor
to which a rank refers is entry "tensors"[n] of the manifest; without "tensors", entry n.

Small tensors share chunks: a piece is a byte range of a chunk, and all chunks belong to the manifest's own generation.
A manifest comes from a job, so a matching hash proves nothing: types, ranges and sizes are checked as well.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from trainers.errors import CheckpointError, DamagedCheckpoint

FORMAT = 2
READ = (1, 2)
CHUNK_BYTES = 4 * 2**20
MOST_NUMBERS = 10**18
LATEST_S = 10**11  # in the year 5138
MOST_BYTES = 64 * 2**20  # per manifest; larger ones are neither written nor read

_T = TypeVar("_T")
# Exactly as str() writes it: no signs, no leading zeros, ASCII digits, less than 2**63.
NUMBER = r"(?:0|[1-9][0-9]{0,17})"
_NAME = re.compile(rf"({NUMBER})-({NUMBER})-({NUMBER})")
_CHUNK = re.compile(rf"({NUMBER})-[0-9a-f]{{32}}")
_DTYPE = re.compile("[a-z][a-z0-9_]{0,31}")
_ITEM_BYTES = (1, 2, 4, 8, 16)
_TAIL = re.compile(rb',"hash":"([0-9a-f]{64})"}\n')
_TAIL_BYTES = len(b',"hash":""}\n') + 64


@dataclass(frozen=True, slots=True, order=True)
class ManifestName:
    """Identifies and orders checkpoints; str() is the name in fences and reports."""

    generation: int
    step: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.generation}-{self.step}-{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> ManifestName:
        """The name in `text`. Raises ValueError if it is not one."""
        match = _NAME.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a checkpoint name (generation-step-attempt)")
        return cls(*(int(part) for part in match.groups()))


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `begin` to `end` of a chunk."""

    chunk: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a tensor: in each dimension, the `lengths` indices from `begin` on."""

    begin: tuple[int, ...]
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One stored tensor: its bytes are its pieces in order, little-endian. With boxes, the bytes are those of its boxes
    one after the other, each row-major; without boxes, the tensor is stored as a whole.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    boxes: tuple[Box, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The size of its values in bytes."""
        return sum(piece.end - piece.begin for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Part:
    """The complete state that one rank saved. `tensors`: for each tensor to which the JSON refers, the position of its
    entry; None: its own number.
    """

    items: Mapping[str, Any]
    position: Any
    tensors: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """One checkpoint. `items` and `position` are JSON of rank 0 that refers to tensors by position. `parts` has the
    differences of the other ranks.
    """

    job: str
    name: ManifestName
    world_size: int
    position: Any
    items: Mapping[str, Any]
    tensors: tuple[TensorEntry, ...]
    versions: Mapping[str, str]
    parts: tuple[Mapping[str, Any], ...] = ()
    about: Mapping[str, float] = field(default_factory=dict)

    def part(self, rank: int) -> Part:
        """The state that this rank saved."""
        differs: Mapping[str, Any] = self.parts[rank - 1] if rank else {}
        tensors = tuple(differs["tensors"]) if "tensors" in differs else None
        items = {**self.items, **differs.get("items", {})}
        return Part(items, differs.get("position", self.position), tensors)

    def chunks(self) -> frozenset[str]:
        """Names of all chunks that this checkpoint needs."""
        return frozenset(piece.chunk for tensor in self.tensors for piece in tensor.pieces)

    def to_bytes(self) -> bytes:
        """The content of the manifest file, including its hash."""
        body = {
            "format": FORMAT,
            "job": self.job,
            **dataclasses.asdict(self.name),
            "world_size": self.world_size,
            "position": self.position,
            "items": self.items,
            "tensors": [
                {
                    "name": t.name,
                    "dtype": t.dtype,
                    "shape": t.shape,
                    "pieces": [(p.chunk, p.begin, p.end) for p in t.pieces],
                    **({"boxes": [(box.begin, box.lengths) for box in t.boxes]} if t.boxes else {}),
                }
                for t in self.tensors
            ],
            **({"parts": self.parts} if self.parts else {}),
            **({"about": dict(self.about)} if self.about else {}),
            "versions": self.versions,
        }
        text = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()[:-1]
        return text + b',"hash":"' + hashlib.sha256(text).hexdigest().encode() + b'"}\n'

    @classmethod
    def from_bytes(cls, raw: bytes, where: str) -> Manifest:
        """Parse a manifest. Raises DamagedCheckpoint that names `where`, and CheckpointError for a newer format."""
        text, tail = raw[:-_TAIL_BYTES], _TAIL.fullmatch(raw[-_TAIL_BYTES:])
        if tail is None or hashlib.sha256(text).hexdigest().encode() != tail[1]:
            raise DamagedCheckpoint(
                f"the manifest {where} is truncated or altered: its hash does not match",
                hint="an older checkpoint is used if there is one",
            )
        try:
            body = json.loads(text + b"}", parse_constant=_refused)
            if _integer(body["format"]) in READ:
                return _manifest(body)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedCheckpoint(
                f"the manifest {where} is not valid although its hash matches: {error}",
                hint="an older checkpoint is used if there is one",
            ) from error
        raise CheckpointError(
            f"{where} has checkpoint format {body['format']}; this version reads formats up to {FORMAT}",
            hint="install the version of tradewind that wrote it, or a newer one",
        )


def _manifest(body: Mapping[str, Any]) -> Manifest:
    """Raises ValueError, KeyError and TypeError."""
    name = ManifestName(*(_integer(body[field]) for field in ("generation", "step", "attempt")))
    world_size, tensors = _integer(body["world_size"], least=1), _of(list, body["tensors"])
    parts = tuple(_part(part, len(tensors)) for part in _of(list, body.get("parts", [])))
    if len(parts) != world_size - 1:
        raise ValueError(f"{len(parts)} parts for {world_size} ranks")
    return Manifest(
        job=_of(str, body["job"]),
        name=name,
        world_size=world_size,
        position=body["position"],
        items=_of(dict, body["items"]),
        tensors=tuple(_tensor(tensor, name.generation) for tensor in tensors),
        parts=parts,
        about=_about(_of(dict, body.get("about", {}))),
        versions={_of(str, key): _of(str, value) for key, value in _of(dict, body["versions"]).items()},
    )


def _about(body: Mapping[str, Any]) -> dict[str, float]:
    about = {_of(str, key): _number(value) for key, value in body.items()}
    if not 0 <= about.get("saved_at", 0) < LATEST_S:
        raise ValueError(f"saved_at: {about['saved_at']:g} is not a time")
    return about


def _part(body: Any, tensors: int) -> dict[str, Any]:
    part = _of(dict, body)
    if not part.keys() <= {"items", "position", "tensors"}:
        raise ValueError(f"a part has {', '.join(sorted(part))}")
    _of(dict, part.get("items", {}))
    if any(_integer(place) >= tensors for place in _of(list, part.get("tensors", []))):
        raise ValueError("a part refers to a tensor that does not exist")
    return part


def _tensor(body: Mapping[str, Any], generation: int) -> TensorEntry:
    entry = TensorEntry(
        name=_of(str, body["name"]),
        dtype=_of(str, body["dtype"]),
        shape=tuple(_integer(length) for length in _of(list, body["shape"])),
        pieces=tuple(_piece(piece, generation) for piece in _of(list, body["pieces"])),
        boxes=tuple(_box(box) for box in _of(list, body.get("boxes", []))),
    )
    numbers, size_bytes = _count(entry), entry.size_bytes
    if not _DTYPE.fullmatch(entry.dtype):
        raise ValueError(f"{entry.dtype!r} is not a numeric type")
    if size_bytes not in ([0] if numbers == 0 else [numbers * item_bytes for item_bytes in _ITEM_BYTES]):
        raise ValueError(f"{entry.name} has {size_bytes} bytes for {numbers} numbers")
    if entry.boxes and not is_grid(entry.shape, entry.boxes):
        raise ValueError(f"the boxes of {entry.name} do not divide it like a grid")
    return entry


def _count(tensor: TensorEntry) -> int:
    """How many numbers a tensor has. The product of many lengths would take hours."""
    count = 0 if 0 in tensor.shape else 1
    for length in tensor.shape if count else ():
        count *= length
        if count >= MOST_NUMBERS:
            raise ValueError(f"{tensor.name} has {tensor.size_bytes} bytes for more than 10**18 numbers")
    return count


def _box(body: Any) -> Box:
    begin, lengths = (tuple(_integer(number) for number in _of(list, each)) for each in _of(list, body))
    return Box(begin, lengths)


def is_grid(shape: tuple[int, ...], boxes: Sequence[Box]) -> bool:
    """Whether every element of a tensor is in exactly one of the boxes, which are arranged like the cells of a grid."""
    if any(not len(box.begin) == len(box.lengths) == len(shape) for box in boxes) or len(set(boxes)) != len(boxes):
        return False
    cells = 1
    for dimension, length in enumerate(shape):
        edges, at = sorted({(box.begin[dimension], box.lengths[dimension]) for box in boxes}), 0
        for begin, size in edges:
            if begin != at or size < 1:
                return False
            at += size
        if at != length:
            return False
        cells *= len(edges)
    return cells == len(boxes)


def _piece(body: Any, generation: int) -> Piece:
    chunk, begin, end = _of(list, body)
    match = _CHUNK.fullmatch(_of(str, chunk))
    if match is None or int(match[1]) != generation:
        raise ValueError(f"{chunk!r} is not a chunk of generation {generation}")
    piece = Piece(chunk, _integer(begin), _integer(end))
    if not piece.begin < piece.end <= CHUNK_BYTES:
        raise ValueError(f"bytes {begin} to {end} are not a range within a chunk")
    return piece


def _integer(value: Any, least: int = 0) -> int:
    if type(value) is not int or not least <= value < MOST_NUMBERS:
        raise ValueError(f"{str(value)[:40]!r} is not a whole number from {least} to 10**18 - 1")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        raise ValueError(f"{str(value)[:40]!r} is not a finite number")
    return float(value)


def _of(kind: type[_T], value: Any) -> _T:
    if type(value) is not kind:
        raise ValueError(f"a {type(value).__name__} instead of a {kind.__name__}")
    return value


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
