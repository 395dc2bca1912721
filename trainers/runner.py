"""Runs one TrainerSpec in this process: prepares the environment, calls the program and writes the final progress.json.

    python -m trainers.runner SPEC.json [--standalone]

With --standalone, no orchestrator hands over the job, so the runner writes the fence itself.
"""

from __future__ import annotations

import argparse
import difflib
import faulthandler
import importlib
import inspect
import os
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from trainers.checkpoint import store
from trainers.control import EXIT_CODES, ControlDirectory, TrainerState
from trainers.errors import EntryError, message_of
from trainers.journal import Journal
from trainers.objects.opening import open_store
from trainers.process import launcher, same_hashes
from trainers.process.log_pump import MaskedLog
from trainers.process.masking import Mask
from trainers.process.own_folder import OwnFolder, followed
from trainers.process.prewarm import STACKS_SIGNAL
from trainers.process.ranks import Rank
from trainers.process.run_context import RunContext, RunEnded, Timers, opened
from trainers.process.unmanaged import watched
from trainers.spec import CHECKPOINT_VARIABLE, CONTROL_VARIABLE, OUTPUT_VARIABLE, SPEC_VARIABLE, TrainerSpec

FENCE_POLL_S = 0.02
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_LOST_CONTACT = re.compile(
    r"closed by peer|reset by peer|Connection refused|Broken pipe|ncclRemoteError|ncclSystemError|remote process exited"
    r"|Socket Timeout|Timed out waiting|timed out in \w+|client socket has timed out|Connection was likely closed"
)
_LONGEST_ERROR = 20_000  # characters of a traceback in progress.json; the log has all of it


def run(spec: TrainerSpec, *, secrets: Mapping[str, str] = MappingProxyType({})) -> TrainerState:
    """Run the job's code on this machine to its end: in this process or, for several ranks, in one child for each rank.
    Otherwise like `execute`. Raises TrainerError for an impossible spec.
    """
    if not spec.distributed:
        return execute(spec, secrets=secrets)
    with suppress(ModuleNotFoundError):  # without torch, the children report why they fail
        import torch._dynamo  # noqa: F401  (once, for all children: their first optimizers need it)
    return launcher.launch(spec, lambda rank: execute(rank.spec, rank=rank, secrets=secrets), secrets=secrets)


def execute(
    spec: TrainerSpec,
    *,
    rank: Rank | None = None,
    timers: Timers | None = None,
    on_step: Callable[[int], None] | None = None,
    secrets: Mapping[str, str] = MappingProxyType({}),
) -> TrainerState:
    """Run the job's code to its end and report the result; never raises an error of that code.

    Changes this process permanently (environment, folder, threads, generators), so it allows one run per process.
    Standard output and error go to `<run folder>/log`. `on_step` is called with each recorded step. `secrets` are
    already in the environment; their values are removed from everything written about the run, and if there are any,
    output goes to the log until the process ends. `rank`: the rank of this process in a run of several, whose output
    already goes to the log (trainers.process.launcher). Raises OSError if the run folder cannot be written.
    """
    timers = timers or Timers()
    control, mask = ControlDirectory(spec.control_dir), Mask(secrets).text
    if rank is None:
        journal = Journal(control, timers.monotonic, mask)
    else:
        own = ControlDirectory(rank.folder / "control")
        journal = Journal(own if rank.local_rank else control, timers.monotonic, mask, last=own)
    journal.enter("starting")
    context = RunContext(spec, control, journal, timers, rank=rank, on_step=on_step)
    output = _captured(journal, secrets) if rank is None else _explained(sys.stderr)
    with closing(journal), output, opened(context):
        try:
            _enter_environment(spec, journal.folder, rank)
            os.environ[CHECKPOINT_VARIABLE] = str(_own_folder(context))
            if spec.manifest is None:
                _await_fence(context)
            with _own_checkpoints(context), watched(context):
                _call(spec)
            if context.leaving is not None:
                journal.enter(context.leaving)  # ended on request, not because it was finished
            elif context.session is None:
                journal.enter("finished")
            elif (unfinished := context.session.unfinished()) is not None:
                sys.stderr.write(f"{unfinished}\n")
                journal.enter("failed", error=unfinished)
            else:
                context.session.finish()
        except RunEnded as end:
            journal.enter(end.state)
        except BaseException as error:  # also SystemExit and KeyboardInterrupt: a run always reports how it ended
            text = journal.mask(reported(error)) + ("" if spec.distributed else _remedy(message_of(error)))
            if context.leaving is not None:
                journal.enter(context.leaving)
            else:
                permanent, peer_lost = _is_permanent(error, context), rank is not None and lost_contact(error)
                journal.enter("failed", error=text[-_LONGEST_ERROR:], permanent=permanent, peer_lost=peer_lost)
            # the program may have replaced sys.stderr or closed the descriptor
            with suppress(OSError), open(2, "w", closefd=False, errors="backslashreplace") as stderr:
                stderr.write(text)
    return journal.progress.state


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 0 finished or checkpointed and stopped, 1 failed, 3 fenced. Without `arguments`, reads the
    command line.
    """
    if arguments is None:
        same_hashes.require()
    parser = argparse.ArgumentParser(prog="python -m trainers.runner", description="Run one trainer spec.")
    parser.add_argument("spec", type=Path, help="JSON file of a TrainerSpec")
    parser.add_argument("--standalone", action="store_true", help="write the fence: no orchestrator hands over the job")
    options = parser.parse_args(arguments)
    spec = TrainerSpec.load(options.spec)
    if options.standalone:
        take_over(spec)
    state = run(spec)
    sys.stderr.write(f"{state}: {Path(spec.control_dir) / 'progress.json'}\n")
    return EXIT_CODES.get(state, 1)


def take_over(spec: TrainerSpec) -> None:
    """Write the fence of the spec's generation if no newer one exists. Raises CheckpointError and ObjectStoreError."""
    root = open_store(spec.checkpoint_root)
    owner = store.fence(root, spec.job_id)
    if owner is None or owner.generation < spec.generation:
        start = spec.manifest or store.newest_counting(root, spec.job_id, spec.generation)
        store.write_fence(root, spec.job_id, spec.generation, start)


