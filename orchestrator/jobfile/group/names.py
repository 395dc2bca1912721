"""The names of a group's jobs: duplicates, unknown names in `after`, and cycles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from orchestrator.errors import did_you_mean
from orchestrator.jobfile.group.entry import Made
from orchestrator.jobfile.group.matrix import Combination
from orchestrator.jobfile.group.order import cycles
from orchestrator.jobfile.source.source_map import Finding, Loc
from orchestrator.jobfile.units import shown
from orchestrator.model import GroupJob

_MOST_SHOWN = 5  # names of a cycle
MOST_UNKNOWN = 10
"""How many unknown names are reported; the others are counted."""


class Names:
    """Checks the names of a group's jobs. `whole`: every entry could be read."""

    def __init__(self, made: Sequence[Made], *, whole: bool) -> None:
        self._made = made
        self._of: dict[str, list[str]] = {}
        for each in made:
            if each.name is not None and each.base is not None:
                for name in {each.name, each.base}:
                    self._of.setdefault(name, []).append(each.name)
        # A name in `after` may refer to a job whose name is unknown.
        self._open = not whole or any(each.base is None for each in made)
        self._beginnings = tuple({each.base for each in made if each.name is None and each.base is not None})

    def jobs(self) -> list[GroupJob]:
        """The jobs without mistakes; their `after` holds full names of jobs."""
        return [replace(each.job, after=tuple(self._after(each))) for each in self._made if each.job is not None]

    def _after(self, made: Made) -> dict[str, None]:
        return dict.fromkeys(name for _, given in made.after for name in self._of.get(given, ()))

    def unknown(self) -> Iterator[tuple[Finding, Made]]:
        """Unknown names in `after`, with their jobs. Only the first few get a similar name as a hint, because the
        search takes milliseconds."""
        hints: dict[str, str] = {}
        for made in self._made:
            for loc, name in made.after:
                if name not in self._of and not self._may_be(name):
                    if name not in hints:
                        near = did_you_mean(name, self._of) if len(hints) < MOST_UNKNOWN else ""
                        hints[name] = near or "name jobs of this group"
                    yield Finding(loc, f"there is no job {name!r} in this group", hints[name]), made

    def _may_be(self, name: str) -> bool:
        return self._open or any(name == each or name.startswith(f"{each}-") for each in self._beginnings)

    def duplicates(self) -> Iterator[Finding]:
        """Names shared by several jobs, of one entry or of different ones."""
        first: dict[str, Made] = {}
        same_named: dict[tuple[Loc, bool], list[Made]] = {}
        for each in self._made:
            if each.name is not None and (other := first.setdefault(each.name, each)) is not each:
                same_named.setdefault((each.at, each.at == other.at), []).append(each)
        for (at, by_matrix), same in same_named.items():
            made = same[0]
            more = f" (and {len(same) - 1} more like this)" if len(same) > 1 else ""
            if by_matrix:
                both = " and ".join(_values(each.combination) for each in (first[str(made.name)], made))
                hint = 'write a separator between the values in `name`, or make them differ in letters, digits or "._-"'
                wrong = f"{both} give the same job name, {made.name}{more}"
                yield Finding((*at, "matrix"), wrong, hint)
            else:
                hint = "give each job a different name: jobs of a group refer to each other by name"
                yield Finding(at, f"a second job is named {made.name}{more}", hint)

    def cycles(self) -> Iterator[Finding]:
        """Cycles in `after`: one for each set of jobs that wait for each other."""
        count = Counter(each.name for each in self._made)
        by_name = {each.name: each for each in self._made if each.name is not None and count[each.name] == 1}
        after = {name: [each for each in self._after(made) if each in by_name] for name, made in by_name.items()}
        for circle in cycles(after):
            way = [*circle, circle[0]]
            if len(circle) > _MOST_SHOWN:
                way[_MOST_SHOWN - 1 : -1] = [f"... ({len(circle) - _MOST_SHOWN + 1} more)"]
            wrong = f"a cycle: {' after '.join(way)}"
            yield Finding((*by_name[circle[0]].at, "after"), wrong, "remove one of these")


def _values(combination: Combination) -> str:
    return ", ".join(f"{name} {shown(text)}" for name, (_, text) in combination.items())
