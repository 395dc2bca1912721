"""Daemon: the control plane as a process: `tradewind daemon run`, or started in the background by `tradewind up`.

It campaigns for the leadership of the store, acts while it leads, and otherwise stands by. SIGTERM and SIGINT end it
after the current step; runs continue without it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import secrets
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from random import SystemRandom
from types import FrameType

from orchestrator.config import Config, load_config
from orchestrator.config.private import PRIVATE_UMASK
from orchestrator.engine.calls import Calls, Threads
from orchestrator.engine.context import Context, Work
from orchestrator.engine.control import ControlPlane
from orchestrator.engine.jobs.checkpoints import FileCatalog
from orchestrator.engine.migration.move import waits
from orchestrator.engine.node_runtime import NodeRuntime, node_runtime
from orchestrator.engine.secret_values import SecretValues
from orchestrator.errors import (
    NotFoundError,
    NotLeaderError,
    SiteError,
    StoreError,
    StoreVersionError,
    SupersededError,
    TradewindError,
)
from orchestrator.installation import Installation, open_installation
from orchestrator.model import Step
from orchestrator.services.checkpoints.elsewhere import elsewhere
from orchestrator.services.control_plane import project_limits
from orchestrator.services.control_plane.background_log import ControlPlaneLog, path_of
from orchestrator.services.control_plane.presence import BACKGROUND, may_act
from orchestrator.services.prices.periodic import PeriodicPriceTasks
from orchestrator.services.secrets.file import kept_secrets
from orchestrator.services.secrets.socket import SecretLine
from orchestrator.store import Leadership

IDLE_S = 0.25
WATCH_S = 0.1  # while machines start or are up: how soon a loss is noticed
BUSY_S = 0.02  # while a job moves to a machine that is ready: most of these steps wait only for this process
STANDBY_S = 0.3
RETRY_S = 1.0
ONCE_LIMIT_S = 600.0
UNHURRIED = (Step.PROVISION, Step.READY, Step.RELEASE)  # these steps wait seconds for a machine to start or end


class Daemon:
    """One control-plane process on one installation."""

    def __init__(
        self,
        installation: Installation,
        runtime: NodeRuntime,
        secrets: SecretValues,
        *,
        stands_by: bool = True,
        log: ControlPlaneLog | None = None,
    ) -> None:
        """With `stands_by` False, it exits if another live control plane of this machine leads."""
        self._installation = installation
        self._runtime = runtime
        self._secrets = secrets
        self._stands_by = stands_by
        self._to = log or ControlPlaneLog()
        self._ended = False
        self._last_event: str | None = None
        self._last_message: str | None = None

    def end(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """Finish the current step, give the leadership back, and exit. A signal handler."""
        self._ended = True

    def run(self, *, once: bool) -> int:
        """Run until stopped or, with `once`, until one decision is carried out. Returns the exit code."""
        # two containers on a host may have the same name and pid; equal holders would depose each other
        holder = f"{socket.gethostname()}-{secrets.token_hex(3)}/{os.getpid()}"
        while not self._ended:
            try:
                leadership = self._installation.store.campaign(holder)
                if leadership is not None:
                    self._say("leading: this control plane is active")
                    differences = project_limits.keep(self._installation)
                    for found, remedy in (*differences.lost, *elsewhere(self._installation)):
                        self._say(f"warning: {found}; {remedy}")
                    for changed in differences.changed:
                        self._say(changed)
                    self._read_secrets()
                    tasks: AbstractContextManager[object] = (
                        nullcontext() if once else PeriodicPriceTasks(self._installation, leadership, self._log)
                    )
                    line = SecretLine(self._installation.state_dir, self._secrets, self._log)
                    with line, self._installation.store.pulse(leadership), tasks:
                        return self._lead(leadership, once)
                leader = self._installation.store.leader()
                if not self._stands_by and leader is not None and leader.alive and may_act(leader):
                    self._say(f"exiting: {leader.holder} is already active on this store")
                    return 0
                other = leader.holder if leader is not None else "another control plane"
                self._say(f"standing by: {other} is active; taking over when it is gone")
            except NotLeaderError as error:
                self._say(f"no longer leading: {error}")
            except (StoreVersionError, SupersededError):
                raise  # a newer Tradewind has upgraded the store, or another store has taken over
            except StoreError as error:
                self._say(f"the store does not answer: {error}")
            time.sleep(STANDBY_S)
        return 0

    def _read_secrets(self) -> None:
        """Load secrets kept by the previous leader. Without them, jobs that need secrets wait."""
        try:
            self._secrets.read_kept()
        except TradewindError as error:
            self._say(f"secrets: {error} ({error.hint})")

    def _lead(self, leadership: Leadership, once: bool) -> int:
        ctx = Context(
            installation=self._installation,
            runtime=self._runtime,
            checkpoints=FileCatalog(),
            random=SystemRandom(),
            leadership=leadership,
            secrets=self._secrets,
            calls=Calls(Threads()),
        )
        self._runtime.lead(leadership.epoch)
        plane = ControlPlane(ctx)
        keep_what_is_loaded()
        started = time.monotonic()
        while not self._ended:
            try:
                changed = plane.tick()
                self._log_events()
                if (epoch := self._runtime.outranked_by) is not None:
                    self._installation.store.outrank(leadership, epoch)
                    raise NotLeaderError(f"another control plane gave orders in epoch {epoch}: leading again after it")
            except SiteError as error:
                self._say(f"site: {error}")
                time.sleep(RETRY_S)
                continue
            except (NotLeaderError, StoreVersionError, SupersededError):
                raise
            except StoreError as error:
                self._say(f"store: {error}; trying again")
                time.sleep(RETRY_S)
                continue
            except Exception:  # machines are billed in the meantime, and the problem may be temporary
                if once:
                    raise
                self._say(f"unexpected error, trying again: {traceback.format_exc()}")
                time.sleep(RETRY_S)
                continue
            if once and not changed:
                with self._installation.store.read() as tx:
                    idle = all(map(waits, tx.migrations(open=True))) and not tx.open_commands()
                if idle or time.monotonic() - started > ONCE_LIMIT_S:
                    break
            if not changed:
                time.sleep(pause_s(ctx.work))
        self._runtime.close()
        self._installation.store.resign(leadership)
        return 0

    def _log_events(self) -> None:
        """Write every new event of the audit trail to the log."""
        with self._installation.store.read() as tx:
            if self._last_event is None:
                newest = tx.events(limit=1, newest_first=True)
                self._last_event = newest[0].id if newest else ""
                return
            try:
                fresh = tx.events(after_id=self._last_event or None)
            except NotFoundError:  # the store was replaced by a backup
                self._last_event = None
                return
        for event in fresh:
            self._last_event = event.id
            who = " ".join(part for part in (event.job_id, event.run_id, event.migration_id) if part)
            self._log(f"{event.kind} {who}: {event.message}")
            if "traceback" in event.data:
                self._log(str(event.data["traceback"]))

    def _say(self, message: str) -> None:
        if message != self._last_message:
            self._last_message = message
            self._log(message)

    def _log(self, message: str) -> None:
        self._to.say(self._secrets.mask(message))


MEMORY_POOLS = 2
_M_ARENA_MAX = -8  # defined in glibc's malloc.h
GARBAGE = 20_000
"""New objects before a collection of the youngest generation. Python's default of 700 means several per tick."""


