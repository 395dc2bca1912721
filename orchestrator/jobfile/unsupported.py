"""Fields of a valid job that this version refuses, because ignoring them would change what happens."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.errors import Problem, SpecError
from orchestrator.jobfile.checks import COPY_DATA, scheme
from orchestrator.jobfile.source.source_map import Finding, Loc, dotted
from orchestrator.model import JobSpec


@dataclass(frozen=True, slots=True)
class UnsupportedField:
    """A refused field. `message` begins with "not supported yet: "; `hint` says what to write instead."""

    loc: Loc
    message: str
    hint: str

    @property
    def field(self) -> str:
        """Dotted name: `outputs.0.keep`."""
        return dotted(self.loc)

    def finding(self) -> Finding:
        """The problem as a finding, with its place."""
        return Finding(self.loc, self.message, self.hint, unsupported=True)


def unsupported_fields(spec: JobSpec) -> tuple[UnsupportedField, ...]:
    """All refused fields of a job. A field that is safe to ignore is not one of them."""
    found: list[UnsupportedField] = []

    def add(loc: Loc, message: str, hint: str) -> None:
        found.append(UnsupportedField(loc, f"not supported yet: {message}", hint))

    for index, data in enumerate(spec.data):
        if scheme(data.source):
            add(("data", index, "source"), "fetching data from object stores", COPY_DATA)
        elif data.source != data.mount:
            hint = f"set mount to its source path: {data.source}"
            add(("data", index, "mount"), "mounting data at another path", hint)
    for index, output in enumerate(spec.outputs):
        if output.keep == "best":
            add(("outputs", index, "keep"), "keeping the best version only", "use keep: all")
    return tuple(found)


def refuse_unsupported_fields(spec: JobSpec, path: str = "job") -> None:
    """Raises SpecError if the job has `unsupported_fields`; `path` names the job in the message."""
    unsupported = unsupported_fields(spec)
    problems = [Problem(path, 0, 0, item.field, item.message, item.hint, unsupported=True) for item in unsupported]
    if problems:
        raise SpecError(problems)
