"""The trainer's process before it has an order, and the end of the line that its driver holds."""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from trainers.checkpoint import store
from trainers.control import ControlDirectory
from trainers.process.prewarm import PrewarmReply, Trainer, describe_exit, exit_status, write_exit_status
from trainers.spec import SetupSpec, TrainerSpec

PATIENCE_S = 120.0
LISTENS = """
import os, socket, sys
from trainers.process import prewarm
def serve(folder, ready):
    listen = socket.socket.listen
    def and_say_so(self, backlog):
        listen(self, backlog)
        os.close(ready)
    socket.socket.listen = and_say_so
    return prewarm.main(folder)
"""
ALONE = f"{LISTENS}\nsys.exit(serve(sys.argv[1], int(sys.argv[2])))"
# Loads torch once. For each folder that it is sent it forks a process that listens there, and answers with its process
# id and, when it has ended, its exit code.
LOADED = f"""{LISTENS}
assert prewarm._load() == "prepared"
for line in sys.stdin:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os._exit(serve(line.rstrip(), writer))
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
PROGRAM = """
import ctypes, os, signal, sys, threading, pathlib
def writes(name): pathlib.Path(name).write_text(f"{os.environ['WORD']} {sys.flags.hash_randomization}")
def lingers(): signal.pause()
def lingers_in_ranks():
    print("the pid is", os.getpid(), os.environ["WORD"])
    while True:  # each signal ends a pause
        signal.pause()
def keeps_the_gil():
    print("now")
    ctypes.PyDLL(None).sleep(1000)
def waits_for_a_lock():
    lock = threading.Lock()
    threading.Thread(target=keeps_the_gil, daemon=True).start()
    lock.acquire() and lock.acquire()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Too deep for the name of a socket."""
    deep = tmp_path / ("x" * 60) / ("y" * 60)
    deep.mkdir(parents=True)
    (deep / "program.py").write_text(PROGRAM)
    return deep


@pytest.fixture
def alone(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m trainers.process.prewarm`, which listens already."""
    reader, writer = os.pipe()
    command = [sys.executable, "-c", ALONE, str(folder), str(writer)]
    with open(reader) as ready, subprocess.Popen(command, pass_fds=[writer]) as waiting:
        os.close(writer)
        assert ready.read() == ""
        yield waiting
        waiting.kill()


@dataclass
class Forked:
    """The same, forked by a process that has loaded torch."""

    pid: int
    status: IO[str]

    def wait(self) -> int:
        """Its exit code."""
        assert select.select([self.status], [], [], PATIENCE_S)[0], "it has ended"
        return int(self.status.readline())

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def loaded() -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", LOADED]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process


@pytest.fixture
def process(folder: Path, loaded: subprocess.Popen[str]) -> Forked:
    """One that listens in the folder; each test waits for its end."""
    assert loaded.stdin
    assert loaded.stdout
    loaded.stdin.write(f"{folder}\n")
    loaded.stdin.flush()
    return Forked(int(loaded.stdout.readline()), loaded.stdout)


def spec(folder: Path, entry: str, **args: str) -> dict[str, object]:
    store.prepare(folder / "checkpoints", "job")
    store.write_fence(folder / "checkpoints", "job", 1, None)
    return TrainerSpec(
        job_id="job",
        run_id="run",
        generation=1,
        attempt=1,
        checkpoint_root=str(folder / "checkpoints"),
        control_dir=str(folder / "run" / "control"),
        output_dir=str(folder / "outputs"),
        workdir=str(folder),
        entry=f"program:{entry}",
        args=args,
        steps=1,
    ).to_json()


def test_it_waits_prepared_and_executes_one_order_with_its_secrets(
    folder: Path, alone: subprocess.Popen[bytes]
) -> None:
    trainer = Trainer(folder)
    words = trainer.messages()
    assert next(words) == PrewarmReply("prepared")
    trainer.order(spec(folder, "writes", name="word"), {"WORD": "hush"})
    assert next(words) == PrewarmReply("finished")
    assert list(words) == []
    assert alone.wait(PATIENCE_S) == 0
    assert (folder / "word").read_text() == "hush 0", "texts have the same hashes in all processes of all runs"
    reported = ControlDirectory(folder / "run" / "control").progress()
    assert reported is not None
    assert reported.state == "finished"


@pytest.mark.parametrize("folder", ["absent", "a file", "."])
def test_where_no_process_listens_no_socket_stays_open(tmp_path: Path, folder: str) -> None:
    (tmp_path / "a file").touch()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with suppress(OSError):
            Trainer(tmp_path / folder)
            pytest.fail("there is nothing to connect to")
        gc.collect()
    assert not said


def test_it_ends_when_its_driver_is_gone_whatever_it_does(folder: Path, process: Forked) -> None:
    trainer = Trainer(folder)
    words = trainer.messages()
    assert next(words) == PrewarmReply("prepared")
    trainer.order(spec(folder, "lingers"), {})
    words.close()
    assert process.wait() == 1


