"""The machines of `local` as processes: starts each as a session. providers.processes finds and ends them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from providers.errors import UnavailableError
from providers.local.metadata import replace_file, write_notice
from providers.processes import ID_VARIABLE, Leader, mark_of, parse

_LIMIT_VARIABLE = "TRADEWIND_INSTANCE_LIMIT"
SWITCH = "switch"
"""A script in the instance's folder that runs next to its user data (providers.local.switch)."""
_CLAIM = "claim"
_INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR"),
    *("VIRTUAL_ENV", "LD_LIBRARY_PATH"),
)
_STORE_ACCESS = ("AWS_", "AZURE_", "GOOGLE_")
"""What a machine's agent needs to reach a bucket. It reads these variables from a pipe, because the job's program can
read what the machine's processes were started with."""
_ACCESS_VARIABLE, _ACCESS_FD = "TRADEWIND_ACCESS_FD", 3
_SIGNALS_TO_RESET = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
)

# The umask keeps an instance's files private to their owner, whatever umask its launcher inherited.
# The claim file is created only if absent (noclobber is O_EXCL): of all launchers of an instance exactly one
# continues, and none once the provider has created the claim itself to prevent a start.
_LAUNCHER = """
umask 077
cd "$TRADEWIND_INSTANCE_DIR" || exit 1
ulimit -R "$TRADEWIND_INSTANCE_LIMIT"
read -r boot < /proc/sys/kernel/random/boot_id
read -r stat < /proc/$$/stat
set -o noclobber
{ echo "$boot $stat" > claim; } 2> /dev/null || exit 0
[ ! -f switch ] || (bash switch > /dev/null 3<&- &)
exec bash user_data
"""


def start(instance_id: str, folder: Path, user_data: str) -> int:
    """Start `bash user_data` as a session in `folder` unless it was claimed before; returns the pid of a child to reap.

    Raises UnavailableError if the folder cannot be written or no process can be started.
    """
    environment = {name: value for name, value in os.environ.items() if name in _INHERITED}
    environment |= {
        ID_VARIABLE: instance_id,
        _LIMIT_VARIABLE: str(mark_of(instance_id)),
        "TRADEWIND_INSTANCE_DIR": str(folder),
        "TRADEWIND_METADATA": str(folder / "metadata.json"),
        "RAY_process_group_cleanup_enabled": "0",
    }
    log = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (folder / "metadata.json").exists():
            write_notice(folder / "metadata.json", None)
        replace_file(folder / "user_data", user_data)
        access = _access()
    except OSError as error:
        raise _not_started(instance_id, folder, error) from error
    try:
        return os.posix_spawnp(
            "bash",
            ["bash", "-c", _LAUNCHER],
            {**environment, _ACCESS_VARIABLE: str(_ACCESS_FD)},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, access, _ACCESS_FD),
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(folder / "output.log"), log, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=_SIGNALS_TO_RESET,
        )
    except OSError as error:
        raise _not_started(instance_id, folder, error) from error
    finally:
        os.close(access)


def _access() -> int:
    """The reading end of a pipe with this process's access to stores. Raises OSError."""
    pairs = [f"{name}={value}\0" for name, value in os.environ.items() if name.startswith(_STORE_ACCESS)]
    reader, writer = os.pipe()
    try:
        os.set_blocking(writer, False)
        os.write(writer, "".join(pairs).encode())
    except OSError:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return reader


def _not_started(instance_id: str, folder: Path, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"the machine {instance_id} could not be started: {error}",
        hint=f"check that bash is installed and that {folder} can be written, then try again",
    )


def was_started(folder: Path) -> bool:
    """True if a launcher (or `prevent_start`) has claimed this instance."""
    return (folder / _CLAIM).exists()


def claimed_by(folder: Path, claim: str = _CLAIM) -> Leader | None:
    """The first process of the instance according to the file `claim`; None if the file is missing or incomplete.

    Raises UnavailableError if the file cannot be read.
    """
    try:
        boot, _, stat = (folder / claim).read_text().partition(" ")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnavailableError(
            f"{folder} cannot be read: {error}", hint="give its owner read and write permission"
        ) from error
    if not stat.endswith("\n"):
        return None
    process = parse(stat)
    return Leader(process.pid, process.start_ticks, boot)


def prevent_start(folder: Path) -> None:
    """Stop any launcher of this instance from starting it from now on; `living` finds one that started before."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / _CLAIM).touch(exist_ok=True)
