"""Entry of a group file -> its jobs: one, or one for each combination of its matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from orchestrator.errors import Problem, SpecError
from orchestrator.jobfile.checks import absolute
from orchestrator.jobfile.fields import unknown_field_hint
from orchestrator.jobfile.group.layers import Layer, Merged, merge
from orchestrator.jobfile.group.matrix import Combination, combinations, filled, name_of
from orchestrator.jobfile.group.paths import with_absolute_paths
from orchestrator.jobfile.group.schema import OWN_FIELDS, EntryFields, GroupFile
from orchestrator.jobfile.parse import checked, finding_of, read_text, read_tree
from orchestrator.jobfile.schema import JobFile
from orchestrator.jobfile.source.normalize import to_plain
from orchestrator.jobfile.source.source_map import Finding
from orchestrator.model import GroupJob


@dataclass(frozen=True, slots=True)
class Made:
    """A job, the name that it has without the values of its matrix, and the index of its entry."""

    job: GroupJob
    base: str
    entry: int


class Entries:
    """Makes the jobs of the entries of one group file, and adds what is wrong with them to `problems`."""

    def __init__(
        self, top: Layer, file: GroupFile, problems: list[Problem], *, now_ms: int | None, submitting: bool
    ) -> None:
        self._top, self._file, self._problems = top, file, problems
        self._now_ms, self._submitting = now_ms, submitting
        self._read: dict[str, Layer | None] = {}

    def jobs(self, index: int, entry: Mapping[str, object]) -> list[Made]:
        """The jobs of one entry; none if something is wrong with it."""
        at = ("jobs", index)
        found: list[Combination] = [{}]
        if "matrix" in entry:
            found, wrong = combinations(entry["matrix"], (*at, "matrix"), self._top.source_map.texts)
            self._report(wrong)
        own = {key: entry[key] for key in EntryFields.model_fields if key in entry}
        given = {key: value for key, value in entry.items() if key not in OWN_FIELDS}
        last = Layer(given, self._top.path, at, self._top.source_map)
        merged: dict[str | None, Merged] = {}  # by job file
        made: list[Made] = []
        for combination in found:
            fields = self._own(index, own, combination)
            layers = None if fields is None else self._layers(index, fields.file, last)
            if fields is None or layers is None:
                return []
            if fields.file not in merged:
                merged[fields.file] = merge(layers)
            one = self._one(merged[fields.file], fields, combination, index)
            if one is None:
                return []  # the others have the same mistakes
            made.append(one)
        return made

    def _report(self, findings: list[Finding]) -> None:
        """Mistakes in the group file."""
        self._problems += [self._top.problem(each) for each in findings]

    def _own(self, index: int, own: Mapping[str, object], combination: Combination) -> EntryFields | None:
        """The fields that an entry has beside those of a job file."""
        tree, findings = filled(own, combination, {})
        fields = None
        try:
            fields = EntryFields.model_validate(tree) if not findings else None
        except ValidationError as error:
            findings = [finding_of(each) for each in error.errors(include_url=False, include_input=False)]
        self._report([replace(each, loc=("jobs", index, *each.loc)) for each in findings])
        return fields

    def _layers(self, index: int, name: str | None, last: Layer) -> list[Layer] | None:
        """What a job is made of, the most important last; None if its job file cannot be read."""
        defaults = Layer(self._file.defaults, self._top.path, ("defaults",), self._top.source_map)
        if name is None:
            return [defaults, last]
        if name not in self._read:
            self._read[name] = self._job_file(index, name)
        layer = self._read[name]
        return None if layer is None else [defaults, layer, last]

    def _one(self, merged: Merged, fields: EntryFields, combination: Combination, index: int) -> Made | None:
        texts = merged.texts
        tree, findings = filled(merged.tree, combination, texts)
        base, written = "", tree.get("name")
        if isinstance(written, str) and not findings:
            tree["name"], base = name_of(written, combination)
        tree = with_absolute_paths(tree, lambda loc: merged.layer_of(loc).folder)
        home = merged.layers[-2 if fields.file is not None else -1].folder  # of a field that is written nowhere
        spec, problems = checked(
            tree,
            Path(home),
            findings,
            texts,
            now_ms=self._now_ms,
            submitting=self._submitting,
            project=self._file.project,
        )
        if spec is not None and spec.project != self._file.project:
            hint = f"delete it: the group's project is {self._file.project}"
            problems.append(Finding(("project",), "a group and its jobs are in one project", hint))
        self._problems += [merged.problem(_about_entries(each, merged)) for each in problems]
        if spec is None or problems:
            return None
        return Made(GroupJob(spec, fields.weight, fields.after or ()), base, index)

    def _job_file(self, index: int, name: str) -> Layer | None:
        """The job file that an entry names. An entry's field `file` is reported if it cannot be read."""
        path = absolute(name, self._top.folder)
        field = ("jobs", index, "file")
        try:
            value, source_map, findings = read_tree(read_text(path), path)
        except SpecError as error:
            for each in error.problems:
                if each.line:
                    self._problems.append(each)
                else:
                    self._report([Finding(field, f"{name} {each.message}", each.hint)])
            return None
        tree, unfit = to_plain(value)
        if not isinstance(tree, dict) or "jobs" in tree:
            wrong = "is a group file" if isinstance(tree, dict) else "is not a mapping of fields"
            self._report([Finding(field, f"{name} {wrong}", "name a job file")])
            return None
        layer = Layer(tree, path, (), source_map)
        self._problems += [layer.problem(each) for each in (*findings, *unfit)]
        return layer


def _about_entries(finding: Finding, merged: Merged) -> Finding:
    """A finding about a field that job files do not have, with a hint that knows the fields of entries."""
    if len(finding.loc) != 1 or finding.loc[0] in JobFile.model_fields:
        return finding
    if finding.loc[0] in OWN_FIELDS:
        return replace(finding, hint="write it in an entry of `jobs` in the group file")
    in_entry = merged.layer_of(finding.loc) is merged.layers[-1]
    return replace(finding, hint=unknown_field_hint(finding.loc, OWN_FIELDS)) if in_entry else finding