def _await_fence(context: RunContext) -> None:
    """Wait for the fence before any code of the job runs, because there is no checkpoint to restore.

    A program that never calls attach() could not wait at any later time.
    """
    spec, control = context.spec, context.control
    store.prepare(context.checkpoints, spec.job_id)
    context.journal.enter("restored")
    while (owner := context.ownership.generation()) < spec.generation:
        until = control.lease_until()
        if until is not None and context.timers.monotonic() >= until:
            raise RunEnded("fenced")
        if control.stop_requested():
            raise RunEnded("checkpointed_and_stopped")
        context.timers.sleep(FENCE_POLL_S)
    if owner > spec.generation:
        raise RunEnded("fenced")
    if not context.leads:
        context.ownership.close()  # from now on, the first process of the machine checks
    context.journal.enter("training")
    if spec.steps is not None or spec.epochs is not None:  # a program without a length may run indefinitely
        context.journal.expect("begin")


def _enter_environment(spec: TrainerSpec, run_folder: Path, rank: Rank | None) -> None:
    saved = run_folder / "spec.json"
    if not saved.exists():
        spec.save(saved)
    Path(spec.output_dir).mkdir(parents=True, exist_ok=True)
    os.environ.update(
        {
            **spec.env,
            SPEC_VARIABLE: str(saved),
            CONTROL_VARIABLE: spec.control_dir,
            OUTPUT_VARIABLE: spec.output_dir,
            "OMP_NUM_THREADS": str(spec.threads),
            "MKL_NUM_THREADS": str(spec.threads),
            **(rank.variables() if rank is not None else {}),
        }
    )
    if not Path(spec.workdir).is_dir():
        raise EntryError(f"the folder {spec.workdir} does not exist", hint="correct train.workdir")
    os.chdir(spec.workdir)
    sys.path.insert(0, str(Path(spec.workdir).resolve()))
    _prepare_torch(spec)


def _own_folder(context: RunContext) -> Path:
    """The folder in which a program that does not call attach() writes its checkpoints: the job's folder in the store;
    if the store is a bucket, a folder of this run.
    """
    spec, root = context.spec, context.checkpoints
    return Path(spec.control_dir).parent / "own" if root.remote else Path(root.where(spec.job_id))


