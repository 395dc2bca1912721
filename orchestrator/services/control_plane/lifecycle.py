"""Starts and stops this host's control plane, for the command line and the SDK.

`up` is idempotent. `down` pauses every job with a checkpoint, stops the control plane and all machines, and leaves no
process behind.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from orchestrator.config import SETTINGS, Config
from orchestrator.config.private import append_privately
from orchestrator.engine.direct_calls import Within
from orchestrator.engine.inputs.snapshot import left_out
from orchestrator.engine.jobs.stopped_at import has_stepped
from orchestrator.engine.machines import claims
from orchestrator.engine.machines.shut_down import shut_down
from orchestrator.engine.node_runtime import require_ray
from orchestrator.errors import (
    NotLeaderError,
    ProviderFailure,
    SiteError,
    StoreError,
    SupersededError,
    TradewindError,
    UsageError,
)
from orchestrator.installation import Installation, open_installation
from orchestrator.model import TERMINAL
from orchestrator.nodes.cluster import remove_left
from orchestrator.services.checkpoints.elsewhere import elsewhere
from orchestrator.services.control_plane import background_log, presence, project_limits
from orchestrator.services.control_plane.presence import BACKGROUND, DOWN, may_act
from orchestrator.services.control_plane.views import IS_COPY, use_original
from orchestrator.services.jobs.commands import OWN_STATE
from orchestrator.store import LeaderInfo, Leadership
from orchestrator.store.leadership.leader import TAKEOVER_S
from providers.errors import ProviderError
from providers.procfs import process_start, process_stopped

MOST_NAMED = 8  # jobs, in one line
UP_TIMEOUT_S = 60.0
START_TURN_TIMEOUT_S = 2 * UP_TIMEOUT_S
PAUSE_TIMEOUT_S = 60.0
TERM_TIMEOUT_S = 15.0
OTHER_DOWN_TIMEOUT_S = 60.0
_OF_CONTROL_PLANE = ("AWS_", "AZURE_", "GOOGLE_", "PG", "TRADEWIND_")
"""Prefixes of environment variables that are settings or give access to clouds and databases."""

SUCCESSOR_S = 1.0  # long enough for three attempts of a standby to take over


def control_plane(installation: Installation) -> LeaderInfo | None:
    """The leading control plane, or None. A control plane on another machine, in another container or from another boot
    is watched for some seconds. Raises SupersededError if this store is a copy of the one that it serves."""
    leader = installation.store.leader(watch=True)
    if leader is None or not may_act(leader):
        return None
    if leader.serves is not None:
        raise SupersededError(IS_COPY.format(leader.serves), hint=use_original(leader.serves))
    return leader


def up(config: Config, *, progress: Callable[[str], None], warn: Callable[[str, str], None]) -> LeaderInfo:
    """Starts this host's control plane in the background, unless it runs. `warn` is called with each problem that does
    not prevent this, and the remedy. Raises SiteError, MissingExtraError; SupersededError if this store is a copy and
    the original was used after it was copied."""
    installation = open_installation(config, starts=True)
    try:
        claims.check(installation, Within())  # first: a copied store names the original's control plane
        return started_once(installation, lambda: _start(installation, progress, warn), progress=progress)
    finally:
        installation.close()


def started_once(
    installation: Installation, start: Callable[[], LeaderInfo], *, progress: Callable[[str], None] = lambda _: None
) -> LeaderInfo:
    """The leading control plane, started by `start` if there is none. If several processes on this host call it at
    once, one of them starts it and the others wait. Raises SiteError, also if the running control plane cannot attend
    to jobs."""
    running = control_plane(installation)
    if running is None:
        with _turn_to_start(installation.state_dir / "up.lock", progress):
            running = control_plane(installation)
            if running is None:
                return start()
    if unattended := presence.control_plane(installation).unattended:
        why, remedy = unattended
        raise SiteError(why, hint=f"to continue: {remedy}")
    progress(f"the control plane is already running (process {running.pid})")
    return running


@contextmanager
def _turn_to_start(path: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """A lock for starting a control plane; it is released when its holder dies. Raises SiteError."""
    deadline = time.monotonic() + START_TURN_TIMEOUT_S
    with append_privately(path) as file:
        waits = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise SiteError(
                        "another process on this host has been starting a control plane for too long",
                        hint=f"see {path.with_name('control-plane.log')}; then: tradewind up",
                    ) from error
            if not waits:
                progress("waiting for another process that is starting the control plane")
                waits = True
            time.sleep(0.05)
        yield


def _start(installation: Installation, progress: Callable[[str], None], warn: Callable[[str, str], None]) -> LeaderInfo:
    require_ray()  # the control plane would start without Ray, but jobs would not
    differences = project_limits.keep(installation)
    for found, remedy in (*differences.lost, *elsewhere(installation)):
        warn(found, remedy)
    for changed in differences.changed:
        progress(changed)
    progress("starting the control plane")
    return start_in_background(installation, environment_to_keep(installation))


def start_in_background(installation: Installation, environment: Mapping[str, str]) -> LeaderInfo:
    """Starts the control plane as a background process and waits until it leads. Raises SiteError with its last log
    line if it does not."""
    log_path = background_log.path_of(installation.config)
    with append_privately(log_path) as log:
        begin_bytes = log.tell()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "orchestrator.daemon", BACKGROUND],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**environment, **environment_of(installation.config)},
        )
    deadline = time.monotonic() + UP_TIMEOUT_S
    while time.monotonic() < deadline:
        running = control_plane(installation)
        if running is not None:
            return running
        if process.poll() is not None:
            break
        time.sleep(0.05)
    why = background_log.last_words(log_path, begin_bytes)
    raise SiteError(f"the control plane did not start{f': {why}' if why else ''}", hint=f"see its log: {log_path}")


def environment_to_keep(installation: Installation, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment for background processes, without the secrets of jobs that have not ended. Variables that the
    control plane itself reads are kept. Raises StoreError."""
    with installation.store.read() as tx:
        jobs = tx.outlines(ended=False)  # jobs with an unreadable job file name no secrets, and are never started
    named = {name for job in jobs for name in job.spec.train.secrets}
    return {
        name: value for name, value in environment.items() if name not in named or name.startswith(_OF_CONTROL_PLANE)
    }


