"""Store: opens the database, begins transactions, elects the leader and takes backups. Tx reads and writes the
tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import SystemRandom

from sqlalchemy import Connection

from orchestrator.errors import StoreError
from orchestrator.model.ids import RandomBits
from orchestrator.store.backends.backend import Backend, backend_of, transaction
from orchestrator.store.leadership import leader
from orchestrator.store.leadership.leader import Campaign, LeaderInfo, Leadership
from orchestrator.store.leadership.pulse import Pulse
from orchestrator.store.tx import Tx
from orchestrator.store.upgrade import install_id_of, prepare, require_current
from providers.clock import Clock


class Store:
    """The state of an installation. Open it with `Store.open`; use it from any thread, one transaction at a time each.

    Every database failure is a StoreError with a remedy. Once the cause is gone (the server is up again, the disk has
    space, the file is back), the same object works again. After the file was replaced it does not: restart every
    process that had it open.
    """

    def __init__(self, backend: Backend, clock: Clock, random: RandomBits) -> None:
        self._backend = backend
        self._clock = clock
        self._random = random
        self._campaign = Campaign()
        self._pulse: Pulse | None = None
        with transaction(backend, writes=False) as connection:
            self._install_id = install_id_of(connection)

    @classmethod
    def open(
        cls,
        url: str,
        clock: Clock,
        *,
        create: bool = True,
        random: RandomBits | None = None,
        backups: Path | None = None,
    ) -> Store:
        """Opens the store at `url` (sqlite:////path/file.db or postgresql://...); creates it if missing, upgrades it if
        older.

        An upgrade first takes a backup: beside an SQLite file, otherwise in the folder `backups`. `random` generates
        the install id and command ids. Raises StoreVersionError for a store of a newer version, which is left
        unchanged; StoreError; MissingExtraError.
        """
        source = random or SystemRandom()
        backend = backend_of(url, create=create, backups=backups)
        try:
            prepare(backend, create=create, install_id=f"tw-{source.getrandbits(64):016x}")
            return cls(backend, clock, source)
        except BaseException:
            backend.close()
            raise

    @property
    def install_id(self) -> str:
        """Random identity of this installation, created with the store; valid as a tag value in every cloud."""
        return self._install_id

    def require_current(self) -> None:
        """Raises StoreVersionError if a newer version has upgraded the store since it was opened, StoreError."""
        with self._transaction(writes=False) as connection:
            require_current(connection, self._backend.place)

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """A read-only transaction on one consistent snapshot. Raises StoreError."""
        with self._transaction(writes=False) as connection:
            yield Tx(connection, self._clock, self._random)

    @contextmanager
    def write(self, leadership: Leadership | None = None) -> Iterator[Tx]:
        """A write transaction, one at a time: committed at the end of the block, rolled back when the block raises.

        Raises NotLeaderError before the block unless `leadership`, if given, is current; StoreError. Keep the block
        short: make no call to a provider or a node inside it.
        """
        with self._transaction(writes=True) as connection:
            if leadership is not None:
                leader.fence(connection, leadership)
            yield Tx(connection, self._clock, self._random)

    def campaign(self, holder: str) -> Leadership | None:
        """Tries to become leader; None while another control plane leads. A standby calls it about every second.

        `holder` names the control plane; one that campaigns again under its old name takes over from itself at once,
        with a new epoch. Raises StoreVersionError if a newer version has upgraded the store since it was opened.
        """
        try:
            with self._transaction(writes=False) as connection:
                require_current(connection, self._backend.place)
                row = leader.current(connection)
        except StoreError:
            self._campaign = Campaign()  # while the store is unreachable, no heartbeat can be read
            raise
        if not leader.may_take_over(row, holder, self._campaign, self._clock.monotonic_s()):
            return None
        with self._transaction(writes=True) as connection:
            return leader.take_over(connection, row, holder, self._clock.now_ms(), self._backend.file)

    def beat(self, leadership: Leadership) -> None:
        """Sends a heartbeat; call it at least every leader.TAKEOVER_S / 3. Raises NotLeaderError if leadership was
        lost."""
        if self._pulse is not None:
            self._pulse.progress()
        self._beat(leadership)

    @contextmanager
    def pulse(self, leadership: Leadership) -> Iterator[None]:
        """Sends heartbeats from a thread during the block, so calls to `beat` may be up to pulse.HANG_S apart."""
        self._pulse = Pulse(lambda: self._beat(leadership))
        self._pulse.start()
        try:
            yield
        finally:
            self._pulse.stop()
            self._pulse = None

    def resign(self, leadership: Leadership) -> None:
        """Gives leadership up, so that a standby can take over at once."""
        with self._transaction(writes=True) as connection:
            leader.resign(connection, leadership)

    def outrank(self, leadership: Leadership, epoch: int) -> None:
        """Gives leadership up so that the next leader's epoch is higher than `epoch`, the epoch of a control plane that
        this store does not know because it came from a backup. Raises NotLeaderError."""
        with self._transaction(writes=True) as connection:
            leader.outrank(connection, leadership, epoch)

    def leader(self, *, watch: bool = False) -> LeaderInfo | None:
        """The current leader, or None. With `watch`, a leader on another host is watched for some seconds to see
        whether it is alive; None if it is not."""
        with self._transaction(writes=False) as connection:
            info = leader.info_of(leader.current(connection))
            if info is not None and info.alive:
                info = replace(info, serves=leader.serves(connection, self._backend.file))
        if not watch or info is None or info.alive is not None:
            return info
        return self.leader() if leader.shows_life(self._leader_row) else None

    def _leader_row(self) -> object:
        with self._transaction(writes=False) as connection:
            return leader.current(connection)

    def backup(self, path: Path) -> None:
        """Writes a consistent copy to the file `path`, which must not exist, while others keep using the store.

        The copy is always an SQLite store. Raises StoreError.
        """
        self._backend.backup(path)

    def close(self) -> None:
        """Closes all connections without resigning leadership."""
        self._backend.close()

    def _beat(self, leadership: Leadership) -> None:
        with self._transaction(writes=True) as connection:
            leader.beat(connection, leadership)

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[Connection]:
        self._backend.check()
        with transaction(self._backend, writes=writes) as connection:
            yield connection
