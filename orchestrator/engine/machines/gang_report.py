"""Gang report: what the machines of one run say of it, as the report of the run. Pure.

Rank 0 reports the run's progress. The run is where the machine is that is furthest behind; it has ended as the first
that ended for a reason of its own. Whoever only lost contact with another machine is no reason: then one is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.engine.runtime import RunReport, TrainerState

_ON_THE_WAY: tuple[TrainerState, ...] = ("starting", "prepared", "restored", "training", "quiesced")
_DECISIVE: tuple[TrainerState, ...] = ("malformed", "fenced", "checkpointed_and_stopped")


def combined(reports: Sequence[RunReport | None], *, others_may_run: bool = True) -> RunReport | None:
    """The report of a run by those of its machines, by rank; None while nothing is known of one of them. Once machine 0
    has finished, the run has when the others have ended; or, without `others_may_run`, at once."""
    known = [each for each in reports if each is not None]
    if not known or len(known) < len(reports):
        return None
    first, silent_s = known[0], max(each.silent_s for each in known)
    if len(known) == 1:
        return first
    for rank, each in enumerate(known):
        if each.state == "failed" and not each.peer_lost:
            return _as(first, each, silent_s, f"machine {rank}: {each.error or 'the trainer failed'}")
    for state in _DECISIVE:
        for rank, each in enumerate(known):
            if each.state == state:
                return _as(first, each, silent_s, f"machine {rank}: {each.error}" if each.error else None)
    states = {each.state for each in known}
    if first.state == "finished" and not (others_may_run and states & {*_ON_THE_WAY}):
        return replace(first, silent_s=silent_s)
    if states & {"failed", "absent"}:
        return replace(first, state="absent", silent_s=silent_s)
    if "silent" in states:
        return replace(first, state="silent", silent_s=silent_s)
    behind = min(_ON_THE_WAY.index(each.state) for each in known if each.state in _ON_THE_WAY)
    setups = [each.setup_s for each in known if each.setup_s is not None]
    return replace(first, state=_ON_THE_WAY[behind], silent_s=silent_s, setup_s=max(setups, default=None))


def _as(first: RunReport, decisive: RunReport, silent_s: float, error: str | None) -> RunReport:
    """The progress that rank 0 reports, with the end that `decisive` reports."""
    return replace(
        first,
        state=decisive.state,
        silent_s=silent_s,
        error=error,
        exit_status=decisive.exit_status,
        permanent=decisive.permanent,
        setup_failed=decisive.setup_failed,
    )
