"""Checkpoints of several ranks that are written while training continues.

Between two steps, each rank copies its part (trainers.checkpoint.planning) to its own memory. The background processes
store these parts, and rank 0's process commits when all parts are durable (trainers.checkpoint.parts): no rank waits
for another rank's storage. Only one checkpoint is in progress at a time, because the commit also deletes data that no
checkpoint needs.

Every rank must call `begin`, `ended` and `leave_off` after the same step. Rank 0 determines the result of a checkpoint,
because only rank 0 commits.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from types import MappingProxyType

from trainers.checkpoint.background import Background, Captured, Ended
from trainers.checkpoint.exchange import Exchange
from trainers.checkpoint.manifest import ManifestName
from trainers.checkpoint.planning import agreed_shares, written
from trainers.checkpoint.staging import Layout
from trainers.checkpoint.writer import encoded
from trainers.errors import FencedError, PeerLost, StoreThrottled, StoreUnavailable, TrainerError

COMMITTED, FAILED = 1, 2
_ON_ALL = {kind.__name__: kind for kind in (FencedError, StoreThrottled, StoreUnavailable)}


class BackgroundTogether:
    """Like trainers.checkpoint.background.Background, for one of several ranks; `own` is that rank's Background."""

    def __init__(self, own: Background, peers: Exchange) -> None:
        self._own, self._peers = own, peers
        self._name: ManifestName | None = None
        self._part: Ended | None = None  # the result of this rank's part
        self._impossible = False

    @property
    def under_way(self) -> list[ManifestName]:
        """The checkpoint in progress, the same on all ranks."""
        return [] if self._name is None else [self._name]

    @property
    def full(self) -> bool:
        """Whether a checkpoint is in progress."""
        return self._name is not None

    @property
    def possible(self) -> bool:
        """Whether `begin` may still succeed on all ranks, as far as this rank knows."""
        return not self._impossible

    @property
    def ready(self) -> bool:
        """Whether to propose a checkpoint to the other ranks."""
        return not (self._impossible or self.full)

    def begin(self, name: ManifestName, captured: Captured, about: Mapping[str, float] = MappingProxyType({})) -> bool:
        """See Background.begin. False on all ranks if it is not possible on one of them now."""
        if not self._all({"ready": self._own.ready, "possible": self._own.possible}):
            return False
        began_s = self._own.monotonic()
        described, tensors = encoded(*captured(), about=about)
        plan, attempt = agreed_shares(self._peers, tensors, os.urandom(8).hex())
        part = {"attempt": attempt, "plan": plan.to_json() if self._peers.rank == 0 else None}
        body = {**dataclasses.asdict(described), "part": part}
        layout = Layout.of(body, written(tensors, plan, self._peers.rank))
        room = self._own.has_room(layout)
        if not self._all({"ready": room, "possible": self._own.possible}):
            return False
        self._own.hold(name, layout, began_s)
        self._name = name
        return True

    def over(self) -> int:
        """What this rank knows about the checkpoint in progress: COMMITTED (only on rank 0), FAILED, or 0. If the
        highest value of all ranks is not 0, all ranks call `ended`.
        """
        for each in self._own.ended():
            self._part = each
        if self._name is None or self._part is None:
            return 0
        if self._part.name is None:
            return FAILED
        return COMMITTED if self._peers.rank == 0 else 0

    def ended(self, *, wait: bool = False) -> list[Ended]:
        """The result of the checkpoint in progress, if it is over; `wait`: when it is over. Otherwise it is
        abandoned."""
        if self._name is None:
            return []
        if wait:
            self._own_part(self._own.ended(wait=True))
        return self.leave_off()

    def hurry(self) -> None:
        """See Background.hurry. It has an effect only if all ranks call it, at any time."""
        self._own.hurry()

    def leave_off(self) -> list[Ended]:
        """Abandon the checkpoint in progress, quickly. If rank 0 has already committed it, all ranks report that."""
        if self._name is None:
            return []
        self._own_part(self._own.leave_off())
        begun, mine, self._name, self._part = self._name, self._part, None, None
        assert mine is not None
        said = {"name": mine.name and str(mine.name), "took_s": mine.took_s, "error": _document(mine.error)}
        answers = [json.loads(each) for each in self._peers.exchange(json.dumps(said).encode())]
        if (name := answers[0]["name"]) is not None:
            took_s = max(answer["took_s"] for answer in answers)  # they write at the same time
            return [dataclasses.replace(mine, name=ManifestName.parse(name), error=None, took_s=took_s)]
        if mine.error is not None:
            return [mine]
        failed = [(rank, answer["error"]) for rank, answer in enumerate(answers) if answer["error"] is not None]
        error = _of_other(*failed[0]) if failed else None
        return [Ended(begun, None, error, mine.held_s)]

    def close(self) -> None:
        """See Background.close."""
        self._own.close()

    def _own_part(self, found: list[Ended]) -> None:
        for each in found:
            self._part = each

    def _all(self, mine: dict[str, bool]) -> bool:
        """Whether all ranks are ready. If it is impossible on one rank, it is impossible on all from now on."""
        answers = [json.loads(each) for each in self._peers.exchange(json.dumps(mine).encode())]
        without = [rank for rank, answer in enumerate(answers) if not answer["possible"]]
        if without:
            self._impossible = True
            self._own.give_up(f"rank {without[0]} has no process or memory for it")
        return all(answer["ready"] for answer in answers)


def _document(error: TrainerError | None) -> dict[str, str] | None:
    return None if error is None else {"kind": type(error).__name__, "message": error.message, "hint": error.hint}


def _of_other(rank: int, document: dict[str, str]) -> TrainerError:
    kind, message = _ON_ALL.get(document["kind"]), f"rank {rank}: {document['message']}"
    if kind is None:
        return PeerLost(f"rank {rank} could not save: {document['kind']}: {document['message']}")
    return kind(message, hint=document["hint"])
