"""What a valid job may ask for that this version cannot do yet, and that would change what happens."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.errors import Problem, SpecError
from orchestrator.jobfile.checks import OBJECT_STORES, scheme
from orchestrator.jobfile.source_map import Finding, Loc, dotted
from orchestrator.model import JobSpec


@dataclass(frozen=True, slots=True)
class UnsupportedField:
    """A field whose machinery comes later; `message` begins with "not yet: "."""

    loc: Loc
    message: str
    hint: str

    @property
    def field(self) -> str:
        """Dotted name: `resources.nodes`."""
        return dotted(self.loc)

    def finding(self) -> Finding:
        return Finding(self.loc, self.message, self.hint)


def unsupported_fields(spec: JobSpec) -> tuple[UnsupportedField, ...]:
    """Every such field of a job. Fields that only make it better than asked for are not among them."""
    found: list[UnsupportedField] = []

    def add(loc: Loc, message: str, hint: str) -> None:
        found.append(UnsupportedField(loc, f"not yet: {message}", hint))

    for index, data in enumerate(spec.data):
        if scheme(data.source):
            hint = "bring the data to this machine and let train.args name its path"
            add(("data", index, "source"), "data is not fetched from object stores", hint)
        elif data.source != data.mount:
            hint = f"mount it where it lies: {data.source}"
            add(("data", index, "mount"), "data is not mounted at another path", hint)
    for index, output in enumerate(spec.outputs):
        if output.keep == "best":
            add(("outputs", index, "keep"), "the best version is not recognised", "use keep: all")
    if spec.resources.nodes > 1:
        add(("resources", "nodes"), "a job runs on one node", "use nodes: 1")
    if spec.checkpoint.to is not None and scheme(spec.checkpoint.to) in OBJECT_STORES:
        hint = "use a folder of this machine, or leave the field out"
        add(("checkpoint", "to"), "checkpoints are not kept in object stores", hint)
    return tuple(found)


def refuse_unsupported_fields(spec: JobSpec, path: str = "job") -> None:
    """Raises SpecError when the job asks for anything of `unsupported_fields`; `path` names it in the message."""
    problems = [Problem(path, 0, 0, item.field, item.message, item.hint) for item in unsupported_fields(spec)]
    if problems:
        raise SpecError(problems)
