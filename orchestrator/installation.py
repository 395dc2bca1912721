"""Installation: everything that the engine and the services act on, opened from a configuration.

The anchor of the market clock is a file in the state folder, so that the command line and every control plane read the
same market time.
"""

from __future__ import annotations

import errno
import os
import shlex
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.config import Config
from orchestrator.config.paths import broken_link, why_not_created
from orchestrator.config.private import private_folder, write_privately
from orchestrator.errors import Problem, ProviderFailure, SpecError, StoreError
from orchestrator.formats.codec import CodecError, dumps, loads
from orchestrator.store import FormerRoot, Store, Tx
from providers.base import Provider
from providers.clock import AcceleratedClock, Clock, SystemClock, boot_id
from providers.errors import ProviderError
from providers.registry import provider_factory
from providers.traits import own_clock


@dataclass(frozen=True, slots=True)
class Anchor:
    """A moment on three clocks: market (`epoch_ms`), this boot's monotonic (`anchor_s`), wall (`wall_ms`)."""

    boot_id: str
    factor: float
    epoch_ms: int
    anchor_s: float
    wall_ms: int

    @property
    def clock(self) -> AcceleratedClock:
        """The market clock that this anchor defines."""
        return AcceleratedClock(self.factor, self.epoch_ms, self.anchor_s)


@dataclass(frozen=True)
class Installation:
    """Configuration, clock, store and providers (by name). Call close() when done."""

    config: Config
    clock: Clock
    store: Store
    providers: Mapping[str, Provider]

    @property
    def state_dir(self) -> Path:
        """The private folder with all data."""
        return self.config.state_dir

    @property
    def simulated(self) -> bool:
        """Whether any of its providers is simulated."""
        return any(provider.simulated for provider in self.providers.values())

    @property
    def outside_clock(self) -> Clock:
        """The clock for external data, such as prices of real clouds: real time, even if the market here is simulated
        and runs faster."""
        return self.clock if self.clock.factor == 1 else SystemClock()

    def run_dir(self, run_id: str) -> Path:
        """The folder of a run's control files and log."""
        return self.state_dir / "runs" / run_id

    def output_dir(self, job_id: str) -> Path:
        """The folder of a job's outputs."""
        return self.state_dir / "outputs" / job_id

    def stored(self, what: str) -> str:
        """The folder or URL of `what` below `store_root`."""
        return f"{self.config.store_root}/{what}"

    def job_place(self, job_id: str) -> str:
        """The place of a job's code, logs and outputs below `store_root`, for machines that share no folder with this
        host."""
        return f"jobs/{self.store.install_id}/{job_id}"

    def job_root(self, job_id: str) -> str:
        """Its folder or URL."""
        return self.stored(self.job_place(job_id))

    @property
    def control_root(self) -> str:
        """The folder or URL of the orders and reports of this installation's machines."""
        return self.stored(f"control/{self.store.install_id}")

    def prepare_control(self) -> None:
        """Create the folder of orders and reports, private to this user; a bucket needs none. Raises StoreError."""
        if "://" in self.control_root:
            return
        folder = Path(self.control_root).parent
        try:
            private_folder(folder)
        except OSError as error:
            at = "" if broken_link(folder) else f"{error.filename or self.config.store_root}: "
            raise StoreError(
                f"store_root cannot be written: {at}{why_not_created(folder, error)}",
                hint="make it writable for this user, or set store_root in tradewind.toml to another place",
            ) from error

    def checkpoint_root(self, to: str | None) -> str:
        """The folder or URL for a job's `checkpoint.to`; None: the one below `store_root`."""
        return to if to is not None else self.stored("checkpoints")

    def former_root(self, tx: Tx, at_ms: int) -> str | None:
        """The folder or URL that was `store_root` at `at_ms` (market time); None if it was the present one. Raises
        StoreError."""
        present = str(self.config.store_root)
        found = next((each.root for each in tx.former_roots() if at_ms < each.until_ms), None)
        if found is None:  # the configuration may have changed since the last control plane started
            with suppress(StoreError):  # its file is damaged, as the next start says
                found = _former_root(self.state_dir / "store-root")
        return None if found in (None, "", present) else found

    def has_former_root(self, tx: Tx) -> bool:
        """Whether `store_root` was ever another one. Raises StoreError."""
        return bool(tx.former_roots()) or self.former_root(tx, self.clock.now_ms()) is not None

    def root_in_use(self) -> str | None:
        """The `store_root` with which a control plane started here last, and which one that still runs uses; None if it
        is the present one, or none did. Raises StoreError."""
        kept = _former_root(self.state_dir / "store-root")
        return None if kept in ("", str(self.config.store_root)) else kept

    def close(self) -> None:
        """Close the store."""
        self.store.close()


