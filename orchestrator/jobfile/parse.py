"""Job file, or mapping from Python -> JobSpec. Reports all problems of a file at once, each with its place."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orchestrator.config.paths import NoFileError, opened_file
from orchestrator.errors import Problem, SpecError, did_you_mean
from orchestrator.jobfile.checks import absolute, check, scheme
from orchestrator.jobfile.convert.recognise import Tool, recognise, recognise_documents
from orchestrator.jobfile.fields import allowed_hint, example_hint, meant_field, unknown_field_hint
from orchestrator.jobfile.from_spec import mapping_from_spec
from orchestrator.jobfile.schema import DEFAULT_PROJECT, JobFile, Section, TrainSection
from orchestrator.jobfile.source.normalize import to_plain
from orchestrator.jobfile.source.placeholders import without_a_group
from orchestrator.jobfile.source.source_map import (
    Finding,
    Loc,
    SourceMap,
    YamlSyntaxError,
    follows,
    read_yaml,
    unread,
)
from orchestrator.jobfile.units import BadValueError, quoted
from orchestrator.jobfile.unsupported import unsupported_fields
from orchestrator.model import (
    CheckpointSpec,
    DataSource,
    Expected,
    JobSpec,
    Objective,
    OutputSpec,
    Reproducible,
    Resources,
    Setup,
    TrainSpec,
    Where,
)

LARGEST_FILE_BYTES = 256 * 1024  # of a job file or another tool's task file: parsing YAML takes seconds per megabyte


def load_job(
    path: str | Path, *, now_ms: int | None = None, submitting: bool = False, project: str = DEFAULT_PROJECT
) -> JobSpec:
    """Read and check a job file. For the arguments see `parse_job`. Raises SpecError."""
    return parse_job(read_text(path), path, now_ms=now_ms, submitting=submitting, project=project)


def read_text(path: str | Path) -> str:
    """The text of a regular file. Raises SpecError if it is not regular, cannot be read or is not UTF-8."""
    try:
        with opened_file(path) as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        hint = _similar(Path(path)) if isinstance(error, FileNotFoundError) else ""
        if isinstance(error, NoFileError):
            hint = "save the text as a file, and give the path of the file"
        problem = Problem(str(path), 0, 0, "", f"cannot be read: {reason}", hint or "check the path")
        raise SpecError([problem]) from None
    if len(content) > LARGEST_FILE_BYTES:
        raise _too_large(content.decode("utf-8", "replace"), path)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        problem = Problem(str(path), line, column, "", "is not UTF-8 text", "save the file as UTF-8")
        raise SpecError([problem]) from None


def _similar(path: Path) -> str:
    """`did you mean "x.yaml"?`, with the most similarly named YAML file of the folder; empty if none is similar."""
    try:
        beside = sorted(each.name for each in path.parent.iterdir() if each.suffix in (".yaml", ".yml"))
    except OSError:
        return ""
    return did_you_mean(path.stem, beside, lambda name: Path(name).stem)


def parse_job(
    text: str,
    path: str | Path,
    *,
    now_ms: int | None = None,
    submitting: bool = False,
    project: str = DEFAULT_PROJECT,
) -> JobSpec:
    """Check the text of the job file `path`. Its paths are relative to the folder of `path`.

    A deadline before `now_ms` (market time) is a problem, and if `submitting`, so is each field of
    `unsupported_fields`. `project` is the default for a file without one. Raises SpecError with every problem, in the
    order of the file.
    """
    value, source_map, findings = read_tree(text, path)
    source = _Source(str(path), Path(path).parent, source_map, findings)
    return _job(value, source, now_ms=now_ms, submitting=submitting, project=project)


def read_tree(text: str, path: str | Path) -> tuple[object, SourceMap, list[Finding]]:
    """Like `read_yaml`, for the file `path`. Raises SpecError if it is not YAML, too large or another tool's file."""
    if len(text) > LARGEST_FILE_BYTES:
        raise _too_large(text, path)
    try:
        value, source_map, findings = read_yaml(text)
    except YamlSyntaxError as error:
        _refuse_foreign(recognise_documents(text, str(path)), path)
        problem = Problem(str(path), error.mark.line, error.mark.column, "", f"not valid YAML: {error}", error.hint)
        raise SpecError([problem]) from None
    _refuse_foreign(recognise(value, str(path)), path)
    if value is None and not findings:
        findings.append(Finding((), "the file is empty", 'start with "name: my-job"'))
    return value, source_map, findings


def _too_large(text: str, path: str | Path) -> SpecError:
    """The error, at the line where the file exceeds the limit, with the field there."""
    before = text[:LARGEST_FILE_BYTES]
    field = (["", *re.findall(r"^(\w+):", before, re.MULTILINE)])[-1]
    hint = "put long lists and text into files that the program reads"
    message = f"the file is larger than {LARGEST_FILE_BYTES // 1024} KiB"
    return SpecError([Problem(str(path), before.count("\n") + 1, 1, field, message, hint)])


