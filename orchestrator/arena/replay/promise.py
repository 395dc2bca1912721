"""Promise: the promised and the actual savings of voluntary moves.

The actual saving is found by replaying the job from just before the move, with the same capacity and all other jobs
unchanged: it stays, and never moves voluntarily again. A later move is compared in the same way, so a move's saving is
the difference to the replay that stays at the next move, or to the actual run after the last move. The savings of a
job's moves thus add up to the difference between never moving and the actual run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.arena.replay.live import NO_MOVES, Live
from orchestrator.arena.replay.simulator import Move, Simulator
from orchestrator.arena.replay.state import State
from orchestrator.market import AvailabilityPoint


@dataclass(frozen=True, slots=True)
class Kept:
    """A voluntary move: its promised and its actual saving in nano-USD."""

    job_id: str
    at_ms: int
    promised: int
    came: int


def kept(simulator: Simulator, *, known: bool = True) -> list[Kept]:
    """The voluntary moves of a replay that has been played by Live, for the jobs that finished."""
    found = []
    for state in simulator.states:
        moves = simulator.moves[state.job.id]
        if not moves or state.finished_ms is None:
            continue
        stayed = [_stayed(simulator, move, known=known) for move in moves]
        costs = [*(each.bill.total for each in stayed), state.bill.total]
        if all(each.finished_ms is not None for each in stayed):
            for move, without, with_it in zip(moves, costs[:-1], costs[1:], strict=True):
                found.append(Kept(state.job.id, move.at_ms, move.promise, without - with_it))
    return found


def _stayed(simulator: Simulator, move: Move, *, known: bool) -> State:
    """The job at its end if it stays at a move and never moves again."""
    before = move.before.copy()
    own, others = _by(simulator, before.job.id, move.points)
    policy = Live(simulator.knowledge, limits=NO_MOVES, known=known, background=others)
    again = Simulator(simulator.knowledge, simulator.capacity, policy, (), simulator.until_ms)
    again.resume(before, own, move.at_ms)
    (state,) = again.play()
    return state


def _by(
    simulator: Simulator, job_id: str, before: int
) -> tuple[Sequence[AvailabilityPoint], Sequence[AvailabilityPoint]]:
    """(the first `before` observations that are the job's, all of the other jobs)."""
    points, by = simulator.points, simulator.by
    own = [point for point, who in zip(points[:before], by[:before], strict=True) if who == job_id]
    return own, [point for point, who in zip(points, by, strict=True) if who != job_id]
