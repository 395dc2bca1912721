"""Group file -> GroupSpec. Reports all problems of the file and of its job files at once, each with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from orchestrator.errors import Problem, SpecError, nearest
from orchestrator.jobfile.group.entry import Entries, Made, Rules, below
from orchestrator.jobfile.group.fill import names_in
from orchestrator.jobfile.group.layers import Layer
from orchestrator.jobfile.group.matrix import MOST_JOBS, Combination
from orchestrator.jobfile.group.names import MOST_UNKNOWN, Names
from orchestrator.jobfile.group.problems import EntryProblems, few
from orchestrator.jobfile.group.schema import JOBS_EXAMPLE, OWN_FIELDS, GroupFile, looks_like_group
from orchestrator.jobfile.parse import UNKNOWN, findings_of, read_text, read_tree
from orchestrator.jobfile.schema import DEFAULT_PROJECT, JobFile
from orchestrator.jobfile.source.normalize import to_plain
from orchestrator.jobfile.source.source_map import Finding, Loc, SourceMap, follows, unread
from orchestrator.model import GroupSpec

_OF_JOBS = ("jobs", "defaults")
"""Fields that are read even if their name is misspelt, so that the mistakes in them are reported as well."""


def is_group_file(path: str | Path) -> bool:
    """Whether this is a group file: a mapping with `jobs`, or with `group` and without `train`, in upper or lower case.
    Raises SpecError if it cannot be read."""
    value, _, _ = read_tree(read_text(path), path)
    return looks_like_group(value)


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

    A path is relative to the folder of the file that contains it. Raises SpecError with every problem.
    """
    value, source_map, findings = read_tree(text, path)
    if isinstance(value, dict):
        value, source_map, findings = _as_meant(value, source_map, findings)
    tree, unfit = to_plain(value)
    findings += map(_of_group, unfit)
    fields = tree if isinstance(tree, dict) else {}
    top = Layer(fields, str(path), (), source_map, frozenset(unread(findings)))
    reader = _Reader(top, now_ms, submitting, project)
    for finding in findings:
        reader.report(finding)
    if not isinstance(tree, dict):
        reader.report(Finding((), "must be a mapping of fields", 'start with "group: my-group"'))
        raise SpecError(reader.problems[:1])
    spec = reader.group()
    if reader.problems or spec is None:
        raise SpecError(_in_order(reader.problems, str(path)))
    return spec


def _as_meant(
    tree: dict[str, object], source_map: SourceMap, findings: list[Finding]
) -> tuple[dict[str, object], SourceMap, list[Finding]]:
    """The file with misspelt names of `jobs` and `defaults` corrected; each correction is a finding."""
    meant: dict[str, str] = {}
    for key in tree:
        near = nearest(key, _OF_JOBS)
        known = key in GroupFile.model_fields or key in JobFile.model_fields
        if near and not known and tree.get(near) is None and near not in meant.values():
            meant[key] = near

    def moved(loc: Loc) -> Loc:
        return (meant.get(str(loc[0]), loc[0]), *loc[1:]) if loc else loc

    wrong = [
        Finding((key,), UNKNOWN, f'did you mean "{name}"?', mark=source_map.keys[(key,)]) for key, name in meant.items()
    ]
    keys = {moved(loc): mark for loc, mark in source_map.keys.items()}
    values = {moved(loc): mark for loc, mark in source_map.values.items()}
    texts = {moved(loc): text for loc, text in source_map.texts.items()}
    tree = {meant.get(key, key): each for key, each in tree.items() if key in meant or key not in meant.values()}
    return tree, SourceMap(keys, values, texts), [*wrong, *(replace(each, loc=moved(each.loc)) for each in findings)]


def _of_group(finding: Finding) -> Finding:
    """The finding; if a list of jobs or of values is too long, with the remedy."""
    if finding.loc == ("jobs",):
        return replace(finding, hint="split them into several groups")
    if finding.at == "key" and finding.loc[:1] == ("jobs",) and finding.loc[2:3] == ("matrix",):
        return replace(finding, hint="use fewer values")
    return finding