def _refuse_foreign(tool: Tool | None, path: str | Path) -> None:
    """Raises SpecError for a task file of another tool, instead of a problem for each of its fields."""
    if tool is not None:
        hint = f"convert it: tradewind convert {shlex.quote(str(path))}"
        raise SpecError([Problem(str(path), 1, 1, "", f"is a task file of {tool}, not a Tradewind job file", hint)])


def job_from_mapping(
    mapping: Mapping[str, Any],
    base_dir: str | Path = ".",
    *,
    now_ms: int | None = None,
    submitting: bool = False,
    project: str = DEFAULT_PROJECT,
) -> JobSpec:
    """The same for a mapping with the fields of a job file; paths are relative to `base_dir`. Raises SpecError."""
    source = _Source("job", Path(base_dir), SourceMap(), [])
    return _job(mapping, source, now_ms=now_ms, submitting=submitting, project=project)


def require_sayable(spec: JobSpec, path: str, field: str, hint: str, *, now_ms: int) -> None:
    """Raises SpecError unless a job file can express `spec`, by all rules for jobs submitted at `now_ms`.

    For a spec from another source, such as a plan file: `path` and `field` are its place, and `hint` is the remedy,
    because the remedies of the rules are about job files.
    """
    try:
        read = job_from_mapping(mapping_from_spec(spec), now_ms=now_ms, submitting=True, project=spec.project)
    except SpecError as error:
        problems = [Problem(path, 0, 0, f"{field}.{each.field}", each.message, hint) for each in error.problems]
        raise SpecError(problems) from None
    other = [each.name for each in fields(spec) if getattr(read, each.name) != getattr(spec, each.name)]
    if other:
        problems = [Problem(path, 0, 0, f"{field}.{name}", "is not valid in a job file", hint) for name in other]
        raise SpecError(problems)


@dataclass(frozen=True, slots=True)
class _Source:
    """The source of a tree, and the mistakes found while reading it."""

    path: str
    base_dir: Path
    source_map: SourceMap
    findings: list[Finding]


def _job(value: object, source: _Source, *, now_ms: int | None, submitting: bool, project: str) -> JobSpec:
    tree, _ = to_plain(value)
    spec, findings = checked(
        value,
        source.base_dir,
        [*source.findings, *without_a_group(tree)],
        source.source_map.texts,
        now_ms=now_ms,
        submitting=submitting,
        project=project,
    )
    if spec is None or findings:
        raise SpecError(_problems(findings, source))
    return spec


def checked(
    value: object,
    base_dir: Path,
    found: list[Finding],
    texts: Mapping[Loc, str],
    *,
    now_ms: int | None,
    submitting: bool,
    project: str,
    lost: Collection[Loc] = (),
) -> tuple[JobSpec | None, list[Finding]]:
    """(the spec, or None if the tree is too wrong for one; the findings, those in `found` first). `texts` are the
    unquoted values as written, by their place; `lost` the places of values that could not be read, in addition to those
    of `found`. Mistakes that may only be consequences of them are not reported."""
    tree, unfit = to_plain(value)
    early = found + unfit
    lost = {*lost, *unread(early)}
    late: list[Finding] = []
    spec: JobSpec | None = None
    if isinstance(tree, dict):
        if tree.get("project") is None:
            tree["project"] = project
        _as_written(tree, texts)
        base = str(base_dir.absolute())
        late += check(tree, base, lost)
        try:
            spec = _spec(JobFile.model_validate(tree, context={"now_ms": now_ms}), base)
        except ValidationError as error:
            late += findings_of(error, tree)
            meant = {meant_field(each.loc) or each.loc for each in late if each.message == UNKNOWN}
            late = [each for each in late if not (each.lacks and follows(each, meant))]
        if spec is not None and submitting:
            wrong = {each.loc[:2] for each in late}  # such as data[0]: its source has to be corrected first
            late += [item.finding() for item in unsupported_fields(spec) if item.loc[:2] not in wrong]
    elif not early:
        late.append(Finding((), "must be a mapping of fields", 'start with "name: my-job"'))
    return spec, early + [finding for finding in late if not follows(finding, lost)]


def _as_written(tree: dict[str, object], texts: Mapping[Loc, str]) -> None:
    """Replace the items of an argument list by the text in the file: a program gets `3e-4`, not 0.0003."""
    train = tree.get("train")
    words = train.get("args") if isinstance(train, dict) else None
    if not isinstance(words, list):
        return
    for index, word in enumerate(words):
        if word is not None and not isinstance(word, dict | list):
            words[index] = texts.get(("train", "args", index), word)


def _problems(findings: list[Finding], source: _Source) -> list[Problem]:
    placed = [(source.source_map.of(finding), finding) for finding in findings]
    placed.sort(key=lambda item: (item[0].line, item[0].column))
    return [
        Problem(source.path, at.line, at.column, each.field, each.message, each.hint, unsupported=each.unsupported)
        for at, each in placed
    ]


