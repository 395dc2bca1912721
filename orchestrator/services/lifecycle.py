"""Lifecycle: this host's control plane and site, started and ended from the command line or the SDK.

`up` is idempotent. `down` pauses every job with a checkpoint, ends the control plane, every local instance and the
site's head, and leaves no process behind. Must not know: decisions, migrations.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from orchestrator.config import SETTINGS, Config
from orchestrator.config.private import append_privately
from orchestrator.engine.accrue import settle_all
from orchestrator.engine.site.environment import alive
from orchestrator.engine.site.runtime import site_files, site_runtime
from orchestrator.engine.world import World, open_world
from orchestrator.errors import ProviderFailure, SiteError, UsageError
from orchestrator.model import TERMINAL
from orchestrator.store import LeaderInfo
from providers.errors import ProviderError
from providers.instance import Instance
from providers.procfs import process_start

UP_TIMEOUT_S = 60.0
PAUSE_TIMEOUT_S = 60.0
TERM_TIMEOUT_S = 15.0


def control_plane(world: World) -> LeaderInfo | None:
    """The control plane that leads now, None when none does. One of another machine, container or boot is watched for
    some seconds."""
    leader = world.store.leader(watch=True)
    return leader if leader is not None and leader.alive is not False else None


def up(config: Config, *, progress: Callable[[str], None]) -> LeaderInfo:
    """Start this host's site and control plane in the background, unless they run. Raises SiteError."""
    world = open_world(config, starts=True)
    try:
        running = control_plane(world)
        if running is not None:
            progress(f"the control plane runs already (process {running.pid})")
            return running
        runtime = site_runtime(world)
        progress("starting Ray's head on this host")
        runtime.ensure_head()
        runtime.close()
        progress("starting the control plane")
        log_path = config.state_dir / "control-plane.log"
        with append_privately(log_path) as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.daemon"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | _environment(config),
            )
        deadline = time.monotonic() + UP_TIMEOUT_S
        while time.monotonic() < deadline:
            running = control_plane(world)
            if running is not None:
                return running
            if process.poll() is not None:
                break
            time.sleep(0.05)
        raise SiteError("the control plane did not start", hint=f"the reason is in {log_path}")
    finally:
        world.close()


def down(config: Config, *, progress: Callable[[str], None], force: bool = False, keep_jobs: bool = False) -> None:
    """End the control plane and, unless `keep_jobs`, everything that runs here.

    Jobs are paused with a checkpoint first; with `force` they are not asked. What instances cost until now is booked.
    Raises UsageError when the control plane runs elsewhere, ProviderFailure when a provider does not answer.
    """
    world = open_world(config)
    try:
        running = _of_this_host(control_plane(world))
        if running is not None and not force and not keep_jobs:
            _pause_all(world, progress)
        refused: list[ProviderError] = []
        while True:
            if running is not None:
                progress(f"ending the control plane (process {running.pid})")
                _end_process(running.pid)
            if not keep_jobs:
                refused = _end_machines(world, progress)
            running = _of_this_host(control_plane(world))
            if running is None:  # else one that stood by has taken over meanwhile
                break
        if not keep_jobs:
            head = site_files(config).read_head()
            if head is not None and alive(head):
                progress("ending Ray's head")
            site_runtime(world).stop_head()
        if refused:
            raise ProviderFailure(
                f"machines may still run: {'; '.join(map(str, refused))}",
                hint="`tradewind down` again, or `tradewind up`: a control plane ends them as soon as it can",
            )
    finally:
        world.close()


def _of_this_host(leader: LeaderInfo | None) -> LeaderInfo | None:
    """Raises UsageError for one whose process is not ours to end: its number means something else here."""
    if leader is not None and leader.alive is None:
        raise UsageError(
            f"the control plane {leader.holder} runs on {leader.host}, or in another container", hint="end it there"
        )
    return leader


def _pause_all(world: World, progress: Callable[[str], None]) -> None:
    with world.store.write() as tx:
        jobs = [job for job in tx.jobs() if job.state not in TERMINAL and job.state != "paused"]
        for job in jobs:
            tx.add_command("pause", job.id, {}, "tradewind down")
    if not jobs:
        return
    progress(
        f"pausing {len(jobs)} job{'s' if len(jobs) > 1 else ''} with a checkpoint (resume with `tradewind resume`)"
    )
    deadline = time.monotonic() + PAUSE_TIMEOUT_S
    while time.monotonic() < deadline:
        with world.store.read() as tx:
            if all(tx.job(job.id).state in TERMINAL | {"paused"} for job in jobs):
                return
        time.sleep(0.1)
    progress("not all jobs could be paused in time: they keep their last checkpoint")


def _end_machines(world: World, progress: Callable[[str], None]) -> list[ProviderError]:
    """End all that is rented and book it. Returns what providers had against it."""
    refused = []
    for provider in world.providers.values():
        try:
            for instance in provider.list_owned(world.store.install_id):
                progress(f"ending instance {instance.id}")
                _adopt(world, instance)
                provider.terminate(instance.id)
        except ProviderError as error:
            refused.append(error)
    settle_all(world)
    return refused


def _adopt(world: World, instance: Instance) -> None:
    """A machine whose launch was not written down any more is booked on the run that its tag names."""
    with world.store.write() as tx:
        named = [run for run in tx.runs() if run.id == instance.tags.get("tradewind-run")]
        if named and named[0].instance_id is None:
            tx.update_run(named[0].id, instance_id=instance.id)


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


def _environment(config: Config) -> dict[str, str]:
    """The settings that are not defaults, as environment variables: the background process reads the same ones."""
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
