"""Group file -> GroupSpec: all problems of the file and of its job files at once, each with its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from orchestrator.errors import Problem, SpecError, did_you_mean
from orchestrator.jobfile.checks import absolute
from orchestrator.jobfile.group.layers import Layer, merge
from orchestrator.jobfile.group.matrix import MOST_JOBS, Combination, combinations, filled, name_of
from orchestrator.jobfile.group.order import cycle
from orchestrator.jobfile.group.schema import EntryFields, GroupFile, own_fields
from orchestrator.jobfile.parse import checked, finding_of, read_text, read_tree
from orchestrator.jobfile.schema import DEFAULT_PROJECT
from orchestrator.jobfile.source.normalize import to_plain
from orchestrator.jobfile.source.source_map import Finding, Loc
from orchestrator.model import GroupJob, GroupSpec
from providers.money import format_usd


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

    Paths in a job file are relative to its own folder, all others to the group file's. Raises SpecError with every
    problem.
    """
    value, source_map, findings = read_tree(text, path)
    tree, unfit = to_plain(value)
    reader = _Reader(Layer(cast(dict[str, object], tree), str(path), (), source_map), now_ms, submitting, project)
    for finding in (*findings, *unfit):
        reader.report(finding)
    if not isinstance(tree, dict):
        raise SpecError(reader.problems or [reader.top.problem(Finding((), "must be a mapping of fields"))])
    found = reader.group()
    if reader.problems or found is None:
        raise SpecError(sorted(reader.problems, key=lambda each: (each.path != str(path), each.line, each.column)))
    return found


@dataclass(frozen=True, slots=True)
class _Made:
    """A job, the name that its entry has without its matrix, and the index of the entry."""

    job: GroupJob
    base: str
    entry: int