UNKNOWN = "unknown field"


def findings_of(error: ValidationError, tree: object, model: type[Section] = JobFile) -> list[Finding]:
    """The errors of pydantic in `model`, as findings with our messages; `tree` is the file's content."""
    return [_finding_of(each, tree, model) for each in error.errors(include_url=False)]


def _written(loc: Loc, tree: object) -> Loc:
    """Where the value at `loc` stands in `tree`, where a single value may stand for a list of one."""
    written: Loc = ()
    for part in loc:
        if isinstance(tree, list):
            written, tree = (*written, part), tree[part] if isinstance(part, int) and part < len(tree) else None
        elif isinstance(part, str):
            written, tree = (*written, part), tree.get(part) if isinstance(tree, dict) else None
    return written


def _finding_of(details: ErrorDetails, tree: object, model: type[Section]) -> Finding:
    loc = _written(details["loc"], tree)
    kind, context = details["type"], details.get("ctx", {})
    if loc and loc[-1] == "[key]":
        loc, at_key = loc[:-1], True
    else:
        at_key = False
    error = context.get("error")
    if isinstance(error, BadValueError):
        return Finding(loc, str(error), error.hint or example_hint(loc, model), "key" if at_key else "value")
    if kind == "missing":
        return Finding(loc, "is required", example_hint(loc, model), "key", lacks=(loc,))
    if kind == "extra_forbidden":
        return Finding(loc, UNKNOWN, unknown_field_hint(loc), "key")
    if kind in ("greater_than_equal", "less_than_equal") and (allowed := allowed_hint(loc, model)):
        return Finding(loc, f"must be a whole number from {allowed}", example_hint(loc, model))
    words = {
        "model_type": "must be a mapping of fields",
        "dict_type": "must be a mapping",
        "tuple_type": "must be a list",
    }
    message = f"{words[kind]}, not {quoted(details['input'])}" if kind in words else "is not valid here"
    return Finding(loc, message, example_hint(loc, model))


def _spec(file: JobFile, base_dir: str) -> JobSpec:
    train, resources, objective, checkpoint = file.train, file.resources, file.objective, file.checkpoint
    deadline_s, deadline_at_ms = file.deadline or (None, None)
    weight = objective.cost + objective.time
    if math.isclose(weight, 1.0, rel_tol=1e-12):
        weight = 1.0  # weights that were divided by their sum stay the same if they are read again
    return JobSpec(
        name=file.name,
        project=file.project,
        labels=file.labels,
        train=TrainSpec(
            entry=train.entry,
            script=train.script,
            args={} if isinstance(train.args, tuple) else train.args,
            workdir=absolute(train.workdir, base_dir),
            env=train.env,
            secrets=train.secrets,
            steps=train.steps,
            epochs=train.epochs,
            stall_after_s=train.stall_after,
            argv=train.args if isinstance(train.args, tuple) else (),
            setup=_setup(train),
        ),
        data=tuple(DataSource(_location(d.source, base_dir), d.mount, d.size) for d in file.data),
        outputs=tuple(OutputSpec(output.path, output.keep) for output in file.outputs),
        resources=Resources(
            gpus=tuple(request for entry in resources.gpu or () for request in entry),
            gpu_memory_bytes=resources.gpu_memory,
            cpu=resources.cpu,
            memory_bytes=resources.memory,
            nodes=resources.nodes,
            processes=resources.processes,
        ),
        objective=Objective(objective.cost / weight, objective.time / weight) if weight else Objective(),
        deadline_s=deadline_s,
        deadline_at_ms=deadline_at_ms,
        budget_nano_usd=file.budget,
        capacity=file.capacity,
        where=Where(file.where.clouds or (), file.where.regions or ()),
        checkpoint=CheckpointSpec(
            to=None if checkpoint.to is None else _location(checkpoint.to, base_dir),
            keep=checkpoint.keep,
            keep_hourly=checkpoint.keep_hourly,
            keep_best=checkpoint.keep_best,
            max_overhead=checkpoint.max_overhead,
            max_in_flight=checkpoint.max_in_flight,
            max_upload_bytes_per_s=checkpoint.max_upload,
        ),
        reproducible=Reproducible(file.reproducible.threads, file.reproducible.deterministic, file.reproducible.seed),
        standby=file.standby,
        probe=file.probe,
        retries=file.retries,
        max_duration_s=file.max_duration,
        precision=file.precision,
        sharding=file.sharding,
        expected=None if file.expected is None else Expected(file.expected.gpu, file.expected.steps_per_s),
    )


def _setup(train: TrainSection) -> Setup | None:
    packages, files = train.requirements or ((), ())
    wanted = Setup(train.setup, packages, files, train.python)
    return wanted if wanted != Setup() else None


def _location(location: str, base_dir: str) -> str:
    return location if scheme(location) else absolute(location, base_dir)
