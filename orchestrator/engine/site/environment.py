"""The environment and the files of this host's site: what head, nodes and bridge must agree on.

A site is one Ray cluster. Its folder holds `token` (0600; every process of the site authenticates with it) and
`head.json` (address and process of the head). Must not know: jobs, the store, providers.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

NAMESPACE = "tradewind"
NODE_RESOURCE = "tradewind-node-"  # + launch token: the resource label by which a node is found again


@dataclass(frozen=True, slots=True)
class Head:
    """A head process that came up: where its GCS listens, and the process to watch."""

    gcs_address: str
    pid: int
    pid_start: int


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
        """Make the folder and the token, once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.temp_dir.mkdir(parents=True, exist_ok=True)
        try:
            fd = os.open(self.token_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_hex(32))

    def write_head(self, head: Head) -> None:
        partial = self.head_path.with_suffix(f".{os.getpid()}.tmp")
        partial.write_text(json.dumps(asdict(head)))
        partial.replace(self.head_path)

    def read_head(self) -> Head | None:
        """The head that was written last, dead or alive; None when there never was one or the file is damaged."""
        try:
            return Head(**json.loads(self.head_path.read_text()))
        except (OSError, ValueError, TypeError):
            return None


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
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "PYTHONDONTWRITEBYTECODE": "",
    }


def process_start(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot (tells a reused pid); None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def alive(head: Head) -> bool:
    """Whether this very head process still runs."""
    return process_start(head.pid) == head.pid_start
