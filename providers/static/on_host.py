"""The part of the `static` provider that runs on a host: the records of its machines, and their processes.

providers.static.program sends this module's text with each request; nothing is installed on the host. It needs only
the standard library and bash. Each machine has a folder:

    machines/<id>/record.json   the request, and when it was accepted
    machines/<id>/supervisor    the process that watches it
    machines/<id>/deadline      when it ends by itself
    machines/<id>/beat          when its supervisor last reported
    machines/<id>/shared        the names of its files in shared memory
    machines/<id>/ending, ended why and when it ends; that its end is complete
    machines/<id>/output.log    the output of the user data (its last 64 kB, once it has ended)
    machines/<id>/files/        its working folder, while it lives; its temporary files are in /tmp/tw-...

All instants are seconds of CLOCK_BOOTTIME, which no change of the wall clock affects, and count only within one boot.
The caller gets durations, and its own instant of the launch back. A machine's supervisor adopts all its processes, so
it knows when the last one has ended; it also holds the lock of the machine's slot, which all users of the host share.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from providers.clock import boot_id
from providers.errors import ProviderError
from providers.processes import ID_VARIABLE, Leader, is_alive, kill_all, living, mark_of, parse
from providers.static import shared_memory
from providers.static.slots import Refused, free_slots, take_slots
from providers.static.turns import turn

ANSWER = "tradewind-host:"
INSTALL = "tradewind-install"
SLOWEST_S = 15.0
"""A request that was delayed for longer launches nothing, because its caller no longer waits."""
KEPT_S = 7 * 86_400
TEMPORARY = "/tmp"
LOG_BYTES = 64 * 1024
BEAT_S, PACE_S = 15.0, 5.0
_INHERITED = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
_PDEATHSIG, _SUBREAPER, _NAME = 1, 36, 15

Json = dict[str, Any]


def now_s() -> float:
    """Seconds since the host started, including suspended time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


_STARTED_S = now_s()


def main(text: str) -> None:
    """Answer one request (JSON) with one line on the standard output."""
    try:
        answer = answered(json.loads(text))
    except Refused as error:
        answer = {"error": error.kind, "message": str(error)}
    except ProviderError as error:
        answer = {"error": "failed", "message": f"{error} ({error.hint})"}
    except OSError as error:
        answer = {"error": "disk" if error.errno in _NO_SPACE else "failed", "message": str(error)}
    sys.stdout.write(f"\n{ANSWER}{json.dumps(answer)}\n")
    sys.stdout.flush()


_NO_SPACE = (28, 122)  # ENOSPC, EDQUOT


def answered(request: Json) -> Json:
    """The answer to a request: its operation with its arguments. Raises Refused, ProviderError, OSError."""
    os.umask(0o077)
    host = OnHost(Path(os.path.expanduser(request["folder"])))
    operations = {"look": host.look, "launch": host.launch, "report": host.report, "renew": host.renew, "end": host.end}
    host.folder.mkdir(parents=True, exist_ok=True)
    with turn(host.folder / "lock"):
        host.bring_up_to_date()
        return operations[request["operation"]](request)