@contextmanager
def _own_checkpoints(context: RunContext) -> Iterator[None]:
    """Copy the program's checkpoint folder from run to run, if the job's store is a bucket: to each machine, and from
    the machine of rank 0.
    """
    spec, folder = context.spec, _own_folder(context)
    if not context.checkpoints.remote:
        yield
        return
    own = OwnFolder(folder, context.checkpoints, spec.job_id, spec.generation, spec.max_upload_bytes_per_s)
    if context.leads:
        own.restore()
    while not folder.is_dir():
        context.timers.sleep(FENCE_POLL_S)
    stores = context.rank is None or context.rank.rank == 0
    context.own = own if stores else None
    with followed(own) if stores else nullcontext():
        yield


def _prepare_torch(spec: TrainerSpec) -> None:
    # cuBLAS reads this when it starts; without it torch cannot be deterministic on CUDA.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        import torch
    except ModuleNotFoundError as error:
        raise EntryError("torch is not installed here", hint="pip install 'tradewind[train]'") from error
    from trainers.loop.rng import seed_all

    torch.set_num_threads(spec.threads)
    if "torch._inductor" in sys.modules:
        torch.use_deterministic_algorithms(spec.deterministic)
    elif spec.deterministic:  # the same without importing the compiler, which takes as long as importing torch
        os.environ.setdefault("TORCHINDUCTOR_DETERMINISTIC", "1")
        torch.set_deterministic_debug_mode("error")
    seed_all(spec.seed)


def _call(spec: TrainerSpec) -> None:
    try:
        if spec.entry is not None:
            function, arguments = loaded(spec)
            function(**arguments)
        elif spec.script is not None:
            _run_script(spec.script, spec.argv or [*_options(spec.args)])
        else:
            raise EntryError("there is nothing to run", hint="set train.entry or train.script")
    except SystemExit as end:
        if end.code:
            raise


def loaded(spec: TrainerSpec) -> tuple[Callable[..., object], dict[str, object]]:
    """Import the module of the spec's entry; returns its function and the arguments to call it with.

    Raises EntryError, and any error of the module.
    """
    function = _entry(spec.entry or "")
    return function, _arguments(spec, function)


def _entry(entry: str) -> Callable[..., object]:
    """The function `module:function`. Raises EntryError."""
    module_name, _, name = entry.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        present = sorted(path.stem for path in Path().glob("*.py"))
        raise EntryError(
            f"train.entry: {Path().resolve()} has no module {module_name}",
            hint=_suggestion(module_name, present),
        ) from None
    function = getattr(module, name, None)
    if not callable(function):
        functions = [n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module_name]
        raise EntryError(
            f"train.entry: {module.__file__} has no function {name or '(empty)'}",
            hint=_suggestion(name, functions),
        )
    return function  # type: ignore[no-any-return]


def _arguments(spec: TrainerSpec, function: Callable[..., object]) -> dict[str, object]:
    """The job's `args`, plus its `steps` and `epochs` if the function has parameters of these names. Raises EntryError.

    `steps` and `epochs` override `args`: a learning-rate schedule for a different length would be silently wrong.
    """
    try:
        signature = _signature(function)
    except ValueError:  # a function written in C: only the call shows its parameters
        return dict(spec.args)
    taken = {name for name, parameter in signature.parameters.items() if parameter.kind in _BY_NAME}
    lengths = {"steps": spec.steps, "epochs": spec.epochs}
    args = dict(spec.args) | {name: value for name, value in lengths.items() if value is not None and name in taken}
    try:
        signature.bind(**args)
    except TypeError as error:
        raise EntryError(f"train.args do not fit {spec.entry}{signature}: {error}", hint="correct train.args") from None
    return args


def _signature(function: Callable[..., object]) -> inspect.Signature:
    """The parameters of a function; for a decorator that passes on all arguments, those of the wrapped function.

    Raises ValueError.
    """
    outer = inspect.signature(function, follow_wrapped=False)
    passes_on = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in outer.parameters.values())
    return inspect.signature(function) if passes_on else outer


def _options(args: Mapping[str, object]) -> Iterator[str]:
    for name, value in args.items():
        yield from (f"--{name}", str(value))


def _run_script(script: str, words: Sequence[str]) -> None:
    if not Path(script).is_file():
        present = sorted(path.name for path in Path().glob("*.py"))
        raise EntryError(f"train.script: there is no {Path(script).resolve()}", hint=_suggestion(script, present))
    sys.argv = [script, *words]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if (problem := _refused_arguments(end)) is None:
            raise
        hint = "correct train.args; a flag without a value is given in a list of words, such as [--amp]"
        raise EntryError(f"train.args do not fit {script}: {problem}", hint=hint) from None