class _Reader:
    """Reads one group file; collects its problems."""

    def __init__(self, top: Layer, now_ms: int | None, submitting: bool, project: str) -> None:
        self.top = top
        self.problems: list[Problem] = []
        self._now_ms, self._submitting, self._project = now_ms, submitting, project
        self._folder = Path(top.path).parent

    def report(self, finding: Finding) -> None:
        """A problem of the group file itself."""
        self.problems.append(self.top.problem(finding))

    def group(self) -> GroupSpec | None:
        """The group; None if its own fields are too wrong for one."""
        tree = {"project": self._project, **{k: v for k, v in self.top.tree.items() if v is not None}}
        try:
            file = GroupFile.model_validate(tree, context={"now_ms": self._now_ms})
        except ValidationError as error:
            for details in error.errors(include_url=False, include_input=False):
                finding = finding_of(details)
                if details["type"] == "extra_forbidden":
                    fields = GroupFile.model_fields
                    hint = did_you_mean(str(finding.loc[-1]), fields) or f"valid fields: {', '.join(fields)}"
                    finding = replace(finding, hint=hint)
                self.report(finding)
            return None
        if not file.jobs:
            self.report(Finding(("jobs",), "a group needs at least one job", "list them: [{file: job.yaml}]"))
        made: list[_Made] = []
        for index, entry in enumerate(file.jobs):
            made += self._jobs(index, entry, file)
            if len(made) > MOST_JOBS:
                wrong = f"more than {MOST_JOBS:,} jobs in one group"
                self.report(Finding(("jobs", index), wrong, "make several groups of them"))
                return None
        if self.problems:
            return None
        jobs = self._in_order(made)
        deadline_s, deadline_at_ms = file.deadline or (None, None)
        jobs = [self._by(each, deadline_s, deadline_at_ms) for each in jobs]
        spec = GroupSpec(file.group, file.policy, file.project, tuple(jobs), file.budget, deadline_s, deadline_at_ms)
        self._check_budgets(made, spec)
        return spec

    def _jobs(self, index: int, entry: dict[str, object], file: GroupFile) -> list[_Made]:
        """The jobs of one entry."""
        at, source_map = ("jobs", index), self.top.source_map
        fields = self._own(index, entry)
        given = {key: value for key, value in entry.items() if key not in own_fields()}
        layers, base_dir = [Layer(file.defaults, self.top.path, ("defaults",), source_map)], self._folder
        if fields is None:
            return []
        if fields.file is not None:
            layer = self._job_file(index, fields.file)
            if layer is None:
                return []
            layers.append(layer)
            base_dir = Path(layer.path).parent
        merged = merge([*layers, Layer(given, self.top.path, at, source_map)])
        found: list[Combination] = [{}]
        if "matrix" in entry:
            found, wrong = combinations(entry["matrix"], (*at, "matrix"), source_map.texts)
            for each in wrong:
                self.report(each)
        base = str(merged.tree.get("name", ""))
        made: list[_Made] = []
        for combination in found:
            texts = merged.texts
            tree, unknown = filled(merged.tree, combination, texts)
            if base and combination:
                tree["name"] = name_of(base, combination)
            spec, problems = checked(
                tree,
                base_dir,
                list(unknown),
                texts,
                now_ms=self._now_ms,
                submitting=self._submitting,
                project=file.project,
            )
            if spec is not None and spec.project != file.project:
                hint = f"delete it: the group's project is {file.project}"
                problems.append(Finding(("project",), "a group and its jobs are in one project", hint))
            if problems:
                self.problems += [merged.problem(each) for each in problems]
                return []  # the others have the same
            assert spec is not None
            made.append(_Made(GroupJob(spec, fields.weight, fields.after or ()), base, index))
        return made

    def _own(self, index: int, entry: dict[str, object]) -> EntryFields | None:
        own = {key: entry[key] for key in EntryFields.model_fields if key in entry}
        try:
            return EntryFields.model_validate(own)
        except ValidationError as error:
            for details in error.errors(include_url=False, include_input=False):
                finding = finding_of(details)
                self.report(replace(finding, loc=("jobs", index, *finding.loc)))
            return None

    def _job_file(self, index: int, name: str) -> Layer | None:
        """The job file that an entry names. An entry's field `file` is reported if it cannot be read."""
        path = absolute(name, str(self._folder.absolute()))
        try:
            value, source_map, findings = read_tree(read_text(path), path)
        except SpecError as error:
            for each in error.problems:
                if each.line:
                    self.problems.append(each)
                else:
                    self.report(Finding(("jobs", index, "file"), f"{name} {each.message}", each.hint))
            return None
        tree, unfit = to_plain(value)
        if not isinstance(tree, dict) or "jobs" in tree:
            wrong = "is a group file" if isinstance(tree, dict) else "is not a mapping of fields"
            self.report(Finding(("jobs", index, "file"), f"{name} {wrong}", "name a job file"))
            return None
        layer = Layer(tree, path, (), source_map)
        self.problems += [layer.problem(each) for each in (*findings, *unfit)]
        return layer

    def _in_order(self, made: Sequence[_Made]) -> list[GroupJob]:
        """The jobs, each after jobs of the group by their full names. Reports duplicates, unknown names and cycles."""
        of_name: dict[str, list[str]] = {}
        entries: dict[str, int] = {}
        for each in made:
            name = each.job.spec.name
            if name in entries:
                hint = "give each job a name of its own: jobs of a group name each other"
                self.report(Finding(("jobs", each.entry), f"a second job is named {name}", hint))
            entries[name] = each.entry
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
                where: Loc = ("jobs", entries[circle[0]], "after")
                self.report(Finding(where, f"a cycle: {' after '.join(circle)}", "remove one of these"))
        return jobs

    def _by(self, job: GroupJob, deadline_s: float | None, deadline_at_ms: int | None) -> GroupJob:
        """The job, with the group's deadline if that is earlier than its own."""
        spec = job.spec
        if deadline_s is None and deadline_at_ms is None:
            return job
        own, whole = self._due_s(spec.deadline_s, spec.deadline_at_ms), self._due_s(deadline_s, deadline_at_ms)
        if own is not None and whole is not None and own <= whole:
            return job
        return replace(job, spec=replace(spec, deadline_s=deadline_s, deadline_at_ms=deadline_at_ms))

    def _due_s(self, after_s: float | None, at_ms: int | None) -> float | None:
        """Seconds from now."""
        return after_s if at_ms is None else (at_ms - (self._now_ms or 0)) / 1000

    def _check_budgets(self, made: Sequence[_Made], spec: GroupSpec) -> None:
        whole = spec.budget_nano_usd
        for each in made if whole is not None else ():
            own = each.job.spec.budget_nano_usd
            if own is not None and whole is not None and own > whole:
                wrong = f"the budget of {each.job.spec.name} ({format_usd(own)}) is larger than its group's"
                hint = f"at most {format_usd(whole)}, or raise the group's budget"
                self.report(Finding(("jobs", each.entry, "budget"), wrong, hint))
