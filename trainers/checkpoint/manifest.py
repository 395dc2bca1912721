"""Manifest: what one checkpoint consists of, as JSON whose last field is the hash of every byte before it.

    {"format": 1, "job": ..., "generation": ..., "step": ..., "attempt": ..., "world_size": ...,
     "position": ..., "items": {...},
     "tensors": [{"name", "dtype", "shape", "pieces": [[chunk, begin, end]]}], "versions": {...}, "hash": sha256}

Must not know: torch, numpy, where files lie. Small tensors share chunks: a piece is a byte range of a chunk.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainers.errors import CheckpointError, DamagedCheckpoint

FORMAT = 1

# As str() writes it, and nothing else: no signs, no leading zeros, ASCII digits, less than 2**63.
NUMBER = r"(?:0|[1-9][0-9]{0,17})"
_NAME = re.compile(rf"({NUMBER})-({NUMBER})-({NUMBER})")
_TAIL = re.compile(rb',"hash":"([0-9a-f]{64})"}\n')
_TAIL_BYTES = len(b',"hash":""}\n') + 64


@dataclass(frozen=True, slots=True, order=True)
class ManifestName:
    """Identity and order of a checkpoint; str() is its name in fences and reports."""

    generation: int
    step: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.generation}-{self.step}-{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> ManifestName:
        """Raises ValueError for a text that is no such name."""
        match = _NAME.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no checkpoint name (generation-step-attempt)")
        return cls(*(int(part) for part in match.groups()))


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `begin` to `end` of a chunk."""

    chunk: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One stored tensor: its bytes are its pieces, in order, row-major and little-endian."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One checkpoint. `items` and `position` are JSON, referring to tensors by their place."""

    job: str
    name: ManifestName
    world_size: int
    position: Any
    items: Mapping[str, Any]
    tensors: tuple[TensorEntry, ...]
    versions: Mapping[str, str]

    def chunks(self) -> frozenset[str]:
        """Names of all the chunks that this checkpoint needs."""
        return frozenset(piece.chunk for tensor in self.tensors for piece in tensor.pieces)

    def to_bytes(self) -> bytes:
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
                }
                for t in self.tensors
            ],
            "versions": self.versions,
        }
        text = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()[:-1]
        return text + b',"hash":"' + hashlib.sha256(text).hexdigest().encode() + b'"}\n'

    @classmethod
    def from_bytes(cls, raw: bytes, where: str) -> Manifest:
        """Raises DamagedCheckpoint naming `where`, and CheckpointError for a newer format."""
        text, tail = raw[:-_TAIL_BYTES], _TAIL.fullmatch(raw[-_TAIL_BYTES:])
        if tail is None or hashlib.sha256(text).hexdigest().encode() != tail[1]:
            raise DamagedCheckpoint(
                f"the manifest {where} is cut or altered: its own hash does not match",
                hint="nothing to do when an older checkpoint exists: it is used instead",
            )
        body = json.loads(text + b"}")
        if body["format"] != FORMAT:
            raise CheckpointError(
                f"{where} has checkpoint format {body['format']}; this version reads {FORMAT}",
                hint="install the version of tradewind that wrote it",
            )
        return cls(
            job=body["job"],
            name=ManifestName(body["generation"], body["step"], body["attempt"]),
            world_size=body["world_size"],
            position=body["position"],
            items=body["items"],
            tensors=tuple(
                TensorEntry(t["name"], t["dtype"], tuple(t["shape"]), tuple(Piece(*piece) for piece in t["pieces"]))
                for t in body["tensors"]
            ),
            versions=body["versions"],
        )
