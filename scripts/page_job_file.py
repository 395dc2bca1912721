"""docs/job-file.md from the schema of the job file: a table per section, then one file with every field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from orchestrator.jobfile.fields import section_of
from orchestrator.jobfile.schema import JobFile, ObjectiveSection, Section

_INTRODUCTION = """\
<!-- Made by `python -m scripts.gen_docs` from orchestrator/jobfile/schema.py. Change that, not this. -->

# The job file

A job file says what to train, on what it may run, and what matters: `tradewind submit job.yaml`. From Python,
`orchestrator.Client` takes the same fields as a mapping.

The smallest one:

```yaml
name: hello
train:
  entry: train:main
  steps: 1000
```

`tradewind plan job.yaml` checks it and shows what would happen, without doing it. All mistakes of a file are reported
at once, each as `file:line:column: field: what is wrong (what to do)`, and the exit code is 3.

**Values.** Sizes: `64 GB` (10^9 bytes) or `64 GiB` (2^30); ranges of sizes: `40 GB..`, `40..80 GB`, `..80 GB`.
Durations: `48h`, `90 min`, `2d 3h` (units s, min, h, d, w), counted in market time. Timestamps carry their time zone:
`2030-01-31T18:00:00Z`. Money is in US dollars: `250 USD`, `$250` or `250`. Percentages: `3.5%`. Text, numbers and words
follow YAML 1.2: `3e-4` is a number; `no`, `on` and `12:30` are text. Paths are relative to the job file's folder. Empty
keys are ignored. A typo gets a suggestion (`did you mean ...?`).

**Not supported yet.** Some fields are checked, but what they ask for is not supported yet: more than one node,
checkpoints in object stores, data that must be fetched or mounted elsewhere, and `keep: best`.
Submitting a job that uses one is refused, because it would run differently from what its file says.
"""

_EXAMPLE = """
## A file with every field

Lines that begin with `#` are alternatives to a line beside them.
"""


def job_file_page() -> str:
    parts = [_INTRODUCTION, _section_text("The file", JobFile, "")]
    for name, field in JobFile.model_fields.items():
        model = section_of(field.annotation)
        if model is not None and model is not ObjectiveSection:
            parts.append(_section_text(f"`{name}`", model, f"{name}."))
    return "\n".join(parts) + _EXAMPLE + f"\n```yaml\n{example_job_file()}```\n"


def example_job_file() -> str:
    """A job file with every field set to its example, and its meaning beside it."""
    return "".join(f"{line}\n" for line in _example_lines(JobFile, ""))


def _section_text(title: str, model: type[Section], prefix: str) -> str:
    rows = [
        f"## {title}\n",
        _cell(model.__doc__ or ""),
        "",
        "| field | value | default | meaning |",
        "|---|---|---|---|",
    ]
    for name, field in model.model_fields.items():
        kind, meaning = _extra(field)["kind"], field.description or ""
        inner = section_of(field.annotation)
        if inner is not None and inner is not ObjectiveSection:
            meaning = f"{(inner.__doc__ or '').strip()} See [`{name}`](#{name})."
        example = f" Example: `{field.examples[0]}`" if field.examples and field.examples[0] else ""
        rows.append(f"| `{prefix}{name}` | {kind} | {_default(field)} | {_cell(meaning + example)} |")
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def _extra(field: FieldInfo) -> dict[str, Any]:
    assert isinstance(field.json_schema_extra, dict)
    return field.json_schema_extra


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "**required**"
    if value in (None, (), {}) or (isinstance(value, Section) and not isinstance(value, ObjectiveSection)):
        return "-"
    return f"`{_extra(field)['default_text'] or _yaml(value)}`"


def _yaml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _example_lines(model: type[Section], indent: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = section_of(field.annotation)
        if inner is None or inner is ObjectiveSection:
            assert field.examples
            mark = "# " if _extra(field)["instead"] else ""
            yield _commented(f"{indent}{mark}{name}: {field.examples[0]}", field.description or "")
            continue
        yield f"{indent}{name}:"
        if "list" in _extra(field)["kind"]:
            first, *rest = _example_lines(inner, indent + "    ")
            yield f"{indent}  - {first.strip()}"
            yield from rest
        else:
            yield from _example_lines(inner, indent + "  ")


def _commented(line: str, meaning: str) -> str:
    sentence = re.split(r"(?<=[.])\s", meaning, maxsplit=1)[0].rstrip(".")
    return f"{line:<44}  # {sentence}"
