"""The environment and the files of this host's site: what head, nodes and bridge must agree on.

A site is one Ray cluster. Its folder holds `token` (0600; every process of the site authenticates with it),
`head.json` (address and process of the head) and `head.lock` (held by the head for as long as it lives). Head and nodes
are sessions, and are ended as `local` ends its machines.
"""

from __future__ import annotations

import fcntl
import os
import secrets
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
NODE_RESOURCE = "tradewind-node-"  # + launch token: the resource label by which a node is found again


@dataclass(frozen=True, slots=True)
class Head:
    """A head process that came up: where its GCS listens, and the process to watch."""

    gcs_address: str
    pid: int
    pid_start: int
    boot_id: str  # the numbers mean something in this boot only


@dataclass(frozen=True, slots=True)
class Request:
    """A line to the bridge: one of its operations, with its arguments."""

    op: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """A line from the bridge, the first of them without being asked: it is attached. `error`: what was refused, why."""

    ok: Mapping[str, Any] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SiteFiles:
    """`folder` belongs to the site; `temp_dir` is Ray's (short: its sockets must fit in 107 bytes)."""

    folder: Path
    temp_dir: Path

    @property
    def token_path(self) -> Path:
        return self.folder / "token"

    @property
    def head_path(self) -> Path:
        return self.folder / "head.json"

    def prepare(self) -> None:
        """Make the folders and the token, once; whoever sees the token sees all of it. Raises OSError, StoreError."""
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
        """Become the only head of this site, until this process ends. None if another process is it."""
        lock = os.open(self.folder / "head.lock", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def write_head(self, head: Head) -> None:
        partial = self.head_path.with_suffix(f".{os.getpid()}.tmp")
        write_privately(partial, dumps(head))
        partial.replace(self.head_path)

    def read_head(self) -> Head | None:
        """The head that was written last, dead or alive; None when there never was one or the file is damaged."""
        try:
            return loads(Head, self.head_path.read_bytes())
        except (OSError, CodecError):
            return None


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """What the file system refuses in this block is a SiteError: it is tried again."""
    try:
        yield
    except OSError as error:
        hint = "free some space, or give its owner the rights"
        raise SiteError(f"{folder} cannot be written: {error}", hint=hint) from error


def ray_environment(files: SiteFiles) -> dict[str, str]:
    """What every process of the site has in its environment.

    Ray gives each worker a process group and cleans up groups itself; instances are sessions that their provider ends,
    so that clean-up is off. The health check is tuned for one host: a dead raylet shows within 2 s instead of 14.
    Ray's own byte-code must be cached: recompiling it costs seconds at each start.
    """
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(files.token_path),
        "RAY_process_group_cleanup_enabled": "0",
        "RAY_health_check_initial_delay_ms": "1000",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_timeout_ms": "1000",
        "RAY_health_check_failure_threshold": "4",
        # everything of this site listens on the loopback interface only; without this Ray looks for an outer address
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_worker_niceness": "0",  # Ray's own, 15, would let an actor wait for everything else on a busy host
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "PYTHONDONTWRITEBYTECODE": "",
    }


def alive(head: Head) -> bool:
    """Whether this very head process still runs."""
    return head.boot_id == boot_id() and process_start(head.pid) == head.pid_start


def end_session(session: int) -> None:
    """SIGKILL every process of a session but this one, whatever process group it is in, until none is left.

    Raises SiteError naming those that do not die.
    """
    try:
        process.kill_session(session)
    except ProviderError as error:
        raise SiteError(str(error), hint=error.hint) from error


def end_head(head: Head) -> None:
    """End a head and what it started, also when it died itself and left that behind. Idempotent."""
    # the kernel reuses no number of a session that has members: a pid of another start has taken over an empty one
    if head.boot_id == boot_id() and process_start(head.pid) in (None, head.pid_start):
        end_session(head.pid)
