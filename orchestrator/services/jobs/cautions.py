"""Cautions about the programs of new jobs that can be known before a machine is rented, each with its remedy."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.formats.readable import some_of
from orchestrator.jobfile.program.saved_state import starts_over
from orchestrator.model import JobSpec

SHOWN_NAMES = 4
_Program = tuple[str | None, str | None, str, bool, tuple[str, ...]]
"""What the answer depends on, so that the many jobs of a group are looked at once."""


def cautions(specs: Iterable[JobSpec]) -> tuple[str, ...]:
    """Sentences about the programs of these jobs. Nothing is run: a program that may continue from a saved state, or
    cannot be read here, is not mentioned."""
    known: dict[_Program, bool] = {}
    names = []
    for spec in specs:
        train = spec.train
        program = (train.entry, train.script, train.workdir, train.setup is None, tuple(sorted(train.env)))
        if program not in known:
            known[program] = starts_over(train)
        if known[program]:
            names.append(spec.name)
    return (_starts_over(names),) if names else ()


def _starts_over(names: list[str]) -> str:
    if len(names) == 1:
        which = f"{names[0]}: its program reads no saved state, so it starts"
    else:
        which = f"{some_of(names, SHOWN_NAMES)}: their programs read no saved state, so they start"
    return (
        f"{which} from step 0 after each pause and each loss of a machine, which no forecast includes; to continue "
        "instead, call trainers.attach() (docs/training-code.md)"
    )