def _refused_arguments(end: SystemExit) -> str | None:
    """The message of the script's argument parser (argparse, click or typer), if it ended the script.

    These parsers only print the message and exit with status 2.
    """
    if end.code != 2:
        return None
    cause = end.__context__
    kinds = type(cause).__mro__
    if any(each.__name__ == "UsageError" and each.__module__.endswith("click.exceptions") for each in kinds):
        return str(getattr(cause, "message", cause))
    for frame, _ in traceback.walk_tb(end.__traceback__):
        parser, name = frame.f_locals.get("self"), frame.f_code.co_name
        if isinstance(parser, argparse.ArgumentParser) and name == argparse.ArgumentParser.error.__name__:
            return str(frame.f_locals.get("message", "see its output in the log"))
    return None


def _suggestion(wanted: str, present: list[str]) -> str:
    close = difflib.get_close_matches(wanted, present, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"available: {', '.join(present)}" if present else "none is available"


def reported(error: BaseException) -> str:
    """The traceback and message, in characters that every file and terminal accepts."""
    try:
        text = "".join(traceback.format_exception(error.with_traceback(_of_the_job(error))))
    except BaseException as second:  # its text, cause or notes may run code of the job
        where = "".join(traceback.format_tb(error.__traceback__))
        text = f"{where}{type(error).__name__} (the message cannot be shown: {type(second).__name__})\n"
    return text.encode(errors="backslashreplace").decode()


def _remedy(message: str) -> str:
    """The remedy if a program written for torchrun is started alone."""
    if "environment variable RANK expected" not in message:
        return ""
    return "set resources.processes in the job file (1 for one process), so that it starts as under torchrun\n"


def _is_permanent(error: BaseException, context: RunContext) -> bool:
    """True if the program would fail on any machine: it cannot be loaded or called with these arguments."""
    progress = context.journal.progress
    return isinstance(error, EntryError) or (progress.step == progress.start_step and would_repeat(error))


def would_repeat(error: BaseException) -> bool:
    """True if the program, not the machine, caused an error that was raised while the program was loaded."""
    return isinstance(error, EntryError | ImportError | SyntaxError)


def lost_contact(error: BaseException) -> bool:
    """Whether an error, or one of its causes, says that another rank cannot be reached. This is a guess: torch has no
    separate type for the errors of gloo.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, RuntimeError) and _LOST_CONTACT.search(message_of(seen)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _of_the_job(error: BaseException) -> Any:
    """The traceback without this module's own frames, which do not help the job's author."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename == __file__:
        frame = frame.tb_next
    return frame if frame is not None or isinstance(error, EntryError) else error.__traceback__


@contextmanager
def _captured(journal: Journal, secrets: Mapping[str, str]) -> Iterator[None]:
    """Append all output of this process, including C libraries and children, to the run's log."""
    sys.stdout.flush()
    sys.stderr.flush()
    streams, copies = (sys.stdout, sys.stderr), (os.dup(1), os.dup(2))
    path = journal.folder / "log"
    log: Path | int = path
    if secrets:
        masked = MaskedLog(path, secrets)
        log, journal.settle = masked.descriptor, masked.settle
    with open(log, "w" if secrets else "a", buffering=1, encoding="utf-8", errors="backslashreplace") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
        sys.stdout = sys.stderr = file
        try:
            with _explained(file):
                yield
        finally:
            sys.stdout, sys.stderr = streams
            for descriptor, copy in zip((1, 2), copies, strict=True):
                if not secrets:  # otherwise exit handlers of the job could print secrets elsewhere
                    os.dup2(copy, descriptor)
                os.close(copy)


@contextmanager
def _explained(file: IO[str]) -> Iterator[None]:
    """Write the stacks of all threads to `file` when a signal kills this process and whenever STACKS_SIGNAL arrives.

    The signal handler itself writes them, so this works while the program runs C code or waits for a lock.
    """
    faulthandler.enable(file)
    faulthandler.register(STACKS_SIGNAL, file)
    try:
        yield
    finally:
        faulthandler.unregister(STACKS_SIGNAL)
        faulthandler.disable()


if __name__ == "__main__":
    raise SystemExit(main())
