"""Draft: the fields of a job file found so far, with a note for everything that differs from the source."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from orchestrator.jobfile.source.source_map import Finding, Loc, Mark, SourceMap, dotted
from orchestrator.jobfile.values import Variable

Outcome = Literal["left out", "changed", "to do"]

STARTED_BY_RANK = (
    "the program is started once per process, with RANK, WORLD_SIZE and so on set as by torchrun",
    "set train.script to the program, without torchrun, and set resources.processes if you need other than one per GPU",
)
"""What to check, and how, in a job on several machines."""

_SECRET_NAME = re.compile(
    r"(?i)(^|_)(token|secrets?|passwords?|passwd|credentials?|(api|access|account|private)_?keys?(_id)?)$"
)
_INTERPOLATED_SECRET = re.compile(r"\$\{\{\s*secrets\.[^}]*\}\}")
_REGISTRY_LOGIN = re.compile(r"SKYPILOT_(RUNPOD_)?DOCKER_(USERNAME|PASSWORD|SERVER)")
_SECRET_IN_TEXT = (
    re.compile(r"(?i)\b(\w*(?:token|secret|password|passwd|credential|_key)=)(?!\$)\S+"),
    re.compile(r"(?i)(--[\w-]*(?:token|secret|password|api[-_]key)[ =]+)(?!\$)\S+"),
    re.compile(r"(://[^/\s:@]+:)[^@\s]+(?=@)"),
    re.compile(r"(?i)(\bwandb login (?:--relogin )?)(?![-$])\S+"),
)
_VARIABLE: TypeAdapter[str] = TypeAdapter(Variable)


def masked(text: str) -> str:
    """A command without the parts that look like secrets."""
    for pattern in _SECRET_IN_TEXT:
        text = pattern.sub(r"\1...", text)
    return text


def looks_secret(name: str) -> bool:
    """Whether the name of a variable suggests that its value is a secret."""
    return _SECRET_NAME.search(name.replace("-", "_")) is not None


@dataclass(frozen=True, slots=True)
class Note:
    """What happened to one field of a task file. `left out`: it is not in the job file. `changed`: the job file writes
    it in another way, or it means something else there. `to do`: you have to act. `line` and `column` are 1-based."""

    path: str
    line: int
    column: int
    field: str
    outcome: Outcome
    message: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}:{self.column}: {self.field}: {self.outcome}: {self.message}"
        return where + (f" ({self.hint})" if self.hint else "")


@dataclass(slots=True)
class Draft:
    """`job` has the fields of a job file, `train` those of its section `train`. `fill_in` are comment lines that say
    what the reader must add to `train`; empty if it is complete. `unmounted` are the paths that the source mounts and a
    job does not, each with the program's alternative."""

    path: str
    source_map: SourceMap
    job: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    fill_in: list[str] = field(default_factory=list)
    unmounted: dict[str, str] = field(default_factory=dict)

    def left_out(self, loc: Loc, message: str, hint: str = "", *, line: int | None = None) -> None:
        """Note a field that the job file does not have."""
        self._note("left out", loc, message, hint, line)

    def changed(self, loc: Loc, message: str, hint: str = "", *, line: int | None = None) -> None:
        """Note a field that means something slightly different in the job file."""
        self._note("changed", loc, message, hint, line)

    def to_do(self, loc: Loc, message: str, hint: str = "", *, line: int | None = None) -> None:
        """Note something that the user must do."""
        self._note("to do", loc, message, hint, line)

    def _note(self, outcome: Outcome, loc: Loc, message: str, hint: str, line: int | None) -> None:
        mark = self.source_map.of(Finding(loc, "", at="key")) if line is None else Mark(line, 1)
        note = Note(self.path, mark.line, mark.column, dotted(loc), outcome, message, hint)
        if note not in self.notes:
            self.notes.append(note)

    def add_name(self, name: object, otherwise: str) -> None:
        """Set the job's name, changed to a valid one; `otherwise` if the source has none."""
        given = str(name) if name not in (None, "") else otherwise
        legal = re.sub(r"[^A-Za-z0-9._-]+", "-", given).strip("._-")[:63] or "job"
        self.job["name"] = legal
        if name not in (None, "") and legal != given:
            self.changed(("name",), f"is {legal} here", "a name may have letters, digits, . _ and -, at most 63")

    def add_labels(self, labels: object, loc: Loc) -> None:
        """Copy the labels that are valid in a job file; note the others."""
        if not isinstance(labels, dict):
            return
        kept = {str(k): str(v) for k, v in labels.items() if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", str(k))}
        self.job |= {"labels": kept} if kept else {}
        self.changed(loc, "label the job here, not its machines")

    def add_variable(self, name: str, value: object, loc: Loc, *, line: int | None = None) -> str | None:
        """Add an environment variable. Returns its value if commands may use it, which a secret's value may not."""
        if _REGISTRY_LOGIN.fullmatch(name):
            self.left_out(loc, "jobs run without a container image", line=line)
            return None
        try:
            _VARIABLE.validate_python(name)
        except ValidationError:
            self.left_out(
                loc, "is not a name that a job may set", "Tradewind sets RANK, MASTER_ADDR and so on", line=line
            )
            return None
        text = "" if value is None else str(value)
        if not text:
            self._secret(name)
            self.changed(loc, "has no value; Tradewind takes it from your environment when you submit", line=line)
            return None
        if (looks_secret(name) and not text.isdecimal()) or _INTERPOLATED_SECRET.search(text):
            self._secret(name)
            hint = f"export {name} before you submit; the file should not contain it"
            self.changed(loc, "looks like a secret: its value is not copied", hint, line=line)
            return None
        self.train.setdefault("env", {})[name] = text
        return text

    def ask_about_unmounted(self, loc: Loc, name: str, value: object, *, line: int | None = None) -> None:
        """Note that the value of `name` is or contains a path below a place that is not mounted."""
        for path, remedy in self.unmounted.items():
            if re.search(rf"(?:^|[=:,]){re.escape(path.rstrip('/'))}(?:[/:,]|$)", str(value)):
                self.to_do(loc, f"{name}: {path} is not mounted in a job", remedy, line=line)

    def add_secrets(self, names: Iterable[tuple[str, bool]], loc: Loc) -> None:
        """Add `names`, each with whether the source has a value for it. The value is never copied."""
        for name, with_value in names:
            try:
                self._secret(_VARIABLE.validate_python(name))
            except ValidationError:
                self.left_out((*loc, name), "is not a name that a job may set")
                continue
            if with_value:
                self.changed((*loc, name), "the value is not copied", f"export {name} before you submit")

    def _secret(self, name: str) -> None:
        names = self.train.setdefault("secrets", [])
        if name not in names:
            names.append(name)
        self.train.get("env", {}).pop(name, None)