def down(config: Config, *, progress: Callable[[str], None], force: bool = False, keep_jobs: bool = False) -> bool:
    """Stops the control plane and, unless `keep_jobs`, all jobs and machines. Returns whether a control plane was
    stopped.

    Unless `force`, jobs are first paused with a checkpoint. Costs of machines until now are booked. While it ends and
    books machines this process is the leader of the store, so that no control plane rents or books at the same time; if
    one takes over anyway, it is stopped, too, and `down` starts again. Raises UsageError if the control plane runs
    elsewhere or another `down` is running; ProviderFailure if a provider does not respond; SupersededError, with
    nothing stopped, if this store is a copy and the original was used after it was copied; StoreError, which names what
    was not stopped, if the store cannot be read or written, for example on a full disk.
    """
    try:
        installation = open_installation(config)
    except (StoreError, ProviderFailure) as error:
        _add(error, "nothing was stopped, and machines may still run")
        raise
    running, ended = None, False
    try:
        claims.check(installation, Within())  # as in `up`: a copied store names the original's process
        running = _of_this_host(control_plane(installation))
        if running is not None and process_stopped(running.pid):
            progress(f"continuing the suspended control plane (process {running.pid}), so that it can end")
            os.kill(running.pid, signal.SIGCONT)
        if running is not None and not force and not keep_jobs:
            _pause_all(installation, progress)
        refused: list[ProviderError] | None = []
        while True:
            if running is not None:
                ended = True
                progress(f"ending the control plane (process {running.pid})")
                _end_process(running.pid)
            if not keep_jobs:
                refused = _end_machines(installation, progress)
            running = _of_this_host(_successor(installation))
            if running is None and refused is not None:
                break
        if not keep_jobs:
            remove_left(config.site.temp_dir)
        if refused:
            raise ProviderFailure(
                f"machines may still run: {'; '.join(map(str, refused))}",
                hint="run `tradewind down` again, or `tradewind up`: the control plane ends them as soon as possible",
            )
        return ended
    except SupersededError:
        raise
    except StoreError as error:
        _add(error, _left(installation, running, ended=ended))
        raise
    finally:
        installation.close()


def _add(error: TradewindError, left: str) -> None:
    """Add to the error what was not stopped, and the command that stops it."""
    error.args = (f"{error}; {left}",)
    error.hint = "; ".join(filter(None, (error.hint, "then run `tradewind down` again")))


def _left(installation: Installation, running: LeaderInfo | None, *, ended: bool) -> str:
    """What was and was not stopped, according to the providers' lists of machines."""
    parts = ["the control plane was ended"] if ended else []
    if running is not None and not ended:
        parts.append(f"the control plane (process {running.pid}) was not ended")
    alive, ask = list[str](), Within()
    for provider in installation.providers.values():
        try:
            owned = ask(provider.name, partial(provider.list_owned, installation.store.install_id))
            alive += [each.id for each in owned if each.alive]
        except ProviderError:
            parts.append(f"machines at {provider.name} may still run")
    parts.append(
        f"machines that still run: {_named(alive[:MOST_NAMED], len(alive))}"
        if alive
        else "no other machines run"
        if len(parts) > 1
        else "no machines run"
    )
    return ", ".join(parts)


