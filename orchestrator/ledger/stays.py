"""Stays: the time a job's work would have taken on machines that are never preempted. Pure.

A stay is one uninterrupted time on a machine. Runs separated only by a loss of spot capacity or a move form one stay,
without what those added (repeated work, the start of the next machine, the end of the one before, a standby's wait). A
pause, a failure of the job's own code and the loss of an on-demand machine would have happened on any machine: each
begins a new stay, all of whose time counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.ledger.time_breakdown import of_one_machine
from orchestrator.model import Entry, EntryKind, Run
from providers.billing.charges import MACHINE_CHARGES

OF_A_MACHINE: tuple[EntryKind, ...] = ("compute", *MACHINE_CHARGES)
"""Charges that follow from which machine was rented, when and for how long."""
KEPT_FOR_THE_JOB: tuple[EntryKind, ...] = ("storage",)
"""Charges that a job has wherever it runs, and however often it moves."""


@dataclass(frozen=True, slots=True)
class Part:
    """What counts of one run, in ms of market time. `worked_ms` made steps (including those repeated after the job's
    own failure) and depends on the machine's speed; `kept_ms` is start-up, saving and waiting, which does not.

    `offer_id` is where it ran or is assumed to have run; `pace` is the time of a step there relative to the actual one.
    """

    run_id: str
    offer_id: str
    kept_ms: int
    worked_ms: int
    pace: float = 1.0


@dataclass(frozen=True, slots=True)
class Stay:
    """One stay. `from_ms`: when its first machine's bill began; `ended`: whether its last one is booked to its end."""

    from_ms: int
    ended: bool
    parts: tuple[Part, ...]


def trained(runs: Sequence[Run]) -> list[Run]:
    """The runs that took over and trained, by generation. Other runs did no work that any machine would need."""
    taken = (run for run in runs if run.training_from_ms is not None and run.billed_from_ms is not None)
    return sorted((run for run in taken if run.end != "aborted"), key=lambda run: run.generation)


def stays(runs: Sequence[Run], upto_ms: Mapping[str, int], *, factor: float) -> list[Stay]:
    """The stays of a job. `upto_ms` is, by run id, up to when runs still being billed are booked; `factor` is market
    seconds per wall second (Clock.factor)."""
    made: list[Stay] = []
    for together in _chained(trained(runs)):
        first = together[0]
        assert first.billed_from_ms is not None
        last, begin = together[-1], first.billed_from_ms
        parts = tuple(
            _part(run, upto_ms.get(run.id, begin), factor, opens=_opens(run, first), closes=run is last)
            for run in together
        )
        made.append(Stay(begin, last.billed_to_ms is not None, parts))
    return made


def carried_nano_usd(runs: Sequence[Run], entries: Sequence[Entry]) -> int:
    """What a job was charged (nano-USD) that does not depend on its machines: for its storage, and with the first
    machine of each stay."""
    first = {together[0].id for together in _chained(trained(runs))}
    kinds: dict[str, EntryKind] = {}
    total = 0
    for entry in entries:  # in the order written: a corrected entry comes before its correction
        kind = kinds[entry.id] = kinds.get(entry.reverses or "", entry.kind)
        if kind not in OF_A_MACHINE and (kind in KEPT_FOR_THE_JOB or entry.run_id in first):
            total += entry.amount_nano_usd
    return total


def _chained(runs: Sequence[Run]) -> list[list[Run]]:
    chains: list[list[Run]] = []
    for run in runs:
        if chains and (_moved_or_preempted(chains[-1][-1]) or _next_on_its_machine(chains[-1][-1], run)):
            chains[-1].append(run)
        else:
            chains.append([run])
    return chains


def _next_on_its_machine(before: Run, run: Run) -> bool:
    """Whether the job's own code failed and was retried on the same machine."""
    return run.machine_from_ms is not None and run.instance_id == before.instance_id


def _moved_or_preempted(run: Run) -> bool:
    """Whether what ended this run would not have happened on a machine that is never preempted."""
    if run.end in ("preempted", "lost"):
        return not run.offer_id.endswith("/on_demand")
    return run.end == "moved"


def _opens(run: Run, first: Run) -> bool:
    """Whether its start-up and repeated steps would have been needed on any machine."""
    return run is first or run.machine_from_ms is not None


def _part(run: Run, upto_ms: int, factor: float, *, opens: bool, closes: bool) -> Part:
    assert run.billed_from_ms is not None
    assert run.training_from_ms is not None
    start = run.billed_from_ms
    end = max(start, upto_ms if run.billed_to_ms is None else run.billed_to_ms)
    trained_from = min(max(run.training_from_ms, start), end)
    trained_to = end if run.training_to_ms is None else min(max(run.training_to_ms, trained_from), end)
    split = of_one_machine(run, end, factor=factor)
    tail, waited = end - trained_to, min(max(run.created_at_ms, start), trained_from) - start
    within = trained_to - trained_from - split.useful_ms - split.lost_work_ms  # saving, stalls, holding
    kept = within + (waited + split.provisioning_ms if opens else 0) + (tail if closes else 0)
    return Part(run.id, run.offer_id, kept, split.useful_ms + (split.lost_work_ms if opens else 0))
