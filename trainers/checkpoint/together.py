"""Writes one checkpoint of a run with several ranks, in two phases.

First, each rank makes its tensors durable. When all ranks have reported that, rank 0 commits the one manifest that
names everything. If a rank dies or cannot write, nothing is committed.

Each rank's state is saved completely, and data that is equal on several ranks is stored once: under
DistributedDataParallel, the model and the optimizer. A sharded tensor (FSDP2, DTensor) becomes one tensor, of which
each rank writes the part that it holds. trainers.checkpoint.planning decides who writes what.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from trainers.checkpoint import store
from trainers.checkpoint.exchange import Exchange
from trainers.checkpoint.manifest import ManifestName
from trainers.checkpoint.packing import store_tensors
from trainers.checkpoint.parts import assembled, part_of
from trainers.checkpoint.planning import agreed_shares, written
from trainers.checkpoint.retention import Keep, collect
from trainers.checkpoint.state import Encoder
from trainers.checkpoint.writer import values, versions
from trainers.errors import (
    FencedError,
    PeerLost,
    StoreThrottled,
    StoreUnavailable,
    TrainerError,
    message_of,
)
from trainers.objects.opening import Root

_SURVIVED = {kind.__name__: kind for kind in (FencedError, StoreThrottled, StoreUnavailable)}  # raised on every rank


def save_together(
    root: Root,
    job: str,
    name: ManifestName,
    *,
    peers: Exchange,
    items: Mapping[str, Any],
    position: Any,
    keep: Keep | int,
    before_commit: Callable[[], None],
    about: Mapping[str, float] = MappingProxyType({}),
    frozen: Collection[str] = (),
) -> ManifestName:
    """Like trainers.checkpoint.writer.save, called by every rank with its own state. All return the same name; rank 0's
    `about` is used.

    If one rank cannot reach the store, StoreUnavailable or StoreThrottled is raised on all ranks, and the run may
    continue. For other errors of one rank, the others raise PeerLost.
    """
    encoder = Encoder()
    nodes = {key: encoder.encode(value, key) for key, value in items.items()}
    where = encoder.encode(position, "position")
    plan, _ = agreed_shares(peers, encoder.tensors)

    def write() -> dict[str, Any]:
        mine = values(written(encoder.tensors, plan, peers.rank))
        entries = store_tensors(root, job, name.generation, mine, frozen=frozen)
        if peers.rank != 0:
            store.settle_chunks(root, job)  # rank 0 does that when it commits
        before_commit()
        return part_of(nodes, where, entries)

    parts = _on_every_rank(peers, write)

    def commit() -> dict[str, Any]:
        if peers.rank != 0:
            return {}
        committed = store.commit(root, assembled(job, name, plan, parts, versions(), about))
        collect(root, job, name.generation, keep)  # the other ranks wait for the answer, so none writes
        return {"name": str(committed)}

    return ManifestName.parse(_on_every_rank(peers, commit)[0]["name"])


def _on_every_rank(peers: Exchange, work: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of `work` on all ranks. An error on one of them is raised on all."""
    try:
        done = work()
    except BaseException as error:
        said = {"message": error.message, "hint": error.hint} if isinstance(error, TrainerError) else {}
        with suppress(PeerLost):
            peers.exchange(_json({"error": type(error).__name__, "message": message_of(error), **said}))
        raise
    answers = [json.loads(data) for data in peers.exchange(_json(done))]
    for rank, answer in enumerate(answers):
        if "error" in answer:
            kind = _SURVIVED.get(answer["error"])
            if kind is not None:
                raise kind(answer["message"], hint=answer["hint"])
            raise PeerLost(f"rank {rank} could not save: {answer['error']}: {answer['message']}")
    return answers


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