def _of_this_host(leader: LeaderInfo | None) -> LeaderInfo | None:
    """Raises UsageError if the leader runs on another host or in another container, where its pid is not valid here."""
    if leader is not None and leader.alive is None:
        raise UsageError(
            f"the control plane {leader.holder} runs on {leader.host}, or in another container", hint="stop it there"
        )
    return leader


def _named(names: Sequence[str], count: int) -> str:
    """The first of `count` names, and how many more there are."""
    more = f" and {count - MOST_NAMED} more" if count > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _pause_all(installation: Installation, progress: Callable[[str], None]) -> None:
    with installation.store.write() as tx:
        jobs = [job for job in tx.outlines(ended=False) if job.state != "paused"]
        asked = [job.id for job in jobs]
        for job_id in asked:
            tx.add_command("pause", job_id, {}, "tradewind down")
        alive = {job.id: job.name for job in jobs if job.state not in ("queued", "starting")}
        runs = tx.runs_of(list(alive), left_out)
        unreported = [name for job_id, name in alive.items() if not has_stepped(runs[job_id])]
        shown = [tx.typed_name(job.id, job.name) for job in jobs[:MOST_NAMED]]
    if not asked:
        return
    if len(asked) == 1:
        progress(f"pausing 1 job, with a checkpoint if it runs (to resume it: tradewind resume {shown[0]})")
    else:
        progress(
            f"pausing {len(asked)} jobs, running ones with a checkpoint "
            f"(to resume them: tradewind resume JOB, for {_named(shown, len(jobs))})"
        )
    if unreported:
        progress(f"no steps were reported by {_named(unreported, len(unreported))}: {OWN_STATE}")
    deadline = time.monotonic() + PAUSE_TIMEOUT_S
    while time.monotonic() < deadline:
        with installation.store.read() as tx:
            if all(job.state in TERMINAL | {"paused"} for job in tx.outlines_of(asked)):
                return
        time.sleep(0.1)
    progress("not all jobs could be paused in time; they resume from their last checkpoint")


def _end_machines(installation: Installation, progress: Callable[[str], None]) -> list[ProviderError] | None:
    """Ends and books all machines, as the leader. Returns the providers' errors; None if a control plane leads or took
    over in the meantime."""
    leadership = _lead(installation)
    if leadership is None:
        return None
    try:
        with installation.store.pulse(leadership):
            return shut_down(installation, leadership, progress, Within())
    except NotLeaderError:
        progress("a control plane took over in the meantime")
        return None
    finally:
        installation.store.resign(leadership)


def _lead(installation: Installation) -> Leadership | None:
    """Becomes the leader of the store; None if a control plane leads. Raises UsageError if another `down` leads for too
    long."""
    holder = f"{DOWN}{socket.gethostname()}-{secrets.token_hex(3)}/{os.getpid()}"
    begun_s = time.monotonic()
    while (leadership := installation.store.campaign(holder)) is None:
        leader = installation.store.leader()
        waited_s = time.monotonic() - begun_s
        if leader is not None and leader.holder.startswith(DOWN):
            if waited_s > OTHER_DOWN_TIMEOUT_S:
                raise UsageError(
                    f"another `tradewind down` (process {leader.pid} on {leader.host}) is running",
                    hint="wait until it ends, or end that process",
                )
        elif leader is not None and (leader.alive or waited_s > 2 * TAKEOVER_S):
            return None
        time.sleep(0.05)
    return leadership


def _successor(installation: Installation) -> LeaderInfo | None:
    """The standby control plane that has taken over, if any; waits long enough for one to do so."""
    deadline = time.monotonic() + SUCCESSOR_S
    while (running := control_plane(installation)) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return running


def _end_process(pid: int) -> None:
    start = process_start(pid)
    if start is None:
        return
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + TERM_TIMEOUT_S
    while time.monotonic() < deadline and process_start(pid) == start:
        time.sleep(0.05)
    if process_start(pid) == start:
        os.kill(pid, signal.SIGKILL)


def environment_of(config: Config) -> dict[str, str]:
    """The settings that differ from the defaults, as environment variables for background processes."""
    variables = {}
    for name, setting in SETTINGS.items():
        if config.origins.get(name, "default") != "default":
            value: object = config
            for part in name.split("."):
                value = getattr(value, part)
            if isinstance(value, tuple):
                value = ",".join(value)
            variables[setting.variable] = str(value).lower() if isinstance(value, bool) else str(value)
    return variables
