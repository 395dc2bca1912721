"""Entry check: verifies that a job's function can be loaded and called with its arguments, before it costs money.

If the source code answers that (orchestrator.jobfile), nothing is run. A function that is decorated, imported or
created at run time is imported in a child process with limits on time and memory, and its annotations are checked. Only
an error that would repeat on every machine prevents a submission.
"""

from __future__ import annotations

import os
import reprlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.engine.jobs.trainer_spec import trainer_spec
from orchestrator.errors import Problem, SpecError
from orchestrator.formats.codec import CodecError, loads
from orchestrator.jobfile.program.arguments import misfit, settled
from orchestrator.jobfile.program.entrypoint import entry_source
from orchestrator.model import JobSpec
from orchestrator.services.secrets.submission import require_secrets
from orchestrator.services.speed.children import ended_with_all
from trainers.errors import EntryError
from trainers.process.masking import Mask
from trainers.spec import TrainerSpec

TIMEOUT_S = 60.0  # wall seconds; importing torch and libraries based on it takes 5 to 20 s
LEAST_BYTES = 1 << 30
MOST_VERDICT_BYTES = 1 << 20
_LINES = 20
_OURS = f"{EntryError.__module__}.{EntryError.__qualname__}: "  # as a traceback names it


def check_entry(spec: JobSpec, *, timeout_s: float = TIMEOUT_S) -> str | None:
    """Imports the function of `spec` if its source does not show whether it accepts `train.args`.

    Returns the reason if it could not be checked here, else None. `timeout_s` is in wall seconds. Raises SpecError,
    with the traceback, for an error that would repeat on every machine; UsageError if a secret is missing.
    """
    entry = spec.train.entry
    if entry is None:
        return None
    source = entry_source(entry, spec.train.workdir)
    if source is not None and settled(source, entry):
        return None
    if spec.train.setup is not None:
        return f"{entry} was not checked here: it needs what its set-up installs"
    require_secrets(spec)
    with tempfile.TemporaryDirectory(prefix="tradewind-entry-") as name:
        folder = Path(name)
        trial_spec(spec, folder).save(folder / "spec.json")
        verdict = folder / "verdict.json"
        # -P: ignore a `trainers` package in the current folder; the child adds the job's own folder
        command = [sys.executable, "-P", "-m", "trainers.process.entry_check", str(folder / "spec.json"), str(verdict)]
        if not run_bounded([*command, str(memory_limit_bytes())], timeout_s):
            return f"{entry} was not checked here: importing it takes longer than {timeout_s:g} s"
        found = _read(verdict)
    error = Mask({name: os.environ[name] for name in spec.train.secrets}).text(found.error).strip()
    if found.permanent:
        raise would_repeat(spec, error)
    wrong = [
        _problem(spec, name, misfit(found.takes[name], value))
        for name, value in spec.train.args.items()
        if name in found.takes
    ]
    if problems := [each for each in wrong if each is not None]:
        raise SpecError(problems)
    return f"{entry} was not checked here: {error.splitlines()[-1]}" if error else None


def _problem(spec: JobSpec, name: str, wanted: str) -> Problem | None:
    if not wanted:
        return None
    said = f"is {reprlib.repr(spec.train.args[name])}, but {spec.train.entry} takes {wanted}"
    return Problem(spec.name, 0, 0, f"train.args.{name}", said, "correct the value")


def would_repeat(spec: JobSpec, error: str) -> SpecError:
    """The error for a program that cannot be loaded or called with `train.args`; `error` is its traceback.

    An error that Tradewind itself raised (EntryError) explains itself and has a remedy; its class is left out.
    """
    field, name = ("train.entry", spec.train.entry) if spec.train.entry else ("train.script", spec.train.script)
    _, ours, explained = error.strip().rpartition(_OURS)
    said = explained if ours else "\n".join(error.strip().splitlines()[-_LINES:]) + "\n"
    hint = "" if ours else "correct it; it would fail on every machine"
    if spec.train.setup is not None:
        hint = "install what train.setup and train.requirements install in this Python, too: it runs here"
    return SpecError([Problem(spec.name, 0, 0, field, f"{name} cannot be used (nothing was rented):\n{said}", hint)])


def trial_spec(spec: JobSpec, folder: Path, *, least_steps: int = 1) -> TrainerSpec:
    """The specification of a trainer that runs the job's program on this machine as a trial, in `folder`."""
    trial = trainer_spec(
        spec,
        job_id="profile",
        run_id="profile",
        generation=1,
        checkpoint_root=str(folder / "checkpoints"),
        run_dir=folder / "run",
        output_dir=folder / "outputs",
    )
    return trial if trial.steps is None else replace(trial, steps=max(trial.steps, least_steps))


def run_bounded(command: Sequence[str], timeout_s: float) -> bool:
    """Runs a child without a terminal, which ends with all that it started. True if it ended in time."""
    with ended_with_all(command, subprocess.DEVNULL) as child:
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
    return True


def memory_limit_bytes() -> int:
    """Half of the free memory in bytes, so that other programs on this machine are not affected."""
    return max(LEAST_BYTES, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of trainers.process.entry_check. `takes` maps annotated arguments to their annotations."""

    permanent: bool
    error: str
    takes: Mapping[str, str]


def _read(verdict: Path) -> Verdict:
    """Reads a verdict, whose content is untrusted: the job's code ran in the process that wrote it."""
    try:
        with open(verdict, "rb") as file:
            return loads(Verdict, file.read(MOST_VERDICT_BYTES))
    except OSError:
        return Verdict(False, "its modules ended the process", {})
    except CodecError:
        return Verdict(False, "the check gave no valid answer", {})