def test_a_trainer_that_stands_still_shows_the_stacks_of_its_threads_in_its_log(folder: Path, process: Forked) -> None:
    trainer = Trainer(folder)
    words = trainer.messages()
    assert next(words) == PrewarmReply("prepared")
    trainer.order(spec(folder, "waits_for_a_lock"), {})
    with following(folder / "run" / "log") as await_text:
        await_text("now\n")
        trainer.show_stacks()
        await_text("in keeps_the_gil\n", "in waits_for_a_lock\n")
    process.kill()
    assert process.wait() == -signal.SIGKILL
    trainer.show_stacks()  # of nobody: no error


def test_several_ranks_are_masked_show_their_stacks_and_end_with_the_driver(folder: Path, process: Forked) -> None:
    trainer = Trainer(folder)
    words = trainer.messages()
    assert next(words) == PrewarmReply("prepared")
    trainer.order(spec(folder, "lingers_in_ranks") | {"processes": 2}, {"WORD": "hush, hush"})
    log = folder / "run" / "log"
    with following(log) as await_text:
        await_text("[rank 0] the pid is", "[rank 1] the pid is")
        trainer.show_stacks()
        await_text("in lingers_in_ranks")
    said = [line.split() for line in log.read_text().splitlines() if "the pid is" in line]
    assert [line[6:] for line in said] == [["[secret", "WORD]"]] * 2
    ranks = [os.pidfd_open(int(line[5])) for line in said]
    words.close()
    assert process.wait() == 1
    for rank in ranks:
        assert select.select([rank], [], [], PATIENCE_S)[0], "it has ended"
        os.close(rank)


def setup(folder: Path, command: str) -> dict[str, object]:
    log = str(folder / "run" / "log")
    return SetupSpec(str(folder / "environments"), log, str(folder), command=command).to_json()


def test_a_job_with_a_set_up_is_prepared_again_in_its_own_environment(folder: Path, process: Forked) -> None:
    trainer = Trainer(folder)
    words = trainer.messages()
    assert next(words) == PrewarmReply("prepared")
    (folder / "extra.py").write_text("WORD = 'installed'\n")
    purelib = "$(python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"
    command = f"echo the key is $KEY; mv extra.py {purelib}"
    trainer.set_up(setup(folder, command), {"KEY": "correct-horse"})
    assert next(words) == PrewarmReply("prepared")
    (folder / "program.py").write_text(
        "import extra, os, sys, pathlib\n"
        "def writes(name): pathlib.Path(name).write_text(f'{extra.WORD} {os.getpid()} {sys.prefix}')\n"
    )
    trainer.order(spec(folder, "writes", name="word"), {})
    assert next(words) == PrewarmReply("finished")
    assert process.wait() == 0
    (environment,) = (path for path in (folder / "environments").iterdir() if path.is_dir())
    assert (folder / "word").read_text() == f"installed {process.pid} {environment}"
    log = (folder / "run" / "log").read_text()
    assert "the key is [secret KEY]" in log
    assert "correct-horse" not in log


def test_a_set_up_that_fails_says_why_without_the_values_of_secrets(folder: Path, process: Forked) -> None:
    trainer = Trainer(folder)
    words = trainer.messages()
    assert next(words) == PrewarmReply("prepared")
    trainer.set_up(setup(folder, "echo $KEY is not known; exit 3"), {"KEY": "correct-horse"})
    (failed,) = words
    assert failed.state == "failed"
    assert failed.error
    assert "status 3" in failed.error
    assert "[secret KEY] is not known" in failed.error
    assert "Traceback" not in failed.error
    assert process.wait() == 0


def test_a_set_up_ends_with_its_driver(folder: Path, process: Forked) -> None:
    trainer = Trainer(folder)
    words = trainer.messages()
    assert next(words) == PrewarmReply("prepared")
    trainer.set_up(setup(folder, "echo now; exec sleep 1000"), {})
    with following(folder / "run" / "log") as await_text:
        await_text("now\n")
    words.close()
    assert process.wait() == 1


@contextmanager
def following(path: Path) -> Iterator[Callable[..., None]]:
    """Reads on, in a file that is written meanwhile, until each of some texts was in a line."""
    with subprocess.Popen(["tail", "-n", "+1", "-F", path], stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        lines = tail.stdout

        def await_text(*texts: str) -> None:
            missing = set(texts)
            while missing:
                line = next(lines)
                missing = {text for text in missing if text not in line}

        yield await_text
        tail.kill()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (-signal.SIGKILL, "the trainer was killed by signal 9 (out of memory?)"),
        (-signal.SIGSEGV, "the trainer was killed by signal 11 (segmentation fault)"),
        (-signal.SIGRTMAX, "the trainer was killed by signal 64 (real-time signal 30)"),
        (7, "the trainer exited with status 7 without a final report"),
        (
            0,
            "the trainer exited with status 0 without a final report; its program may have called os._exit() or exec",
        ),
    ],
)
def test_how_a_trainer_ended_is_said_in_words(tmp_path: Path, status: int, words: str) -> None:
    assert exit_status(tmp_path) is None
    write_exit_status(tmp_path, status)
    assert exit_status(tmp_path) == status
    assert describe_exit(status) == words
