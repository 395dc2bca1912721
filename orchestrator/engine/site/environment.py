"""Environment: the environment and files that the head, nodes and bridge of this host's site share.

A site is one Ray cluster. Its folder has `token` (0600; every process of the site authenticates with it), `head.json`
(address and process of the head) and `head.lock` (held by the head while it lives). Head and nodes are sessions, and
are ended as `local` ends its machines.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config.private import private_folder, write_privately
from orchestrator.errors import SiteError
from orchestrator.formats.codec import CodecError, dumps, loads
from providers.clock import boot_id
from providers.errors import ProviderError
from providers.local import process
from providers.procfs import process_start

NAMESPACE = "tradewind"
END_IF_UNUSED = signal.SIGUSR1  # to the head
NODE_RESOURCE = "tradewind-node-"  # + launch token: the resource label that identifies a node


@dataclass(frozen=True, slots=True)
class Head:
    """A started head: the address of its GCS, and its process."""

    gcs_address: str
    pid: int
    pid_start: int
    boot_id: str  # the process numbers are only valid in this boot


@dataclass(frozen=True, slots=True)
class Request:
    """A line to the bridge: one of its operations, with its arguments."""

    op: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """A line from the bridge. The first one, without a request, means that it is attached. `error`: what was refused,
    and why."""

    ok: Mapping[str, Any] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SiteFiles:
    """The site's `folder` and Ray's `temp_dir` (short: socket paths in it must fit in 107 bytes)."""

    folder: Path
    temp_dir: Path

    @property
    def token_path(self) -> Path:
        """The file with the site's token."""
        return self.folder / "token"

    @property
    def head_path(self) -> Path:
        """The file that describes the head."""
        return self.folder / "head.json"

    def prepare(self) -> None:
        """Create the folders and, atomically, the token, unless they exist. Raises OSError, StoreError."""
        private_folder(self.folder)
        private_folder(self.temp_dir)
        if self.token_path.exists():
            return
        partial = self.token_path.with_suffix(f".{os.getpid()}.tmp")
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        with suppress(FileExistsError):  # another process was faster
            os.link(partial, self.token_path)
        partial.unlink()

    def claim_head(self) -> int | None:
        """Become the site's only head until this process ends. Returns the lock, or None if there is another head."""
        lock = os.open(self.folder / "head.lock", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def write_head(self, head: Head) -> None:
        """Write head.json atomically. Raises OSError."""
        partial = self.head_path.with_suffix(f".{os.getpid()}.tmp")
        write_privately(partial, dumps(head))
        partial.replace(self.head_path)

    def read_head(self) -> Head | None:
        """The head written last, dead or alive; None if there was none or the file is damaged."""
        try:
            return loads(Head, self.head_path.read_bytes())
        except (OSError, CodecError):
            return None


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn an OSError in this block into a SiteError, which is retried."""
    try:
        yield
    except OSError as error:
        hint = "free some space, or give its owner write permission"
        raise SiteError(f"{folder} cannot be written: {error}", hint=hint) from error


def ray_environment(files: SiteFiles) -> dict[str, str]:
    """The environment variables of every process of the site.

    Ray gives each worker a process group and cleans up groups itself; machines are sessions that their provider ends,
    so that clean-up is off. The health check is tuned for one host: a dead raylet is noticed within 2 s instead of 14.
    Ray's byte-code must be cached: recompiling it costs seconds at each start.
    """
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(files.token_path),
        "RAY_process_group_cleanup_enabled": "0",
        "RAY_health_check_initial_delay_ms": "1000",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_timeout_ms": "1000",
        "RAY_health_check_failure_threshold": "4",
        # this site only listens on the loopback interface; without this Ray looks for an external address
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_worker_niceness": "0",  # Ray's default, 15, would make actors wait for everything else on a busy host
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "PYTHONDONTWRITEBYTECODE": "",
    }


def alive(head: Head) -> bool:
    """Whether this head process is still running."""
    return head.boot_id == boot_id() and process_start(head.pid) == head.pid_start


def end_session(session: int) -> None:
    """Kill every process of a session except this one, in any process group, until none is left.

    Raises SiteError with those that do not die.
    """
    try:
        process.kill_session(session)
    except ProviderError as error:
        raise SiteError(str(error), hint=error.hint) from error


def ask_to_end(head: Head) -> None:
    """Ask a head to end unless a node is joined. Does not wait for it; no other process can be meant."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(head.pid)
        try:
            if alive(head):
                signal.pidfd_send_signal(handle, END_IF_UNUSED)
        finally:
            os.close(handle)


def end_head(head: Head) -> None:
    """End a head and everything it started, even if the head itself has died. Idempotent."""
    # the kernel does not reuse the id of a session with members: another start time means that it was empty
    if head.boot_id == boot_id() and process_start(head.pid) in (None, head.pid_start):
        end_session(head.pid)
