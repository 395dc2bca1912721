"""Problems of the jobs of one entry. A problem that several jobs share is reported once, with its matrix values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from orchestrator.errors import Problem
from orchestrator.jobfile.group.matrix import Combination
from orchestrator.jobfile.units import shown

_MOST_AT_ONE_PLACE = 5
_MOST_CASES = 5


class EntryProblems:
    """Collects the problems of the jobs made from a matrix."""

    def __init__(self) -> None:
        self._found: dict[Problem, tuple[list[Combination], Collection[str]]] = {}

    def add(self, problem: Problem, combination: Combination, names: Collection[str]) -> None:
        """Add a problem of one combination's job. `names`: the matrix values in the text at its place."""
        self._found.setdefault(problem, ([], names))[0].append(combination)

    def problems(self, every: Sequence[Combination]) -> list[Problem]:
        """The problems, at most a few for each place. `every`: all combinations of the entry."""
        at: dict[tuple[str, int, int, str], list[Problem]] = {}
        for problem, (some, names) in self._found.items():
            where = _where(some, every, names)
            placed = replace(problem, message=f"{problem.message}, {where}") if where else problem
            at.setdefault((placed.path, placed.line, placed.column, placed.field), []).append(placed)
        others = "mistakes with other values of the matrix"
        return [problem for same in at.values() for problem in few(same, _MOST_AT_ONE_PLACE, others)]


def few(problems: list[Problem], most: int, others: str) -> list[Problem]:
    """At most `most` problems. If there are more, the last one counts the rest and calls them `others`."""
    if len(problems) <= most:
        return problems
    *shown, last = problems[:most]
    message = f"and {len(problems) - len(shown):,} more {others}"
    return [*shown, replace(last, message=message, hint="correct the listed ones to see the rest")]


def _where(some: Sequence[Combination], every: Sequence[Combination], names: Collection[str]) -> str:
    """`where lr is 0.1 or 0.01`: the combinations `some`, described by the values `names`; empty for all."""
    deciding = [name for name in every[0] if name in names]
    if not deciding and len(some) == len(every):
        return ""
    deciding = deciding or _deciding(some, every)
    cases = dict.fromkeys(tuple(shown(each[name][1]) for name in deciding) for each in some)
    if len(deciding) == 1:
        return f"where {deciding[0]} is {_or([case[0] for case in cases])}"
    return f"where {_or([' and '.join(map(' is '.join, zip(deciding, case, strict=True))) for case in cases])}"


def _deciding(some: Sequence[Combination], every: Sequence[Combination]) -> list[str]:
    """The one name whose values distinguish the combinations `some`; all names if there is no such name."""
    for name in every[0]:
        values = {each[name][1] for each in some}
        if sum(each[name][1] in values for each in every) == len(some):
            return [name]
    return list(every[0])


def _or(cases: list[str]) -> str:
    if len(cases) > _MOST_CASES:
        return f"{', '.join(cases[: _MOST_CASES - 1])} or one of {len(cases) - _MOST_CASES + 1} more"
    return " or ".join([", ".join(cases[:-1]), cases[-1]] if len(cases) > 1 else cases)