class OnHost:
    """The machines of one user of this host, kept in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # --- requests ---

    def look(self, request: Json) -> Json:
        """The facts of the host, and whether it knows a launch token. Raises Refused."""
        if not os.access(TEMPORARY, os.W_OK | os.X_OK):
            raise Refused("temporary", f"{TEMPORARY} is read-only, or not writable for this user")
        return {
            "python": platform.python_version(),
            "architecture": platform.machine(),
            "bash": shutil.which("bash") is not None,
            "free_bytes": shutil.disk_usage(self.folder).free,
            "wall_ms": time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000_000,
            "gpus": found_gpus() if request.get("gpus") else None,
            "free_slots": len(free_slots(request["slots"])),
            "known": self._launched(request["token"], request["install"]) if request.get("token") else [],
        }

    def launch(self, request: Json) -> Json:
        """Start a machine for each of `ids`, all or none, unless their token is known."""
        owner = request["tags"].get(INSTALL, "")
        if known := self._launched(request["token"], owner):
            if {each["fingerprint"] for each in known} != {request["fingerprint"]}:
                raise Refused("conflict", "the token was used for another request")
            return {"machines": known}
        self._forget_old()
        if shutil.which("bash") is None:
            raise Refused("bash", "bash is not installed")
        if (free := shutil.disk_usage(self.folder).free) < request["least_free_bytes"]:
            raise Refused("disk", f"{free / 1e9:.1f} GB are free")
        slots = take_slots(request["slots"], len(request["ids"]))
        try:
            if now_s() - _STARTED_S > SLOWEST_S:
                raise Refused("late", "the request was delayed")
            homes = []
            try:
                for slot, machine_id in zip(slots, request["ids"], strict=True):
                    homes.append(self._home(machine_id))
                    self._record(homes[-1], request, slot)
                for slot, home in zip(slots, homes, strict=True):
                    _supervise(home, slots[slot])
            except BaseException:
                for home in homes:
                    _finish(home, "failed", now_s())
                    shutil.rmtree(home, ignore_errors=True)
                raise
        finally:
            for lock in slots.values():
                os.close(lock)
        return {"machines": self._launched(request["token"], owner)}

    def report(self, request: Json) -> Json:
        """Machines by `ids` or `token`, or the living ones with the tag `install`."""
        if "token" in request:
            return {"machines": self._of_token(request["token"])}
        if "ids" in request:
            return {"machines": [self._row(home) for home in map(self._home, request["ids"]) if _is_one(home)]}
        found = [self._row(home) for home in self._homes() if not _has_ended(home)]
        return {"machines": [each for each in found if each["tags"].get(INSTALL) == request["install"]]}

    def renew(self, request: Json) -> Json:
        """Let the living machines among `ids` end by themselves after `time_to_live_s`."""
        for home in map(self._home, request["ids"]):
            if _is_one(home) and not (home / "ending").exists():
                _replace(home / "deadline", repr(now_s() + request["time_to_live_s"]))
        return {}

    def end(self, request: Json) -> Json:
        """End machines by `ids`; `forget`: also delete their records, as if they had never been launched."""
        for home in map(self._home, request["ids"]):
            if _is_one(home):
                _finish(home, "user", now_s())
                if request.get("forget"):
                    shutil.rmtree(home)
        return {}

    # --- records ---

    def bring_up_to_date(self) -> None:
        """Complete the ends of machines that have ended without their supervisor. If this fails for one machine (on a
        full disk), the next request tries again; the others are not affected."""
        for home in self.folder.glob("machines/*"):
            with suppress(OSError, ProviderError):
                if not _is_one(home):  # an interrupted launch, or a record lost in a power failure
                    kill_all(home.name, None)
                    shutil.rmtree(home)
                elif not _has_ended(home):
                    self._bring_up_to_date(home)

    def _bring_up_to_date(self, home: Path) -> None:
        if (home / "ending").exists():
            _complete(home)
        elif _read(home / "record.json")["boot_id"] != boot_id():
            _finish(home, "failed", float(_text(home / "beat") or _read(home / "record.json")["accepted_s"]))
        elif now_s() >= (due_s := _deadline(home)):
            _finish(home, "expired", due_s)
        elif (supervisor := _supervisor(home)) is None or not is_alive(supervisor):
            _finish(home, "failed", now_s())

    def _record(self, home: Path, request: Json, slot: int) -> None:
        (home / "files").mkdir(parents=True)
        (home / "user_data").write_text(request["user_data"], encoding="utf-8")
        accepted_s = now_s()
        if (time_to_live_s := request["time_to_live_s"]) is not None:
            _replace(home / "deadline", repr(accepted_s + time_to_live_s))
        kept = {name: request[name] for name in ("token", "fingerprint", "offer_id", "tags", "accepted_ms")}
        kept |= {"id": home.name, "slot": slot, "environment": request["environment"][str(slot)]}
        record = json.dumps({**kept, "boot_id": boot_id(), "accepted_s": accepted_s})
        _replace(home / "record.json", record, durable=True)

    def _row(self, home: Path) -> Json:
        record = _read(home / "record.json")
        row = {name: record[name] for name in ("id", "token", "fingerprint", "offer_id", "tags", "accepted_ms")}
        ending = _read(home / "ending") if (home / "ending").exists() else {}
        row["state"] = "terminated" if _has_ended(home) else "stopping" if ending else "running"
        row["reason"] = ending.get("reason")
        row["lasted_ms"] = round(max(0.0, ending["at_s"] - record["accepted_s"]) * 1000) if ending else None
        return row

    def _of_token(self, token: str) -> list[Json]:
        return [row for home in self._homes() if (row := self._row(home))["token"] == token]

    def _launched(self, token: str, install: str) -> list[Json]:
        return [each for each in self._of_token(token) if each["tags"].get(INSTALL, "") == install]

    def _homes(self) -> list[Path]:
        return [home for home in sorted(self.folder.glob("machines/*")) if _is_one(home)]

    def _home(self, machine_id: str) -> Path:
        if not machine_id or "/" in machine_id or machine_id.startswith("."):
            raise Refused("failed", f"{machine_id!r} is not the id of a machine")
        return self.folder / "machines" / machine_id

    def _forget_old(self) -> None:
        for home in self._homes():
            if _has_ended(home) and _age_s(home / "ended") > KEPT_S:
                shutil.rmtree(home, ignore_errors=True)


# --- the life of one machine ---


def _supervise(home: Path, lock: int) -> None:
    """Start the supervisor, which is not a child of this process and keeps `lock` (of the slot) open. It is running
    when this returns. Raises Refused."""
    ready, reporting = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(ready)
            os.setsid()
            if os.fork() == 0:
                _detach(keep=(lock, reporting))
                _watch(home, reporting, lock)
        finally:
            os._exit(0)
    os.close(reporting)
    os.waitpid(child, 0)
    with os.fdopen(ready, encoding="utf-8") as answer:
        if (text := answer.read()) != "ready":
            raise Refused("failed", text or "the machine's first process did not start")


def _detach(keep: Sequence[int]) -> None:
    """Leave the connection that started this process."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    kept = (0, 1, 2, *keep)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor not in kept:
            with suppress(OSError):
                os.close(descriptor)
    os.chdir("/")


