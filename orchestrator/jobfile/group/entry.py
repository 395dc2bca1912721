"""Converts an entry of a group file to its jobs: one, or one for each combination of its matrix."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from orchestrator.errors import Problem, SpecError
from orchestrator.jobfile.checks import absolute
from orchestrator.jobfile.fields import SECTIONS, meant_field, unknown_field_hint
from orchestrator.jobfile.group.fill import filled, has_values, misused, name_of, names_in
from orchestrator.jobfile.group.layers import Layer, Merged, merge
from orchestrator.jobfile.group.matrix import Combination, Matrix, read_matrix
from orchestrator.jobfile.group.paths import with_absolute_paths
from orchestrator.jobfile.group.problems import EntryProblems
from orchestrator.jobfile.group.schema import OWN_FIELDS, EntryFields, looks_like_group
from orchestrator.jobfile.parse import UNKNOWN, checked, findings_of, read_text, read_tree
from orchestrator.jobfile.schema import JobFile
from orchestrator.jobfile.source.normalize import to_plain
from orchestrator.jobfile.source.source_map import Finding, Loc, follows, unread
from orchestrator.jobfile.units import BadValueError, parse_money
from orchestrator.jobfile.values import is_name
from orchestrator.model import GroupJob
from providers.money import whole_usd


@dataclass(frozen=True, slots=True)
class Made:
    """What is known about a job. Even if some fields are wrong, its name and its `after` can be checked.

    `at` is the place of its entry. `name`, and `base` (the name without matrix values) are None if they are unknown or
    not valid. `after` has the place and text of each of its names. `job` is None if a field is wrong.
    """

    at: Loc
    combination: Combination
    name: str | None
    base: str | None
    after: tuple[tuple[Loc, str], ...]
    job: GroupJob | None


@dataclass(frozen=True, slots=True)
class Rules:
    """What a group requires of its jobs. `project` is the group's; None if that field is wrong."""

    project: str | None
    budget_nano_usd: int | None
    now_ms: int | None
    submitting: bool
    project_of_jobs: str  # of jobs that name no project


