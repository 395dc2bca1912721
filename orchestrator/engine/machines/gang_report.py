"""Gang report: combines the reports of a run's machines into the report of the run. Pure.

Rank 0 reports the run's progress. The run is in the state of the machine that is furthest behind; its end is that of
the first machine that ended for a reason of its own. Losing contact with another machine is not such a reason: it means
that the other machine is gone. The end of a run ends all its machines, so it waits until all of them have stored their
logs and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.engine.runtime import RunReport, TrainerState

_ON_THE_WAY: tuple[TrainerState, ...] = ("starting", "prepared", "restored", "training", "quiesced")
_AT_ONCE: tuple[TrainerState, ...] = ("malformed", "fenced")
_ENDS: tuple[TrainerState, ...] = ("finished", "failed", "checkpointed_and_stopped")
LAGGARDS_S = 30.0
"""The time for which the other machines' processes may keep running after machine 0 has finished or a machine has
stopped."""
CAUSE_S = 5.0
"""How much earlier the reports of processes that lost contact may arrive than the report of the cause."""


class Ends:
    """Remembers, for each run, since when the set of its ended machines has not changed."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Sequence[TrainerState | None], float]] = {}

    def since_s(self, run_id: str, reports: Sequence[RunReport | None], now_s: float) -> float:
        """How many seconds ago the last of the ended machines was first seen to have ended; 0 if none has ended."""
        ends = [each.state if each is not None and each.state in _ENDS else None for each in reports]
        seen, at_s = self._seen.get(run_id, ([], now_s))
        if ends != seen:
            at_s = now_s
            self._seen[run_id] = ends, at_s
        return now_s - at_s if any(ends) else 0.0

    def forget(self, run_id: str) -> None:
        """Forget a run that has ended."""
        self._seen.pop(run_id, None)


def combined(reports: Sequence[RunReport | None], *, ended_for_s: float = 0.0) -> RunReport | None:
    """The report of a run from the reports of its machines, by rank; None while nothing is known of one of them.
    `ended_for_s`: how long ago the last of the ended machines ended (Ends)."""
    known = [each for each in reports if each is not None]
    if not known or len(known) < len(reports):
        return None
    if len(known) == 1:
        return known[0]
    notices = [each.notice_s for each in known if each.notice_s is not None]
    first, silent_s = replace(known[0], notice_s=min(notices, default=None)), max(each.silent_s for each in known)
    states, running = {each.state for each in known}, [each for each in known if each.state in _ON_THE_WAY]
    ships = any(each.ships for each in running) and "absent" not in states
    for rank, each in enumerate(known):
        if each.state == "failed" and not each.peer_lost and not ships:
            return _as(first, each, silent_s, f"machine {rank}: {each.error or 'the trainer failed'}")
    awaited = ships or (bool(running) and ended_for_s < LAGGARDS_S)
    for state in (*_AT_ONCE, *(() if awaited else ("checkpointed_and_stopped",))):
        for rank, each in enumerate(known):
            if each.state == state:
                return _as(first, each, silent_s, f"machine {rank}: {each.error}" if each.error else None)
    if first.state == "finished" and not awaited:
        return replace(first, silent_s=silent_s)
    excused = ships or (bool(running) and ended_for_s < CAUSE_S)
    if "absent" in states or ("failed" in states and not excused):
        errors = [f"machine {rank}: {each.error}" for rank, each in enumerate(known) if _tells_of_another(each)]
        return replace(first, state="absent", silent_s=silent_s, error=next(iter(errors), None))
    if "silent" in states:
        return replace(first, state="silent", silent_s=silent_s)
    behind = min(_ON_THE_WAY.index(each.state) for each in running)
    setups = [each.setup_s for each in known if each.setup_s is not None]
    still_s = 0.0 if first.state in _ENDS else first.still_s
    return replace(
        first,
        state=_ON_THE_WAY[behind],
        silent_s=silent_s,
        still_s=still_s,
        setup_s=max(setups, default=None),
        fetching=any(each.fetching for each in known),
        fetched_bytes=sum(each.fetched_bytes for each in known),
    )


def _tells_of_another(report: RunReport) -> bool:
    """Whether a machine's last report says which other machine is gone."""
    return report.state == "absent" and report.error is not None


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
