"""Entry check: whether a job's function can be loaded and called as its job file says, found out before it costs money.

Where the source settles that (orchestrator.jobfile), nothing is run. A function that is decorated, imported or
made at run time is imported here, in a child process with limits on its time and memory; its annotations are then
weighed as those of a source are. What comes of it other than an error that would repeat on any machine keeps no job
from being submitted.
"""

from __future__ import annotations

import os
import reprlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import Problem, SpecError
from orchestrator.formats.codec import CodecError, loads
from orchestrator.jobfile.arguments import misfit, settled
from orchestrator.jobfile.entrypoint import entry_source
from orchestrator.model import JobSpec
from orchestrator.services.secrets.submission import require_secrets
from trainers.process.masking import Mask
from trainers.spec import TrainerSpec

TIMEOUT_S = 60.0  # wall: torch and what stands on it take 5 to 20 s to import
LEAST_BYTES = 1 << 30
MOST_VERDICT_BYTES = 1 << 20
_LINES = 20


def check_entry(spec: JobSpec, *, timeout_s: float = TIMEOUT_S) -> str | None:
    """Import the function of `spec` where its source does not settle whether `train.args` fit it.

    Returns why that could not be found out here, None if all is well or nothing had to be asked. Raises SpecError, with
    the traceback, for what would fail alike on any machine; UsageError when a secret is not in the environment.
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
        trainer_spec(spec, folder).save(folder / "spec.json")
        verdict = folder / "verdict.json"
        # -P: a `trainers` in the present folder is not ours; the child adds the job's own folder
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
    """What is raised for a program that cannot be loaded, or called with `train.args`; `error` is its traceback."""
    field, name = ("train.entry", spec.train.entry) if spec.train.entry else ("train.script", spec.train.script)
    said = "\n".join(error.strip().splitlines()[-_LINES:])
    hint = "correct it: it would fail on every machine; nothing was rented"
    if spec.train.setup is not None:
        hint = "install what train.setup and train.requirements install in this Python, too: it runs here"
    return SpecError([Problem(spec.name, 0, 0, field, f"{name} cannot be used:\n{said}\n", hint)])


def trainer_spec(spec: JobSpec, folder: Path, *, least_steps: int = 1) -> TrainerSpec:
    """The orders of a trainer that runs the job's program here as a trial, below `folder`."""
    train = spec.train
    return TrainerSpec(
        job_id="profile",
        run_id="profile",
        generation=1,
        attempt=1,
        checkpoint_root=str(folder / "checkpoints"),
        control_dir=str(folder / "run" / "control"),
        output_dir=str(folder / "outputs"),
        workdir=train.workdir,
        entry=train.entry,
        script=train.script,
        args=dict(train.args),
        argv=train.argv,
        env=dict(train.env),
        steps=None if train.steps is None else max(train.steps, least_steps),
        epochs=train.epochs,
        threads=spec.reproducible.threads,
        deterministic=spec.reproducible.deterministic,
        seed=spec.reproducible.seed,
    )


def run_bounded(command: Sequence[str], timeout_s: float) -> bool:
    """Run a child without a terminal, in a session that ends with it. Whether it ended in time."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return True


def memory_limit_bytes() -> int:
    """Half of what is free here: whatever else runs on this machine must not be pushed out."""
    return max(LEAST_BYTES, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What trainers.process.entry_check found. `takes`: the arguments with an annotation, and that."""

    permanent: bool
    error: str
    takes: Mapping[str, str]


def _read(verdict: Path) -> Verdict:
    """The job's code ran in the process that wrote it, and may have written anything."""
    try:
        with open(verdict, "rb") as file:
            return loads(Verdict, file.read(MOST_VERDICT_BYTES))
    except OSError:
        return Verdict(False, "its modules ended the process", {})
    except CodecError:
        return Verdict(False, "the check gave no valid answer", {})
