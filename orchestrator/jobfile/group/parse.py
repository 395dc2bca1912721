"""Group file -> GroupSpec: all problems of the file and of its job files at once, each with its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from orchestrator.errors import Problem, SpecError, did_you_mean
from orchestrator.jobfile.group.entry import Entries, Made
from orchestrator.jobfile.group.layers import Layer
from orchestrator.jobfile.group.matrix import MOST_JOBS
from orchestrator.jobfile.group.order import cycle
from orchestrator.jobfile.group.schema import GroupFile
from orchestrator.jobfile.parse import finding_of, read_text, read_tree
from orchestrator.jobfile.schema import DEFAULT_PROJECT
from orchestrator.jobfile.source.normalize import to_plain
from orchestrator.jobfile.source.source_map import Finding, Loc, dotted
from orchestrator.model import GroupJob, GroupSpec
from providers.money import format_usd

OF_JOBS = ("jobs", "defaults", "project")
"""Fields of a group without which its jobs look wrong."""


def is_group_file(path: str | Path) -> bool:
    """Whether this is a group file: a mapping with `group`, or with `jobs` and without `train`. Raises SpecError if it
    cannot be read."""
    value, _, _ = read_tree(read_text(path), path)
    return isinstance(value, dict) and "train" not in value and ("group" in value or "jobs" in value)


def load_group(
    path: str | Path, *, now_ms: int | None = None, submitting: bool = False, project: str = DEFAULT_PROJECT
) -> GroupSpec:
    """Read and check a group file. For the arguments see `parse_group`. Raises SpecError."""
    return parse_group(read_text(path), path, now_ms=now_ms, submitting=submitting, project=project)


def parse_group(
    text: str,
    path: str | Path,
    *,
    now_ms: int | None = None,
    submitting: bool = False,
    project: str = DEFAULT_PROJECT,
) -> GroupSpec:
    """Check the text of the group file `path`; for the other arguments see `parse_job`.

    A path is relative to the folder of the file that it was written in. Raises SpecError with every problem.
    """
    value, source_map, findings = read_tree(text, path)
    tree, unfit = to_plain(value)
    reader = _Reader(Layer(cast(dict[str, object], tree), str(path), (), source_map), now_ms, submitting, project)
    for finding in (*findings, *map(_of_group, unfit)):
        reader.report(finding)
    if not isinstance(tree, dict):
        raise SpecError(reader.problems or [reader.top.problem(Finding((), "must be a mapping of fields"))])
    early = list(reader.problems)
    found = reader.group()
    if reader.problems or found is None:
        # A value that could not be carried over was dropped, so that its field now looks missing or empty; and a job
        # file with a mistake may be that of several entries.
        dropped = {(str(path), dotted(each.loc)) for each in unfit}
        late = [each for each in reader.problems[len(early) :] if (each.path, each.field) not in dropped]
        told = dict.fromkeys((*early, *late))
        raise SpecError(sorted(told, key=lambda each: (each.path != str(path), each.line, each.column)))
    return found


def _of_group(finding: Finding) -> Finding:
    """What a file cannot hold; if it is too long a list of jobs or of values, with the remedy for that."""
    if finding.loc == ("jobs",):
        return replace(finding, hint="make several groups of them")
    if finding.hint and finding.loc[:1] == ("jobs",) and finding.loc[2:3] == ("matrix",):
        return replace(finding, hint="use fewer values")
    return finding


class _Reader:
    """Reads one group file; collects its problems."""

    def __init__(self, top: Layer, now_ms: int | None, submitting: bool, project: str) -> None:
        self.top = top
        self.problems: list[Problem] = []
        self._now_ms, self._submitting, self._project = now_ms, submitting, project

    def report(self, finding: Finding) -> None:
        """A problem of the group file itself."""
        self.problems.append(self.top.problem(finding))

    def group(self) -> GroupSpec | None:
        """The group; None if its own fields are too wrong for one."""
        file = self._file({"project": self._project, **{k: v for k, v in self.top.tree.items() if v is not None}})
        if file is None:
            return None
        if not file.jobs:
            self.report(Finding(("jobs",), "a group needs at least one job", "list them: [{file: job.yaml}]"))
        made: list[Made] = []
        entries = Entries(self.top, file, self.problems, now_ms=self._now_ms, submitting=self._submitting)
        for index, entry in enumerate(file.jobs):
            made += entries.jobs(index, entry)
            if len(made) > MOST_JOBS:
                wrong = f"more than {MOST_JOBS:,} jobs in one group"
                self.report(Finding(("jobs", index), wrong, "make several groups of them"))
                return None
        wrong_before = bool(self.problems)
        entry_of = self._named(made)
        if wrong_before:
            return None  # an entry with a mistake makes no job, which others may name
        jobs = self._in_order(made, entry_of)
        deadline_s, deadline_at_ms = file.deadline or (None, None)
        spec = GroupSpec(file.group, file.policy, file.project, tuple(jobs), file.budget, deadline_s, deadline_at_ms)
        self._check_budgets(made, spec)
        return spec

    def _file(self, tree: dict[str, object]) -> GroupFile | None:
        """The group's own fields. Those that are wrong are reported, and left out so that its jobs can be checked; None
        if the jobs depend on one of them."""
        context = {"now_ms": self._now_ms}
        try:
            return GroupFile.model_validate(tree, context=context)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)
        matters = False
        for details in wrong:
            finding = finding_of(details)
            meant = ""
            if details["type"] == "extra_forbidden":
                fields = GroupFile.model_fields
                meant = did_you_mean(str(finding.loc[-1]), fields)
                finding = replace(finding, hint=meant or f"valid fields: {', '.join(fields)}")
            matters |= not finding.loc or finding.loc[0] in OF_JOBS or any(f'"{each}"' in meant for each in OF_JOBS)
            self.report(finding)
        if matters:
            return None
        left_out = {details["loc"][0] for details in wrong}
        rest = {key: value for key, value in tree.items() if key not in left_out}
        return GroupFile.model_validate({"group": "unnamed", **rest}, context=context)

    def _named(self, made: Sequence[Made]) -> dict[str, int]:
        """The entry of each job, by name. Reports duplicates."""
        entries: dict[str, int] = {}
        for each in made:
            name = each.job.spec.name
            if name in entries:
                hint = "give each job a name of its own: jobs of a group name each other"
                self.report(Finding(("jobs", each.entry), f"a second job is named {name}", hint))
            entries[name] = each.entry
        return entries

    def _in_order(self, made: Sequence[Made], entry_of: Mapping[str, int]) -> list[GroupJob]:
        """The jobs, each after jobs of the group by their full names. Reports unknown names and cycles."""
        of_name: dict[str, list[str]] = {}
        for each in made:
            for name in {each.job.spec.name, each.base}:
                of_name.setdefault(name, []).append(each.job.spec.name)
        jobs = []
        for each in made:
            after: dict[str, None] = {}
            for position, name in enumerate(each.job.after):
                if name not in of_name:
                    hint = did_you_mean(name, of_name) or "name jobs of this group"
                    loc: Loc = ("jobs", each.entry, "after", position)
                    self.report(Finding(loc, f"there is no job {name!r} in this group", hint))
                after |= dict.fromkeys(of_name.get(name, ()))
            jobs.append(replace(each.job, after=tuple(after)))
        if not self.problems:
            circle = cycle({each.spec.name: each.after for each in jobs})
            if circle:
                where: Loc = ("jobs", entry_of[circle[0]], "after")
                self.report(Finding(where, f"a cycle: {' after '.join(circle)}", "remove one of these"))
        return jobs

    def _check_budgets(self, made: Sequence[Made], spec: GroupSpec) -> None:
        whole = spec.budget_nano_usd
        for each in made if whole is not None else ():
            own = each.job.spec.budget_nano_usd
            if own is not None and whole is not None and own > whole:
                wrong = f"the budget of {each.job.spec.name} ({format_usd(own)}) is larger than its group's"
                hint = f"at most {format_usd(whole)}, or raise the group's budget"
                self.report(Finding(("jobs", each.entry, "budget"), wrong, hint))
