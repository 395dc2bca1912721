"""Checkpoints of several ranks that are written while training goes on.

Between two steps each rank copies what it is to write (trainers.checkpoint.planning) into its own memory. The processes
beside them store these parts, and that of rank 0 commits when all parts are durable (trainers.checkpoint.parts): no
rank waits for another's storage. One checkpoint at a time is under way, because the commit also deletes what no
checkpoint needs.

Every rank must call `begin`, `ended` and `leave_off` after the same step. What became of a checkpoint is what rank 0
says: it alone commits.
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
    """Like trainers.checkpoint.background.Background, for one of several ranks, whose own one is `own`."""

    def __init__(self, own: Background, peers: Exchange) -> None:
        self._own, self._peers = own, peers
        self._name: ManifestName | None = None
        self._part: Ended | None = None  # what became of the own part
        self._impossible = False

    @property
    def under_way(self) -> list[ManifestName]:
        """The checkpoint that was begun and has not ended, the same on all ranks."""
        return [] if self._name is None else [self._name]

    @property
    def full(self) -> bool:
        """Whether one is under way."""
        return self._name is not None

    @property
    def possible(self) -> bool:
        """Whether `begin` may still succeed on all ranks, as far as they have told one another."""
        return not self._impossible

    @property
    def ready(self) -> bool:
        """Whether to ask the other ranks for one."""
        return not (self._impossible or self.full)

    def begin(self, name: ManifestName, captured: Captured, about: Mapping[str, float] = MappingProxyType({})) -> bool:
        """See Background.begin. False on all ranks if it is not possible on one now."""
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
        """What this rank knows of the one under way: COMMITTED (only rank 0 can), FAILED, or 0. If the highest value of
        all ranks is not 0, all call `ended`.
        """
        for each in self._own.ended():
            self._part = each
        if self._name is None or self._part is None:
            return 0
        if self._part.name is None:
            return FAILED
        return COMMITTED if self._peers.rank == 0 else 0

    def ended(self, *, wait: bool = False) -> list[Ended]:
        """What became of the one under way, if it is over; `wait`: when it is. Otherwise it is left off."""
        if self._name is None:
            return []
        if wait:
            self._own_part(self._own.ended(wait=True))
        return self.leave_off()

    def hurry(self) -> None:
        """See Background.hurry. To be of use, all ranks must call it, whenever that is."""
        self._own.hurry()

    def leave_off(self) -> list[Ended]:
        """Give up what is under way, quickly. If rank 0 has committed it before, that is told on all ranks."""
        if self._name is None:
            return []
        self._own_part(self._own.leave_off())
        begun, mine, self._name, self._part = self._name, self._part, None, None
        assert mine is not None
        said = {"name": mine.name and str(mine.name), "took_s": mine.took_s, "error": _told(mine.error)}
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
        """Whether all ranks are ready. If it is not possible on one, it is not from now on."""
        answers = [json.loads(each) for each in self._peers.exchange(json.dumps(mine).encode())]
        without = [rank for rank, answer in enumerate(answers) if not answer["possible"]]
        if without:
            self._impossible = True
            self._own.give_up(f"rank {without[0]} has no process or memory for it")
        return all(answer["ready"] for answer in answers)


def _told(error: TrainerError | None) -> dict[str, str] | None:
    return None if error is None else {"kind": type(error).__name__, "message": error.message, "hint": error.hint}


def _of_other(rank: int, told: dict[str, str]) -> TrainerError:
    kind, message = _ON_ALL.get(told["kind"]), f"rank {rank}: {told['message']}"
    if kind is None:
        return PeerLost(f"rank {rank} could not save: {told['kind']}: {told['message']}")
    return kind(message, hint=told["hint"])
