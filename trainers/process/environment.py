"""The environment of a job: a virtual environment that is set up once per machine and used by all its runs.

    ROOT/KEY/            a virtual environment that also sees the site's packages, so that torch is not installed again
    ROOT/KEY/complete    written last; if it or the environment's Python is missing, the set-up was interrupted, and
                         the environment is built again
    ROOT/KEY.lock        held exclusively while building, shared by all users

A build removes environments that have not been used for UNUSED_S.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import trainers
from trainers.errors import SetupError
from trainers.process.environment_key import key_of
from trainers.process.masking import Mask, Stream
from trainers.process.run_context import Timers
from trainers.spec import SetupSpec

UNUSED_S = 30 * 86_400.0
SHOWN_LINES = 12
_POLL_S = 0.1
_STOP_S = 5.0
_CHUNK_BYTES = 1 << 16
_LONGEST_LINE = 500  # bytes of a line in an error message
_LAST_READS = 64  # reads of remaining output after the command has ended
_COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Environment:
    """A complete environment.

    `lock` is a descriptor: while it, or a copy inherited by another process, is open, the environment is not removed.
    `built`: whether it was set up for this run.
    """

    folder: Path
    lock: int
    built: bool

    @property
    def python(self) -> Path:
        """The path of its Python interpreter."""
        return _python(self.folder)

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """`environ`, changed for a process that runs in this environment."""
        without = {name: value for name, value in environ.items() if name not in ("PYTHONHOME", "VIRTUAL_ENV")}
        path = f"{self.folder / 'bin'}{os.pathsep}{environ.get('PATH', os.defpath)}"
        return without | {"VIRTUAL_ENV": str(self.folder), "PATH": path}


@dataclass(slots=True)
class Builder:
    """Sets up environments in `root`. Output goes to the descriptor `log`; the end of it that an error quotes is masked
    here, before it is cut.

    While a command runs, `gone` is polled: when it returns True, everything is ended and SystemExit raised.
    """

    root: Path
    log: int
    gone: Callable[[], bool]
    timers: Timers = field(default_factory=Timers)
    _tail: list[str] = field(default_factory=list, init=False)
    _mask: Mask = field(default_factory=lambda: Mask({}), init=False)

    def environment(self, setup: SetupSpec, secrets: Mapping[str, str]) -> Environment:
        """The environment for `setup`, built if it does not exist. Raises SetupError."""
        self._mask = Mask(secrets)
        give_up_s = self.timers.monotonic() + setup.timeout_s
        key = key_of(setup)
        folder = self.root / key
        with named_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self.root / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._lock(lock, folder, give_up_s, setup)
                present = _is_complete(folder)
                if not present:
                    self._remove_unused(key)
                    self._build_anew(folder, setup, secrets, lock, give_up_s)
                os.utime(folder / _COMPLETE)
                fcntl.flock(lock, fcntl.LOCK_SH)
            except BaseException:
                os.close(lock)
                raise
        return Environment(folder, lock, built=not present)

    def _lock(self, lock: int, folder: Path, give_up_s: float, setup: SetupSpec) -> None:
        """Lock the environment, shared if it is complete, else exclusively; waits while another run builds it."""
        reported = False
        while True:
            for kind in (fcntl.LOCK_SH, fcntl.LOCK_EX):
                with suppress(BlockingIOError):
                    fcntl.flock(lock, kind | fcntl.LOCK_NB)
                    if kind == fcntl.LOCK_EX or _is_complete(folder):
                        return
            fcntl.flock(lock, fcntl.LOCK_UN)
            if not reported:
                self._log("waiting for another run that sets up the same environment")
                reported = True
            if self.gone():
                raise SystemExit(1)
            if self.timers.monotonic() > give_up_s:
                raise self._timed_out(setup)
            self.timers.sleep(_POLL_S)

    def _build_anew(
        self, folder: Path, setup: SetupSpec, secrets: Mapping[str, str], lock: int, give_up_s: float
    ) -> None:
        """Build in an empty folder, which is removed on failure: an incomplete environment must not be used, and must
        not take space on a disk that may be full."""
        _remove(folder)
        try:
            self._build(folder, setup, secrets, lock, give_up_s)
            if not _python(folder).exists():
                raise SetupError(f"the set-up has removed {_python(folder)}", hint=_REMEDY)
            (folder / _COMPLETE).touch()
        except BaseException:
            with suppress(OSError):  # the raised error matters more, and the next set-up removes the folder or fails
                _remove(folder)
            raise

    def _build(self, folder: Path, setup: SetupSpec, secrets: Mapping[str, str], lock: int, give_up_s: float) -> None:
        python = _interpreter(setup.python)
        same = python == sys.executable
        borrows_pip = same and find_spec("pip") is not None  # installing another pip takes ten seconds
        packages = folder / "lib" / f"python{_version(setup.python)}" / "site-packages"

        def run(command: list[str], environ: Mapping[str, str], shown: str) -> None:
            self._run(command, environ, shown, setup, lock, give_up_s)

        options = ["--system-site-packages", *(["--without-pip"] if borrows_pip else [])]
        run([python, "-m", "venv", *options, str(folder)], os.environ, "python -m venv")
        if same:  # a virtual environment created from another one does not see its packages
            lines = [f"import site; site.addsitedir({path!r})" for path in _site_packages()]
            (packages / "tradewind-site.pth").write_text("".join(f"{line}\n" for line in lines))
        with suppress(FileExistsError):
            (packages / "trainers").symlink_to(Path(trainers.__file__).parent)
        environment = Environment(folder, lock, built=True)
        if borrows_pip:
            _write_pip(environment)
        environ = environment.variables({**os.environ, **setup.env, **secrets})
        wanted = [*setup.requirements, *(part for name in setup.requirement_files for part in ("-r", name))]
        if wanted:
            pip = [str(environment.python), "-m", "pip", "install", "--disable-pip-version-check", *wanted]
            run(pip, environ, f"pip install {' '.join(wanted)}")
        if setup.command:
            run(["bash", "-eo", "pipefail", "-c", setup.command], environ, setup.command)

    def _run(
        self,
        command: list[str],
        environ: Mapping[str, str],
        shown: str,
        setup: SetupSpec,
        lock: int,
        give_up_s: float,
    ) -> None:
        """Run one command to its end. Its processes inherit the lock, so that they hold it even if they outlive this
        process.
        """
        self._log(shown)
        self._tail.clear()
        read, write = os.pipe()
        with open(read, "rb", buffering=0) as output:
            try:
                child = subprocess.Popen(
                    command,
                    cwd=setup.workdir,
                    env=dict(environ),
                    stdin=subprocess.DEVNULL,
                    stdout=write,
                    stderr=write,
                    pass_fds=[lock],
                    process_group=0,
                )
            except OSError as error:
                raise SetupError(f"the set-up cannot run {command[0]}: {error.strerror}", hint=_REMEDY) from error
            finally:
                os.close(write)
            with _ended(child):
                self._follow(child, output.fileno(), setup, give_up_s)
        if child.returncode:
            why = f"exited with status {child.returncode}"
            if child.returncode < 0:
                why = f"was killed by signal {-child.returncode}"
            message = self._after_output(f"the set-up failed: `{_short(shown)}` {why}")
            raise SetupError(message, hint=_remedy(child.returncode, self._tail))

    def _follow(self, child: subprocess.Popen[bytes], output: int, setup: SetupSpec, give_up_s: float) -> None:
        """Copy the output until the command has ended; a process left behind may keep the pipe open longer."""
        end = _End(self._tail)
        masked = Stream(self._mask, end.write)
        last_reads = _LAST_READS
        while last_reads:
            ended = child.poll() is not None
            readable = bool(select.select([output], [], [], 0.0 if ended else _POLL_S)[0])
            data = os.read(output, _CHUNK_BYTES) if readable else b""
            self._write(data)
            masked.feed(data)
            if ended:
                last_reads = last_reads - 1 if data else 0
            elif readable and not data:  # the command closed its output
                self.timers.sleep(_POLL_S)
            if self.gone():
                raise SystemExit(1)
            if not ended and self.timers.monotonic() > give_up_s:
                raise self._timed_out(setup)
        masked.close()
        end.close()

    def _timed_out(self, setup: SetupSpec) -> SetupError:
        message = self._after_output(f"the set-up took longer than {setup.timeout_s:g} s")
        return SetupError(message, hint="make it shorter, or raise stalls.setup_fail_after_s")

    def _after_output(self, what: str) -> str:
        """The end of the output, then `what` and its last line: events quote the last line of an error."""
        tail = self._tail[-SHOWN_LINES:]
        return "\n".join([*tail, f"{what}: {tail[-1]}" if tail else what])

    def _log(self, text: str) -> None:
        self._write(f"[set-up] {text}\n".encode())

    def _write(self, data: bytes) -> None:
        with suppress(OSError):  # a full disk must not stop the set-up
            os.write(self.log, data)

    def _remove_unused(self, but: str) -> None:
        """Remove environments that have been unused for UNUSED_S, by the file system's clock."""
        os.utime(self.root)
        now_s = self.root.stat().st_mtime
        for lock_file in self.root.glob("*.lock"):
            folder = lock_file.with_suffix("")
            with suppress(OSError):
                if lock_file.stem == but or now_s - _used_s(folder) < UNUSED_S:
                    continue
                lock = os.open(lock_file, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    (folder / _COMPLETE).unlink(missing_ok=True)
                    shutil.rmtree(folder)
                finally:
                    os.close(lock)


@dataclass(slots=True)
class _End:
    """Keeps the last lines of the output in `lines`, each cut to a maximum length."""

    lines: list[str]
    _rest: bytes = b""

    def write(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self.lines += [line[:_LONGEST_LINE].decode("utf-8", "replace").rstrip() for line in lines[-SHOWN_LINES:]]
        del self.lines[:-SHOWN_LINES]
        self._rest = rest[:_LONGEST_LINE]

    def close(self) -> None:
        if self._rest:
            self.write(b"\n")


_REMEDY = "correct train.setup, train.requirements or train.python"
_MAKE_ROOM = "free disk space on the machine, raise the quota or the limit of file sizes (ulimit -f), or install less"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_ROOM_SIGNS = tuple(map(os.strerror, _NO_ROOM))
_TOO_LARGE = {-signal.SIGXFSZ, 128 + signal.SIGXFSZ}
_KILLED = {-signal.SIGKILL, 128 + signal.SIGKILL}


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Convert the operating system's refusal to write at or below `path` to a SetupError with its remedy."""
    try:
        yield
    except OSError as error:
        what = f"the set-up cannot write {error.filename or path}: {error.strerror or error}"
        if error.errno in _NO_ROOM:
            raise SetupError(what, hint=_MAKE_ROOM) from error
        raise SetupError(what, hint=f"make {path} and its content writable for this user, or remove it") from error


def _remedy(status: int, output: list[str]) -> str:
    """The remedy for a command that ended with this exit status (minus a signal's number) after this output."""
    if status in _TOO_LARGE or any(sign in line for line in output for sign in _NO_ROOM_SIGNS):
        return _MAKE_ROOM
    if status in _KILLED:
        return "the machine may have run out of memory: request more (resources.memory), or install less at once"
    return _REMEDY


def _remove(folder: Path) -> None:
    """Remove a folder, including read-only content. Raises OSError if anything is left."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        if folder.exists():
            raise
    except PermissionError:
        folder.chmod(0o700)
        for parent, names, _ in os.walk(folder):
            for path in (Path(parent, name) for name in names):
                if not path.is_symlink():
                    path.chmod(0o700)
        shutil.rmtree(folder)


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _is_complete(folder: Path) -> bool:
    return (folder / _COMPLETE).exists() and _python(folder).exists()


def _used_s(folder: Path) -> float:
    marker = folder / _COMPLETE
    return (marker if marker.exists() else folder).stat().st_mtime


@contextmanager
def _ended(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """End all processes of its group at the end of this block."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(_STOP_S)


def _write_pip(environment: Environment) -> None:
    """Write the commands `pip` and `pip3`, which run the site's pip for this environment."""
    for name in ("pip", "pip3"):
        command = environment.folder / "bin" / name
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(str(environment.python))} -m pip "$@"\n')
        command.chmod(0o755)


def _interpreter(version: str | None) -> str:
    if version is None or version == _version(None):
        return sys.executable
    found = shutil.which(f"python{version}")
    if found is None:
        hint = f"delete train.python: this machine has Python {_version(None)}"
        raise SetupError(f"this machine has no python{version}", hint=hint)
    return found


def _version(version: str | None) -> str:
    return version or f"{sys.version_info.major}.{sys.version_info.minor}"


def _site_packages() -> list[str]:
    return list(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))


def _short(text: str) -> str:
    first = text.strip().splitlines()[0] if text.strip() else text
    return first if len(first) <= 80 else f"{first[:77]}..."