class Entries:
    """Makes the jobs of the entries of one group file, and adds their mistakes to `problems`."""

    def __init__(self, top: Layer, shared: Sequence[Layer], rules: Rules, problems: list[Problem]) -> None:
        self._top, self._rules, self._problems = top, rules, problems
        self._read: dict[str | None, Layer] = {None: _lost_layer(top)}
        self._alone: set[tuple[int, Loc, str]] = set()  # mistakes in single layers: layer, place, _wrong
        self._shared = [self._checked_alone(each) for each in shared]

    def matrix(self, at: Loc, entry: Mapping[str, object]) -> Matrix:
        """The matrix of the entry at `at`. Its mistakes are reported by `jobs`."""
        if (*at, "matrix") in self._top.lost or ("matrix",) in _meant(entry):
            return Matrix(whole=False, unread=None)
        if "matrix" not in entry:
            return Matrix()
        return read_matrix(entry["matrix"], (*at, "matrix"), self._top.source_map.texts)

    def jobs(self, at: Loc, entry: Mapping[str, object], matrix: Matrix) -> list[Made]:
        """The jobs of one entry, as far as they are known."""
        self._report(each for each in matrix.findings if not follows(each, self._top.lost))
        lost = below(self._top.lost, at) | _meant(entry)
        own = {key: entry[key] for key in EntryFields.model_fields if key in entry}
        given = {key: value for key, value in entry.items() if key not in OWN_FIELDS}
        last = Layer(given, self._top.path, at, self._top.source_map, lost)
        by_file: dict[str | None, list[tuple[Combination, EntryFields, tuple[tuple[Loc, str], ...]]]] = {}
        findings, unusable = misused(own, matrix)
        self._report(replace(each, loc=(*at, *each.loc)) for each in findings)
        mistakes = EntryProblems()
        for combination in matrix.combinations:
            fields, after = self._own(at, own, combination, unusable | lost, mistakes)
            by_file.setdefault(fields.file, []).append((combination, fields, after))
        self._problems += mistakes.problems(matrix.combinations)
        made: list[Made] = []
        no_file = entry.get("file") is None and ("file",) not in lost
        for name, combinations in by_file.items():
            layers = [last] if no_file else [self._job_file(at, name), last]
            merged = merge([*self._shared, *layers])
            findings, unusable = misused(merged.tree, matrix)
            self._problems += [merged.problem(each) for each in findings]
            mistakes = EntryProblems()
            for combination, fields, after in combinations:
                made.append(self._one((at, merged, unusable, matrix.whole), combination, fields, after, mistakes))
            self._problems += mistakes.problems([combination for combination, _, _ in combinations])
        return made

    def _report(self, findings: Iterable[Finding]) -> None:
        """Mistakes in the group file."""
        self._problems += [self._top.problem(each) for each in findings]

    def _own(
        self, at: Loc, own: Mapping[str, object], combination: Combination, lost: set[Loc], mistakes: EntryProblems
    ) -> tuple[EntryFields, tuple[tuple[Loc, str], ...]]:
        """The valid fields that an entry has in addition to those of a job file; and the names in `after`."""
        tree = filled(own, combination, {}, lost)
        named = tree.get("after")
        place: Loc = (*at, "after")
        names: list[tuple[Loc, Any]] = [(place, named)]
        if isinstance(named, list):
            names = [((*place, index), name) for index, name in enumerate(named)]
        after = tuple((loc, name) for loc, name in names if is_name(name))
        try:
            return EntryFields.model_validate(tree), after
        except ValidationError as error:
            findings = findings_of(error, tree, EntryFields)
        for each in findings:
            if not follows(each, lost):
                mistakes.add(
                    self._top.problem(replace(each, loc=(*at, *each.loc))), combination, names_in(own, each.loc)
                )
        wrong = {each.loc[0] for each in findings}
        return EntryFields.model_validate({key: each for key, each in tree.items() if key not in wrong}), after

    def _one(
        self,
        made_of: tuple[Loc, Merged, set[Loc], bool],
        combination: Combination,
        fields: EntryFields,
        after: tuple[tuple[Loc, str], ...],
        mistakes: EntryProblems,
    ) -> Made:
        at, merged, unusable, whole = made_of
        texts = merged.texts
        tree = filled(merged.tree, combination, texts, unusable)
        base, written = None, tree.get("name")
        if isinstance(written, str):
            full, base = name_of(written, combination)
            tree["name"] = full if is_name(base) else base
            base = base if is_name(base) else None
        elif isinstance(written, int | float):
            base = texts.get(("name",), str(written))  # other jobs use the unquoted text as its name
        name = tree["name"] if whole and is_name(tree.get("name")) else None
        tree = with_absolute_paths(tree, lambda loc: merged.layer_of(loc).folder)
        home = merged.layers[-2 if fields.file is not None else -1].folder  # for fields that are not in any layer
        spec, findings = checked(
            tree,
            Path(home),
            [],
            texts,
            now_ms=self._rules.now_ms,
            submitting=self._rules.submitting,
            project=self._rules.project_of_jobs,
            lost=merged.lost | unusable,
        )
        findings += self._against_the_group(tree, {each.loc for each in findings})
        for each in findings:
            if self._is_reported(merged, each):
                continue
            problem = merged.problem(_about_entries(each) if merged.is_of_entry(each.loc) else each)
            mistakes.add(problem, combination, names_in(merged.tree, each.loc) if each.at == "value" else ())
        job = GroupJob(spec, fields.weight) if spec is not None and not findings else None
        return Made(at, combination, str(name) if name is not None else None, base, after, job)

    def _against_the_group(self, tree: Mapping[str, object], wrong: Collection[Loc]) -> list[Finding]:
        """Contradictions between a job and its group, except in fields that are already `wrong`."""
        found = []
        project, rules = tree.get("project"), self._rules
        if isinstance(project, str) and rules.project not in (None, project) and ("project",) not in wrong:
            hint = f"delete it: the group's project is {rules.project}"
            found.append(Finding(("project",), "a group and its jobs are in one project", hint))
        budget, whole = _money(tree.get("budget")), rules.budget_nano_usd
        if budget is not None and whole is not None and budget > whole:
            message = f"the job's budget ({whole_usd(budget)}) is larger than its group's"
            hint = f"at most {whole_usd(whole)}, or raise the group's budget"
            found.append(Finding(("budget",), message, hint))
        return found

    def _checked_alone(self, layer: Layer) -> Layer:
        """Report the mistakes of a layer by itself, even in values that entries replace. In the returned layer, fields
        whose names were probably misspelt count as unreadable."""
        findings, _ = misused(layer.tree, Matrix(unread=None))
        meant: set[Loc | None] = set()
        try:
            JobFile.model_validate(layer.tree, context={"now_ms": self._rules.now_ms})
        except ValidationError as error:
            for each in findings_of(error, layer.tree):
                may_be_right = has_values(layer.tree, each.loc) and each.at == "value" and each.loc not in SECTIONS
                if not (each.lacks or follows(each, layer.lost) or may_be_right):
                    findings.append(each)
                if each.message == UNKNOWN:
                    meant.add(meant_field(each.loc))
        layer = replace(layer, lost=layer.lost | {loc for loc in meant if loc and _lacks(layer.tree, loc)})
        self._problems += [layer.problem(each) for each in findings]
        self._alone |= {(id(layer), each.loc, _wrong(each)) for each in findings}
        return layer

    def _is_reported(self, merged: Merged, finding: Finding) -> bool:
        """Whether the finding was already reported for a single layer: the layer of its value or, if it is about a
        section, any layer that has part of the section."""
        alone = [(id(each), finding.loc, _wrong(finding)) in self._alone for each in merged.layers]
        return any(alone) and (merged.is_section(finding.loc) or alone[merged.index_of(finding.loc)])

    def _job_file(self, at: Loc, name: str | None) -> Layer:
        """The job file that an entry names. If it cannot be read, reports the entry's field `file`."""
        if name not in self._read:
            self._read[name] = self._read_job_file(at, str(name))
        return self._read[name]

    def _read_job_file(self, at: Loc, name: str) -> Layer:
        path, field = absolute(name, self._top.folder), (*at, "file")
        try:
            value, source_map, findings = read_tree(read_text(path), path)
        except SpecError as error:
            self._problems += [each for each in error.problems if each.line]
            self._report(
                Finding(field, f"{name} {each.message}", each.hint) for each in error.problems if not each.line
            )
            return _lost_layer(self._top)
        tree, unfit = to_plain(value)
        if not isinstance(tree, dict) or looks_like_group(tree):
            wrong = "is a group file" if isinstance(tree, dict) else "is not a mapping of fields"
            self._report([Finding(field, f"{name} {wrong}", "name a job file")])
            return _lost_layer(self._top)
        layer = Layer(tree, path, (), source_map, frozenset(unread([*findings, *unfit])))
        self._problems += [layer.problem(each) for each in (*findings, *unfit)]
        return self._checked_alone(layer)