def keep_what_is_loaded() -> None:
    """Exempt everything that is in memory now, above all modules, from garbage collection, which takes up to 0.1 s and
    would happen within a tick. Also collect less often, since few objects of a tick refer to one another."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)


def share_memory_pools() -> None:
    """Let all threads allocate from MEMORY_POOLS pools. By default, glibc gives each of the first 16 threads (with two
    cores) a pool, and free memory in one pool is of no use to the other threads: 11 MB of the control plane's 150. Has
    no effect with another C library."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, MEMORY_POOLS)


def pause_s(work: Work) -> float:
    """Seconds until the next look if nothing changed."""
    if any(each.step not in UNHURRIED and not waits(each) for each in work.migrations):
        return BUSY_S
    return WATCH_S if work.migrations or work.runs else IDLE_S


def run(config: Config, *, once: bool = False, background: bool = False) -> int:
    """Run the control plane in the foreground, or in the `background` for `up`. Returns an exit code.

    Raises StoreError, SpecError, ProviderFailure.
    """
    share_memory_pools()
    umask = os.umask(PRIVATE_UMASK)
    installation = open_installation(config, starts=True)
    try:
        log = ControlPlaneLog(path_of(config) if background else None)
        daemon = Daemon(
            installation, node_runtime(installation), kept_secrets(config), stands_by=not background, log=log
        )
        signal.signal(signal.SIGTERM, daemon.end)
        signal.signal(signal.SIGINT, daemon.end)
        with nullcontext() if once else dashboard(installation, log):
            return daemon.run(once=once)
    finally:
        installation.close()
        os.umask(umask)


@contextmanager
def dashboard(installation: Installation, log: ControlPlaneLog) -> Iterator[None]:
    """Serve the dashboard during the block, if `web.port` is set. If that fails, the log says why and the control plane
    goes on, because jobs matter more."""
    port = installation.config.web.port
    with ExitStack() as stack:
        if port is not None:
            try:
                from orchestrator.web.dashboard_process import beside

                stack.enter_context(beside(installation, port, log.say))
            except ImportError as error:
                log.say(f"web.port is set, but {error.name} is not installed: pip install 'tradewind[web]'")
            except TradewindError as error:
                log.say(f"the dashboard is not served: {error}")
        yield


def main() -> int:
    """Run as the background process, configured by the environment and the working folder."""
    try:
        return run(load_config(), background=BACKGROUND in sys.argv[1:])
    except TradewindError as error:
        ControlPlaneLog().say(f"error: {error}" + (f" (hint: {error.hint})" if error.hint else ""))
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