def open_installation(config: Config, *, starts: bool = False) -> Installation:
    """Open the clock, the store and the enabled providers. Raises StoreError, SpecError, ProviderFailure.

    The state folder is created and made private. `starts` is for callers that start to act here (`up`, `daemon run`):
    only they may change `clock_factor`, and only while nothing else acts. Others get a SpecError and change nothing.
    """
    try:
        private_folder(config.state_dir)
    except OSError as error:
        raise _unusable(config.state_dir, error) from error
    before = _other_factor(config)
    if before is not None and not (starts and _is_idle(config, before)):
        raise _refused(config, before)
    installation = _open(config, market_clock(config))
    if starts:
        try:
            _keep_root(installation)
        except BaseException:
            installation.close()
            raise
    return installation


def _unusable(folder: Path, error: OSError) -> StoreError:
    """What is wrong with a state folder, and the remedy."""
    if error.errno == errno.EROFS and folder.is_dir():
        copy = f"cp -r {shlex.quote(str(folder))} COPY; tradewind --state-dir COPY queue"
        hint = f"make it writable; to look only, copy it: {copy}"
        return StoreError(f"the state folder {folder} is read-only, and every command writes there", hint=hint)
    failed = "written" if folder.is_dir() else "created"
    hint = "name a writable folder with --state-dir, state_dir in tradewind.toml or TRADEWIND_STATE_DIR"
    if folder.is_file():
        return StoreError(f"the state folder {folder} is a file", hint=hint)
    if link := broken_link(folder):
        hint = f"create {os.readlink(link)}, or name another folder with --state-dir, state_dir or TRADEWIND_STATE_DIR"
    return StoreError(f"the state folder {folder} cannot be {failed}: {why_not_created(folder, error)}", hint=hint)


def _keep_root(installation: Installation) -> None:
    """Remember `store_root`, once it can be written, and the former one if it was changed. Raises SpecError if a
    control plane or machines still use that, StoreError."""
    path, root = installation.state_dir / "store-root", str(installation.config.store_root)
    former = _former_root(path)
    changed = former not in ("", root)
    if changed and (users := _users_of_root(installation)):
        origin = installation.config.origins.get("store_root", "default")
        remedy = f"set it back (TRADEWIND_STORE_ROOT={former}); to change it, first end them: tradewind down"
        raise SpecError([Problem(origin, 0, 0, "store_root", f"is {root}, but {users} still use {former}", remedy)])
    installation.prepare_control()
    if changed:
        with installation.store.write() as tx:
            tx.add_former_root(FormerRoot(former, installation.clock.now_ms()))
    if former != root:
        partial = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            write_privately(partial, root)
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            hint = "free some space, or check the disk; then: tradewind doctor"
            raise StoreError(f"{path} cannot be written: {error.strerror}", hint=hint) from error


def _users_of_root(installation: Installation) -> str:
    """What sends or receives orders through the former `store_root`, in words; "" if nothing does."""
    with installation.store.read() as tx:
        live = {run.job_id for run in tx.runs(live=True, unreadable=lambda *_: None) if run.end is None}
        names = [job.name for job in tx.outlines_of(sorted(live))]
    if names:
        return f"machines of {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
    leader = installation.store.leader(watch=True)
    return "" if leader is None or leader.alive is False else f"the machines of the control plane {leader.holder}"


def _former_root(path: Path) -> str:
    """Empty if none is remembered. Raises StoreError."""
    try:
        return path.read_text(encoding="utf-8") if path.exists() else ""
    except ValueError as error:
        hint = "delete it if store_root is where the jobs have their checkpoints"
        raise StoreError(f"{path} is damaged: it is not text", hint=hint) from error


def _open(config: Config, clock: Clock) -> Installation:
    providers = {name: _provider(name, config, clock) for name in config.providers.enabled}
    return Installation(config, clock, Store.open(config.store_url, clock, backups=config.state_dir), providers)


def _is_idle(config: Config, factor: float) -> bool:
    """Whether no control plane leads and no machine runs whose deadlines and bills use the clock of `factor`."""
    local = replace(config.providers.local, clock_factor=factor)
    before = replace(config, providers=replace(config.providers, local=local))
    installation = _open(before, market_clock(before))
    try:
        leader = installation.store.leader(watch=True)  # one from before a reboot counts as dead
        if leader is not None and leader.alive is not False:
            return False
        return not any(
            provider.list_owned(installation.store.install_id) for provider in installation.providers.values()
        )
    except ProviderError as error:
        raise ProviderFailure(str(error), hint=error.hint) from error
    finally:
        installation.close()


def _refused(config: Config, before: float) -> SpecError:
    name = "providers.local.clock_factor"
    return SpecError(
        [
            Problem(
                config.origins.get(name, "default"),
                0,
                0,
                name,
                f"is {config.providers.local.clock_factor:.12g}, but the market of {config.state_dir} runs at "
                f"{before:.12g}, which its deadlines and bills depend on",
                f"set it back to {before:.12g}; or end what runs (TRADEWIND_PROVIDERS_LOCAL_CLOCK_FACTOR={before:.12g} "
                "tradewind down), then run: tradewind up",
            )
        ]
    )