def _watch(home: Path, reporting: int, lock: int) -> None:
    """The supervisor: run the user data until the last process has ended or the time to live has run out."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    library = ctypes.CDLL(None)
    library.prctl(_SUBREAPER, 1, 0, 0, 0)
    library.prctl(_NAME, b"tradewind", 0, 0, 0)
    mark = mark_of(home.name)
    resource.setrlimit(resource.RLIMIT_RTTIME, (mark, mark))
    try:
        _replace(home / "supervisor", f"{boot_id()} {Path('/proc/self/stat').read_text()}")
        _beat(home, lock)
        _start(home, library)
    except BaseException as error:
        os.write(reporting, str(error).encode())
        raise
    os.write(reporting, b"ready")
    os.close(reporting)
    beaten_s = now_s()
    while _has_children():
        left_s = _deadline(home) - now_s()
        if left_s <= 0:
            _finish(home, "expired", _deadline(home))
            return
        if now_s() - beaten_s >= BEAT_S:
            _beat(home, lock)
            beaten_s = now_s()
        signal.sigtimedwait({signal.SIGCHLD}, min(left_s, PACE_S))
    _finish(home, "failed", now_s())


def _start(home: Path, library: ctypes.CDLL) -> None:
    record = _read(home / "record.json")
    environment = {name: value for name, value in os.environ.items() if name in _INHERITED}
    environment |= {ID_VARIABLE: home.name, "TRADEWIND_INSTANCE_DIR": str(home / "files"), **record["environment"]}
    environment["TMPDIR"] = str(_temporary(home))
    _temporary(home).mkdir(mode=0o700)
    # While this process has the folder locked, cleaners of /tmp do not delete old files in it (tmpfiles.d).
    fcntl.flock(os.open(_temporary(home), os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_SH)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        library.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # if the supervisor is killed

    with (home / "output.log").open("ab") as log:
        subprocess.Popen(
            ["bash", str(home / "user_data")],
            cwd=home / "files",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 - the supervisor has one thread
        )


def _has_children() -> bool:
    """Collect the children that have ended; returns whether any are left."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return False
    return True


