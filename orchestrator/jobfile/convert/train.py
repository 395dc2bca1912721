"""The section `train` of a job file from the commands of a task file.

If it is not certain that the program would run as before, nothing is guessed: comments in the section say what to fill
in, and our parser refuses the file until that is done.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.jobfile.convert.command import Commands, Line, Program, read_commands
from orchestrator.jobfile.convert.draft import STARTED_BY_RANK, Draft, looks_secret, masked
from orchestrator.jobfile.program.arguments import misfits, settled
from orchestrator.jobfile.program.entrypoint import entry_source
from orchestrator.jobfile.source.source_map import Loc

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_STEPS = ("steps", "max_steps", "num_steps", "train_steps", "max_iters")
_EPOCHS = ("epochs", "num_epochs", "max_epochs", "num_train_epochs", "n_epochs")
_MAX_STEPS = 10**9


@dataclass(frozen=True, slots=True)
class CodePlace:
    """Where the code is: `folder` on this machine, and `workdir` as written in the job file."""

    folder: str
    workdir: str


def add_train(
    draft: Draft, loc: Loc, lines: list[Line], place: CodePlace, known: dict[str, str], gpus: int | None
) -> None:
    """Complete `draft.train` from the commands in `lines`, the value of the field `loc`."""
    commands = read_commands(lines, known, gpus)
    for line, name, value in commands.variables:
        draft.add_variable(name, value, loc, line=line.number)
    for line, name in commands.substituted:
        draft.changed(loc, f"${name} is replaced by its value", "there is no shell to expand it", line=line.number)
    for line in commands.logs_to_file:
        draft.left_out(loc, "the log is not written to this file", "read it with tradewind logs", line=line.number)
    for line in commands.writes_file:
        draft.to_do(
            loc, f"{_short(line.text)}: a job file cannot write files", "write them in the program", line=line.number
        )
    folder = commands.programs[0].folder if commands.programs else "."
    for line, command, within in commands.prepares:
        if command and within == folder:
            add_setup(draft, command, loc, line.number)
        else:
            hint = "write it in train.setup, as commands that need only the environment of the job"
            draft.to_do(
                loc,
                f"{_short(line.text)}: prepares the machine with more than a simple command",
                hint,
                line=line.number,
            )
    place = _moved(place, commands.programs[0].folder) if len(commands.programs) == 1 else place
    draft.train["workdir"] = place.workdir
    for name, value in draft.train.get("env", {}).items():
        draft.ask_about_unmounted(loc, f"${name}", value)
    _FillIn(draft, loc, lines, place, gpus).decide(commands)


def add_setup(draft: Draft, command: str, loc: Loc, line: int) -> None:
    """Add one or more lines of commands that prepare the machine."""
    shown = masked(command)
    draft.train["setup"] = "\n".join(filter(None, [draft.train.get("setup"), shown]))
    hint = "it runs once per machine, in the job's own environment, and again if it changes"
    draft.changed(loc, "becomes train.setup", hint, line=line)
    if shown != command:
        what = "a value that looks like a secret is not copied into train.setup"
        draft.to_do(loc, what, "use a variable of train.secrets instead", line=line)
    if re.search(r"\b(conda|mamba|docker)\b", command):
        draft.to_do(loc, "a job runs in a Python environment, without conda or docker", "use pip", line=line)
    if re.search(r"\$\{?(SKYPILOT|DSTACK)_", command):
        draft.to_do(loc, "variables of the other tool are not set here", "write their values", line=line)


@dataclass(slots=True)
class _FillIn:
    draft: Draft
    loc: Loc
    lines: list[Line]
    place: CodePlace
    gpus: int | None

    def decide(self, commands: Commands) -> None:
        if commands.not_read is not None:
            text = _short(commands.not_read.text)
            self.ask(commands.not_read, f"{text}: only plain commands are read, no loops, conditions or $(...)")
        elif commands.others:
            line, why = commands.others[0]
            self.ask(line, f"{_short(line.text)}: {why}")
        elif not commands.programs:
            self.ask(None, "the commands start no Python program")
        elif len(commands.programs) > 1:
            self.ask(commands.programs[1].line, "a job is one program; call the other programs from it")
        else:
            self.program(commands.programs[0])

    def ask(self, line: Line | None, why: str, guess: str = "") -> None:
        """Ask the user to fill in the section, with the reason and the original commands. Our parser refuses the file
        until then. `guess` is a suggestion."""
        what = 'say which function to call: "entry: module:function" with args and steps (docs/training-code.md)'
        self.draft.to_do(self.loc, why, what, line=line.number if line is not None else None)
        self.draft.fill_in += [f"FILL IN: {why};", what, "It was:"]
        self.draft.fill_in += [f"  {masked(each.text.rstrip())}" for each in self.lines if each.text.strip()]
        if guess:
            self.draft.fill_in += ["Perhaps:", f"  {guess}"]

    def program(self, program: Program) -> None:
        if program.unknown:
            self.ask(program.line, program.unknown)
        elif program.processes is None or program.nodes is None:
            self.ask(program.line, "the number of processes is not stated here", "script: file.py")
        elif program.nodes != self.draft.job.get("resources", {}).get("nodes", 1):
            self.ask(program.line, f"it is for {program.nodes} machines; set resources.nodes", "script: file.py")
        elif os.path.isabs(program.target) or program.target.startswith("~"):
            self.ask(program.line, f"{program.target} is outside the folder of the code", "script: file.py")
        else:
            if program.torchrun and program.processes is not None:
                self.processes(program.processes, program.line)
            self.alone(program)

    def processes(self, count: int, line: Line) -> None:
        """Set the number of processes, which are started as torchrun starts them. The default is one per GPU."""
        if count == 1 or count != self.gpus:
            self.draft.job.setdefault("resources", {})["processes"] = count
        self.draft.changed(self.loc, STARTED_BY_RANK[0], line=line.number)

    def alone(self, program: Program) -> None:
        """Add the program without its launcher."""
        target = os.path.normpath(program.target) if not program.is_module else program.target
        module = target if program.is_module else target.removesuffix(".py").replace(os.sep, ".")
        words = program.arguments
        named, exact = _named(words)
        source = entry_source(f"{module}:main", self.place.folder) if _MODULE.fullmatch(module) else None
        script = f"{module.replace('.', os.sep)}.py" if program.is_module else target
        below = source is not None and os.path.isfile(os.path.join(self.place.folder, script))
        if program.is_module and named is not None and _fits(source, module, named):
            self.entry(module, named, program.line)
        elif program.is_module and (not below or (source is not None and _is_relative(source))):
            self.ask(program.line, f"the module {module} cannot be run as a file", f"entry: {module}:main")
        else:
            self.script(script, named if named is not None and not exact else words, program.line, source)

    def entry(self, module: str, args: dict[str, object], line: Line) -> None:
        self.draft.train["entry"] = f"{module}:main"
        self.draft.changed(self.loc, f"calls {module}:main with these arguments", line=line.number)
        self.arguments({_python(name): value for name, value in args.items()}, line)
        if not {"steps", "epochs"} & self.draft.train.keys():
            what = 'FILL IN: the number of optimizer steps, such as "steps: 20000"'
            self.draft.fill_in.append(what)
            self.draft.to_do(self.loc, "the number of training steps is missing", "add train.steps", line=line.number)

    def script(
        self, script: str, args: dict[str, object] | tuple[str, ...], line: Line, source: ast.Module | None
    ) -> None:
        self.draft.train["script"] = script
        self.arguments(args, line)
        if source is not None and not _attaches(source):
            what = "it starts over after every preemption unless it calls trainers.attach()"
            self.draft.to_do(self.loc, f"{script}: {what}", "see docs/training-code.md", line=line.number)

    def arguments(self, given: dict[str, object] | tuple[str, ...], line: Line) -> None:
        """Add `args`, and the training length if they state it: forecasts need it."""
        if given:
            self.draft.train["args"] = given if isinstance(given, dict) else list(given)
        args = given if isinstance(given, dict) else _options(given)
        for name, value in _paths(given):
            self.draft.ask_about_unmounted(self.loc, name, value, line=line.number)
        for name in filter(looks_secret, args):
            what = "arguments appear in lists and logs: do not put secrets there"
            self.draft.to_do(self.loc, f"--{name}: {what}", "read it from the environment", line=line.number)
        for field, names in (("steps", _STEPS), ("epochs", _EPOCHS)):
            for name, value in args.items():
                whole = type(value) is int and 0 < value <= _MAX_STEPS
                if _python(name) in names and whole and not {"steps", "epochs"} & self.draft.train.keys():
                    self.draft.train[field] = value
                    self.draft.changed(self.loc, f"train.{field} is taken from --{name}", line=line.number)


def _named(words: tuple[str, ...]) -> tuple[dict[str, object] | None, bool]:
    """The arguments by name, None if one has no name or appears twice; and whether a script must get the exact words,
    because one is a flag without a value."""
    args: dict[str, object] = {}
    flags = False
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, text = word[2:].partition("=")
        if not word.startswith("--") or not name or name in args:
            return None, True
        if not equals and (not rest or (rest[0].startswith("-") and not _NUMBER.fullmatch(rest[0]))):
            args[name] = flags = True
        else:
            args[name] = _value(text if equals else rest.pop(0))
    return args, flags


def _paths(given: dict[str, object] | tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """The arguments that may contain paths, each with its name."""
    if isinstance(given, dict):
        yield from ((f"--{name}", value) for name, value in given.items())
        return
    for before, word in zip(("", *given), given, strict=False):
        name, equals, value = word.partition("=")
        if equals and word.startswith("-"):
            yield name, value
        else:
            yield before if before.startswith("-") and "=" not in before else f"argument {word}", word


def _options(words: tuple[str, ...]) -> dict[str, object]:
    """The value after each `--name`; other words are ignored."""
    options: dict[str, object] = {}
    for word, following in zip(words, (*words[1:], ""), strict=True):
        name, equals, text = word[2:].partition("=")
        if word.startswith("--") and name:
            options[name] = _value(text if equals else following)
    return options


def _value(text: str) -> object:
    """A number if the program reads the same value from it: if it prints as it was written, or has an exponent."""
    if _NUMBER.fullmatch(text):
        number = float(text) if re.search(r"[.eE]", text) else int(text)
        if abs(number) < 2**63 and (str(number) == text or re.search(r"[eE]", text)):
            return number
    return text


def _fits(source: ast.Module | None, module: str, args: dict[str, object]) -> bool:
    """Whether the source has a function `main` that takes exactly these arguments by name."""
    entry = f"{module}:main"
    train = {"args": {_python(name): value for name, value in args.items()}}
    return source is not None and settled(source, entry) and not any(misfits(source, entry, train))


def _python(name: str) -> str:
    return name.replace("-", "_")


def _is_relative(source: ast.Module) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.level > 0 for node in ast.walk(source))


def _attaches(source: ast.Module) -> bool:
    return any(getattr(node, "id", getattr(node, "attr", "")) == "attach" for node in ast.walk(source))


def _moved(place: CodePlace, folder: str) -> CodePlace:
    """The place after `cd folder`. SkyPilot's and dstack's own code folders map to the place of the code here."""
    for root in ("~/sky_workdir", "/workflow", "~", "/"):
        if folder == root or folder.startswith(f"{root.rstrip('/')}/"):
            folder = os.path.relpath(folder, root) if root in ("~/sky_workdir", "/workflow") else folder
            break
    joined = os.path.normpath(os.path.join(place.folder, folder))
    return CodePlace(joined, os.path.normpath(os.path.join(place.workdir, folder)))


def _short(text: str) -> str:
    text = masked(text)
    return text if len(text) <= 60 else f"{text[:57]}..."