def _wrong(finding: Finding) -> str:
    """What is wrong, in words that names in the value do not change: a section is wrong whatever stands for them."""
    return "" if finding.loc in SECTIONS and finding.at == "value" else finding.message


def _meant(entry: Mapping[str, object]) -> frozenset[Loc]:
    """The fields that were probably meant by the unknown fields of an entry."""
    unknown = [key for key in entry if key not in OWN_FIELDS and key not in JobFile.model_fields]
    meant = {meant_field((key,), OWN_FIELDS) for key in unknown}
    return frozenset(loc for loc in meant if loc and _lacks(entry, loc))


def _lacks(tree: object, loc: Loc) -> bool:
    for part in loc:
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree is None


def _money(value: object) -> int | None:
    """An amount in nano-USD; None if `value` is not an amount (the schema reports that)."""
    try:
        return parse_money(value)
    except BadValueError:
        return None


def _lost_layer(top: Layer) -> Layer:
    """A substitute for a job file that cannot be read."""
    return Layer({}, top.path, (), top.source_map, frozenset({()}))


def below(lost: Collection[Loc], at: Loc) -> frozenset[Loc]:
    """The places `lost` as seen from `at`."""
    return frozenset(loc[len(at) :] for loc in lost if loc[: len(at)] == at[: len(loc)])


def _about_entries(finding: Finding) -> Finding:
    """A finding about an entry. For an unknown field, the hint includes the fields of entries."""
    if len(finding.loc) == 1 and finding.message == UNKNOWN:
        return replace(finding, hint=unknown_field_hint(finding.loc, OWN_FIELDS))
    return finding
