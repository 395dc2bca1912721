"""A task file of SkyPilot or dstack -> the text of a job file, with a note for everything that it lacks.

Nothing is run or fetched, and no value of a secret is copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import yaml

from orchestrator.errors import Problem, SpecError, UsageError
from orchestrator.formats.whole_file import write_whole
from orchestrator.jobfile.convert.code_place import Folders, dstack_place, skypilot_place
from orchestrator.jobfile.convert.command import Line
from orchestrator.jobfile.convert.draft import Draft, Note
from orchestrator.jobfile.convert.dstack import from_dstack
from orchestrator.jobfile.convert.recognise import Tool, recognise, recognise_documents
from orchestrator.jobfile.convert.skypilot import from_skypilot
from orchestrator.jobfile.convert.train import add_setup, add_train
from orchestrator.jobfile.convert.write import write_job
from orchestrator.jobfile.parse import parse_job, read_text
from orchestrator.jobfile.source.source_map import Finding, SourceMap, YamlSyntaxError, read_yaml

_ORDER = ("name", "labels", "train", "data", "resources", "capacity", "where", "retries", "max_duration")


@dataclass(frozen=True, slots=True)
class Conversion:
    """A task file as a job file. `job` has its fields, `text` is the file with comments. `notes` list the fields of the
    task file that are missing, changed or left to you; `problems` are the mistakes that our parser still finds."""

    kind: ClassVar[str] = "conversion"
    source: str
    tool: Tool
    job: Mapping[str, Any]
    text: str
    notes: tuple[Note, ...]
    problems: tuple[Problem, ...]


def convert_file(path: str | Path, to: str | Path | None = None) -> Conversion:
    """Convert the task file `path` to a job file for the path `to` (None: next to it). Writes nothing.

    Raises SpecError if the file cannot be read, or is not a task file of SkyPilot or dstack.
    """
    name, text = str(path), read_text(path)
    tree, source_map, tool = _read(text, name)
    folders = Folders(Path(path).parent, Path(path).parent if to is None else Path(to).parent)
    draft = Draft(name, source_map)
    if tool == "SkyPilot":
        known, gpus = from_skypilot(draft, tree, _stem(path))
        place = skypilot_place(draft, tree.get("workdir"), folders)
        for each in draft.job.get("data", ()):
            each["source"] = each["source"] if "://" in each["source"] else folders.seen(each["source"])
        lines = [*_lines(text, source_map, tree, "run")]
        commands = [line for line in _lines(text, source_map, tree, "setup") if line.text.strip()]
        if any(not line.text.strip().startswith("#") for line in commands):
            add_setup(draft, "\n".join(line.text.rstrip() for line in commands), ("setup",), commands[0].number)
        add_train(draft, ("run",), lines, place, known, gpus)
    else:
        known, gpus = from_dstack(draft, tree, _stem(path))
        place = dstack_place(draft, tree, folders)
        add_train(draft, ("commands",), [*_lines(text, source_map, tree, "commands")], place, known, gpus)
    draft.job["train"] = {key: draft.train[key] for key in _TRAIN_ORDER if key in draft.train}
    job = {key: draft.job[key] for key in _ORDER if key in draft.job}
    notes = tuple(sorted(draft.notes, key=lambda note: (note.line, note.column)))
    kind = "SkyPilot task file" if tool == "SkyPilot" else "dstack task"
    header = [f"Converted by `tradewind convert` from the {kind} {Path(path).name}."]
    header += [f"To do, {each.field} on line {each.line}: {each.message}" for each in notes if each.outcome == "to do"]
    written = write_job(job, header, draft.fill_in)
    return Conversion(name, tool, job, written, notes, _problems(written, to, folders))


_TRAIN_ORDER = ("entry", "script", "args", "setup", "python", "workdir", "env", "secrets", "steps", "epochs")


def write_conversion(conversion: Conversion, to: str | Path, *, force: bool = False) -> None:
    """Write the job file. Raises UsageError if it exists, unless `force`, and if it cannot be written."""
    try:
        write_whole(Path(to), conversion.text, replace=force)
    except FileExistsError:
        raise UsageError(f"{to} exists already", hint="choose another path, or overwrite it with --force") from None
    except OSError as error:
        raise UsageError(f"{to} cannot be written: {error.strerror}", hint="choose another path") from error


def _read(text: str, name: str) -> tuple[dict[str, Any], SourceMap, Tool]:
    """The values as the tools read them (by YAML 1.1), the positions, and the tool."""
    try:
        _, source_map, findings = read_yaml(text)
    except YamlSyntaxError as error:
        if (tool := recognise_documents(text, name)) is not None:
            problem = Problem(
                name, error.mark.line, 1, "", f"is a {tool} file of several tasks", "write one file per task"
            )
            raise SpecError([problem]) from None
        problem = Problem(name, error.mark.line, error.mark.column, "", f"not valid YAML: {error}")
        raise SpecError([problem]) from None
    wrong = [finding for finding in findings if not finding.field.endswith("<<")]
    if not wrong:
        try:
            tree = _with_text_keys(yaml.safe_load(text))
        except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
            wrong = [Finding((), f"cannot be read: {str(error).splitlines()[0]}")]
    if wrong:
        places = [(source_map.of(each), each) for each in wrong]
        raise SpecError([Problem(name, at.line, at.column, each.field, each.message, each.hint) for at, each in places])
    tool = recognise(tree, name)
    if tool is None or not isinstance(tree, dict):
        message, hint = "is not a task file of SkyPilot or dstack", "a Tradewind job file needs no conversion"
        raise SpecError([Problem(name, 1, 1, "", message, hint)])
    kind = str(tree.get("type") or "task") if tool == "dstack" else "service" if tree.get("service") else "task"
    if kind != "task":
        at = source_map.of(Finding(("service" if tool == "SkyPilot" else "type",), "", at="key"))
        message = f"is a {kind} of {tool}, but a job is a training run that ends"
        raise SpecError([Problem(name, at.line, at.column, "", message, "convert its training task")])
    return tree, source_map, tool


def _with_text_keys(value: object) -> Any:
    if isinstance(value, dict):
        return {str(key): _with_text_keys(item) for key, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value


def _lines(text: str, source_map: SourceMap, tree: Mapping[str, Any], field: str) -> list[Line]:
    """The commands of a field, line by line, with their positions in the file."""
    value = tree.get(field)
    items = (
        [((field, index), each) for index, each in enumerate(value)] if isinstance(value, list) else [((field,), value)]
    )
    lines: list[Line] = []
    for loc, item in items:
        if item is None:
            continue
        mark = source_map.values.get(loc, source_map.of(Finding(loc, "")))
        opening = text.splitlines()[mark.line - 1][mark.column - 1 : mark.column] if mark.line else ""
        first, step = (mark.line + 1, 1 if opening == "|" else 0) if opening in ("|", ">") else (mark.line, 0)
        lines += [Line(first + step * index, each) for index, each in enumerate(str(item).splitlines())]
    return lines


def _stem(path: str | Path) -> str:
    stem = Path(path).name.removesuffix(".yml").removesuffix(".yaml").removesuffix(".dstack")
    return stem or Path(path).absolute().parent.name


def _problems(text: str, to: str | Path | None, folders: Folders) -> tuple[Problem, ...]:
    """The problems that prevent the result from being submitted."""
    label = "the job file" if to is None else str(to)
    try:
        parse_job(text, folders.target / "job.yaml", submitting=True)
    except SpecError as error:
        return tuple(replace(each, path=label) for each in error.problems)
    return ()