def _in_order(problems: list[Problem], path: str) -> list[Problem]:
    """The problems without duplicates (entries can share a job file): first the group file's, in file order."""
    once = {(each.path, each.line, each.column, each.field, each.message): each for each in reversed(problems)}
    return sorted(reversed(once.values()), key=lambda each: (each.path != path, each.path, each.line, each.column))


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
        """The group; None if its jobs have mistakes."""
        file, wrong = self._file()
        project = None if "project" in wrong or ("project",) in self.top.lost else file.project
        rules = Rules(project, file.budget, self._now_ms, self._submitting, file.project)
        entries = Entries(self.top, self._shared(), rules, self.problems)
        made: list[Made] = []
        whole, count = "jobs" not in wrong and ("jobs",) not in self.top.lost, 0
        for at, entry in self._entries():
            if not isinstance(entry, dict):
                whole = False
                if at not in self.top.lost:
                    self.report(Finding(at, *_no_entry(entry)))
                continue
            matrix = entries.matrix(at, entry)
            before, count = count, count + len(matrix.combinations)
            if count > MOST_JOBS:
                matrix = replace(matrix, combinations=matrix.combinations[:1], whole=False)
            if before <= MOST_JOBS < count:
                self.report(Finding(at, f"more than {MOST_JOBS:,} jobs in one group", "split them into several groups"))
            made += entries.jobs(at, entry, matrix)
        names = Names(made, whole=whole)
        self._tell(names, made)
        jobs = names.jobs()
        if self.problems or len(jobs) < len(made):
            return None
        deadline_s, deadline_at_ms = file.deadline or (None, None)
        return GroupSpec(file.group, file.policy, file.project, tuple(jobs), file.budget, deadline_s, deadline_at_ms)

    def _tell(self, names: Names, made: list[Made]) -> None:
        for finding in (*names.duplicates(), *names.cycles()):
            self.report(finding)
        combinations: dict[Loc, list[Combination]] = {}
        for each in made:
            combinations.setdefault(each.at, []).append(each.combination)
        mistakes = {at: EntryProblems() for at in combinations}
        for finding, job in names.unknown():
            about = names_in(self.top.tree, finding.loc) & job.combination.keys()
            mistakes[job.at].add(self.top.problem(finding), job.combination, about)
        unknown = [problem for at, collected in mistakes.items() for problem in collected.problems(combinations[at])]
        self.problems += few(unknown, MOST_UNKNOWN, "unknown names")

    def _file(self) -> tuple[GroupFile, set[str]]:
        """(the group's own fields; the names of wrong ones, which are reported and replaced by their defaults)."""
        fields = {key: value for key, value in self.top.tree.items() if value is not None}
        context, lost = {"now_ms": self._now_ms}, set(self.top.lost)
        try:
            return GroupFile.model_validate({"project": self._project, **fields}, context=context), set()
        except ValidationError as error:
            findings = findings_of(error, fields, GroupFile)
        for index, each in enumerate(findings):
            if each.message == UNKNOWN:
                meant, hint = _instead_of(str(each.loc[0]))
                findings[index] = replace(each, hint=hint)
                lost.add((meant,))
        for each in findings:
            if not follows(each, lost if each.lacks else self.top.lost):
                self.report(each)
        wrong = {str(each.loc[0]) for each in findings}
        right = {key: value for key, value in fields.items() if key not in wrong}
        least = {"group": "unnamed", "project": self._project, "jobs": [None]}
        return GroupFile.model_validate({**least, **right}, context=context), wrong

    def _shared(self) -> list[Layer]:
        """The layers of all jobs: the defaults, and misplaced fields that belong there."""
        path, source_map = self.top.path, self.top.source_map
        given = self.top.tree.get("defaults")
        unreadable = given is not None and not isinstance(given, dict)
        lost = frozenset({()}) if unreadable else below(self.top.lost, ("defaults",))
        misplaced = {key: self.top.tree[key] for key in _misplaced(self.top.tree)}
        layers = [Layer(given if isinstance(given, dict) else {}, path, ("defaults",), source_map, lost, shared=True)]
        if misplaced:
            layers.insert(0, Layer(misplaced, path, (), source_map, below(self.top.lost, ()), shared=True))
        return layers

    def _entries(self) -> Iterator[tuple[Loc, object]]:
        """The place and value of each entry, even if `jobs` is a mapping instead of a list."""
        jobs = self.top.tree.get("jobs")
        if isinstance(jobs, list):
            yield from ((("jobs", index), entry) for index, entry in enumerate(jobs))
        elif isinstance(jobs, dict) and jobs.keys() & {*OWN_FIELDS, *JobFile.model_fields}:
            yield ("jobs",), jobs
        elif isinstance(jobs, dict) and all(isinstance(each, dict) for each in jobs.values()):
            yield from ((("jobs", name), {"name": name, **each}) for name, each in jobs.items())


def _misplaced(tree: Mapping[str, object]) -> list[str]:
    """Fields of jobs that were written at the top level instead of in `defaults`."""
    return [key for key in tree if key in JobFile.model_fields and key not in (*GroupFile.model_fields, "name")]


def _instead_of(name: str) -> tuple[str, str]:
    """(the field of a group that was probably meant, if any; the remedy)."""
    if name == "name":
        return "group", 'the name of a group is in the field "group"'
    if name in OWN_FIELDS:
        return "", "write it in an entry of `jobs`"
    if name in JobFile.model_fields:
        return "", "write it in `defaults`, for all jobs, or in an entry of `jobs`"
    if near := nearest(name, GroupFile.model_fields):
        return near, f'did you mean "{near}"?'
    return "", f"valid fields: {', '.join(GroupFile.model_fields)}"


def _no_entry(entry: object) -> tuple[str, str]:
    """The message and the remedy for an entry that is not a mapping."""
    if isinstance(entry, str) and entry.endswith((".yaml", ".yml")):
        return "must be a mapping of fields", f"write {{file: {entry}}}"
    wrong = "is empty" if entry is None else "must be a mapping of fields"
    return wrong, f"write it like {JOBS_EXAMPLE[1:-1]}"