def _provider(name: str, config: Config, clock: Clock) -> Provider:
    try:
        factory = provider_factory(name)
        if name == "local":
            local = config.providers.local
            return factory(config.state_dir / "local", clock, local.seed, background_preemptions=local.hazard)
        if name == "static":
            return factory(config.providers.static.hosts.hosts, config.state_dir / "static", clock)
        settings = cloud_settings(name, config)
        return factory(clock) if settings is None else factory(settings, clock)
    except ProviderError as error:
        raise ProviderFailure(str(error), hint=error.hint) from error


def cloud_settings(name: str, config: Config) -> object:
    """The settings of a cloud's provider, as that takes them; None for a provider without any."""
    if name == "aws":
        from providers.aws.settings import Settings

        aws = config.providers.aws
        return Settings(aws.regions, aws.instance_types, aws.image or "", aws.disk_gb)
    if name == "gcp":
        from providers.gcp.settings import Settings as GcpSettings

        gcp = config.providers.gcp
        places = gcp.project, gcp.endpoint, gcp.catalog
        return GcpSettings(gcp.regions, gcp.machine_types, gcp.image or "", gcp.disk_gb, *places)
    if name == "azure":
        from providers.azure.settings import Settings as AzureSettings
        from providers.azure.settings import subscription

        azure = config.providers.azure
        where = subscription(azure.subscription), azure.resource_group, azure.regions
        what = azure.instance_types, azure.image or "", azure.disk_gb
        return AzureSettings(*where, *what, azure.management, azure.prices)
    return None


def market_clock(config: Config) -> Clock:
    """Market time: the wall clock or, for the simulated market, a clock that runs `clock_factor` times as fast."""
    if not own_clock(config.providers.enabled):
        return SystemClock()
    path = _anchor_path(config)
    reached_ms = 0 if _of_this_boot(path) else _reached_ms(config)
    return anchored_clock(path, config.providers.local.clock_factor, reached_ms=reached_ms)


def _reached_ms(config: Config) -> int:
    """The latest market time (ms) in the store, which time has certainly reached."""
    store = Store.open(config.store_url, SystemClock(), backups=config.state_dir)
    try:
        with store.read() as tx:
            return tx.latest_ms(config.providers.enabled)
    finally:
        store.close()


def _anchor_path(config: Config) -> Path:
    return config.state_dir / "clock.json"


def _other_factor(config: Config) -> float | None:
    """The clock factor used so far if it differs from the configured one; else None."""
    saved = _read(_anchor_path(config)) if own_clock(config.providers.enabled) else None
    if saved is None or saved.factor == config.providers.local.clock_factor:
        return None
    return saved.factor


def _of_this_boot(path: Path) -> bool:
    saved = _read(path)
    return saved is not None and saved.boot_id == boot_id()


def anchored_clock(path: Path, factor: float, *, reached_ms: int = 0) -> AcceleratedClock:
    """The accelerated clock whose anchor is stored in `path`; the first caller creates it.

    Market time never goes backwards. After a change of the factor it continues from where it is. After a reboot the
    monotonic clock starts at 0, so the wall clock tells how much time has passed. If the wall clock is behind (an empty
    battery, a restored virtual machine) or the file is lost, market time continues from `reached_ms`, the latest time
    on record. Raises StoreError.
    """
    saved = _read(path)
    if saved is not None and saved.boot_id == boot_id() and saved.factor == factor:
        return saved.clock
    wall_ms = time.time_ns() // 1_000_000
    epoch_ms = max(wall_ms, reached_ms)
    if saved is not None:
        if saved.boot_id == boot_id():
            epoch_ms = saved.clock.now_ms()
        else:
            elapsed_ms = max(0, wall_ms - saved.wall_ms)
            epoch_ms = max(saved.epoch_ms + int(elapsed_ms * saved.factor), reached_ms)
    anchor = Anchor(boot_id(), factor, epoch_ms, time.monotonic(), wall_ms)
    partial = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        write_privately(partial, dumps(anchor))
    except OSError as error:
        partial.unlink(missing_ok=True)
        hint = "free some space, or check the disk; then run the command again"
        raise StoreError(f"{path} cannot be written: {error.strerror}", hint=hint) from error
    if saved is None:
        try:
            os.link(partial, path)  # the first process wins if several do this at once
        except FileExistsError:
            if _read(path) is not None:
                partial.unlink()
                return anchored_clock(path, factor, reached_ms=reached_ms)
            partial.replace(path)  # the existing file cannot be read
        else:
            partial.unlink()
    else:
        partial.replace(path)
    return anchor.clock


def _read(path: Path) -> Anchor | None:
    try:
        return loads(Anchor, path.read_bytes())
    except (OSError, CodecError):
        return None