def _finish(home: Path, reason: str, at_s: float) -> None:
    """End a machine unless it has ended. The first caller decides the reason and the time."""
    if _has_ended(home):
        return
    ending = json.dumps({"reason": reason, "at_s": at_s})
    try:
        _note_ending(home, ending)
    except OSError:  # its processes may have filled the disk: remove them and their files first
        _clear(home)
        _note_ending(home, ending)
    _complete(home)


def _note_ending(home: Path, ending: str) -> None:
    partial = home / f".ending.{os.getpid()}"
    try:
        _write_durably(partial, ending)
        with suppress(FileExistsError):
            os.link(partial, home / "ending")
    finally:
        partial.unlink(missing_ok=True)


def _complete(home: Path) -> None:
    """Complete the end of an ending machine. Raises ProviderError, OSError."""
    _clear(home)
    (home / "ended").touch()


def _clear(home: Path) -> None:
    """Kill every process of a machine, and keep only its record. Raises ProviderError."""
    shared = _shared(home)
    kill_all(home.name, None)
    shared_memory.remove(shared)
    (home / "shared").unlink(missing_ok=True)
    for folder in (home / "files", _temporary(home)):
        shutil.rmtree(folder, ignore_errors=True)
    (home / "user_data").unlink(missing_ok=True)
    with suppress(OSError), (home / "output.log").open("r+b") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES))
        last = log.read()
        log.seek(0)
        log.write(last)
        log.truncate()


def _shared(home: Path) -> set[str]:
    """The names of the files in shared memory that its processes have now or had at an earlier look."""
    noted = set(_text(home / "shared").split("\0")) - {""}
    found = noted | shared_memory.used_by(process.pid for process in living({home.name: None}))
    if found != noted:
        with suppress(OSError, UnicodeError):  # a full disk must not keep a machine from ending
            _replace(home / "shared", "\0".join(sorted(found)))
    return found


def _temporary(home: Path) -> Path:
    """The machine's folder for temporary files. Its path is short: Ray has sockets in it."""
    return Path(TEMPORARY, f"tw-{blake2b(str(home).encode(), digest_size=4).hexdigest()}")


def _supervisor(home: Path) -> Leader | None:
    boot, _, stat = _text(home / "supervisor").partition(" ")
    if not stat:
        return None
    process = parse(stat)
    return Leader(process.pid, process.start_ticks, boot)


def _deadline(home: Path) -> float:
    return float(_text(home / "deadline") or "inf")


def _beat(home: Path, lock: int) -> None:
    """Show that the machine is alive. Also touches the slot's file, so that cleaners of /var/tmp do not delete it."""
    with suppress(OSError):  # a full disk must not end a machine
        os.utime(lock)
        _replace(home / "beat", repr(now_s()))
        _shared(home)


# --- facts and files ---


def found_gpus() -> Json:
    """The names of this host's NVIDIA GPUs as nvidia-smi reports them, or why there are none."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except FileNotFoundError:
        return {"names": [], "why": "nvidia-smi is not installed"}
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"names": [], "why": f"nvidia-smi failed: {error}"}
    if done.returncode != 0:
        return {"names": [], "why": f"nvidia-smi failed: {(done.stdout + done.stderr).strip()[:200]}"}
    return {"names": [line.strip() for line in done.stdout.splitlines() if line.strip()], "why": ""}


def _is_one(home: Path) -> bool:
    try:
        return bool(_read(home / "record.json"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def _has_ended(home: Path) -> bool:
    return (home / "ended").exists()


def _age_s(path: Path) -> float:
    return time.clock_gettime(time.CLOCK_REALTIME) - path.stat().st_mtime


def _read(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _replace(path: Path, text: str, *, durable: bool = False) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if durable:
            _write_durably(partial, text)
        else:
            partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def _write_durably(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
