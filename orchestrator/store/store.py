"""Store: opening, transactions, leadership, backups. What is stored is Tx."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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

    Everything that goes wrong in the database is a StoreError with the remedy. Once its cause is gone (the server is
    up again, the disk has space, the file is back), the same object works on. Under a file that was replaced it does
    not: whoever had it open starts anew.
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
        """The store at `url` (sqlite:////path/file.db or postgresql://...), made if there is none, upgraded if older.

        An upgrade keeps a backup first: beside an SQLite file, else in the folder `backups`. `random` makes the install
        id and the ids of commands. Raises StoreVersionError (written by a newer version, untouched), StoreError,
        MissingExtraError.
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
        """Random identity of this installation, made with the store; fit for the tags of every cloud."""
        return self._install_id

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """One consistent snapshot."""
        with self._transaction(writes=False) as connection:
            yield Tx(connection, self._clock, self._random)

    @contextmanager
    def write(self, leadership: Leadership | None = None) -> Iterator[Tx]:
        """One transaction, alone among writers: committed at the end of the block, undone when the block raises.

        Raises NotLeaderError, before the block, unless `leadership` (when given) is the present one. Keep it short:
        no call to a provider or a node belongs inside.
        """
        with self._transaction(writes=True) as connection:
            if leadership is not None:
                leader.fence(connection, leadership)
            yield Tx(connection, self._clock, self._random)

    def campaign(self, holder: str) -> Leadership | None:
        """Try to become leader; None while another one leads. A standby calls it again and again, every second or so.

        `holder` names one control plane; one that campaigns again under its old name succeeds itself at once, with a
        new epoch. Raises StoreVersionError when the store has been upgraded by a newer version since it was opened.
        """
        try:
            with self._transaction(writes=False) as connection:
                require_current(connection, self._backend.place)
                row = leader.current(connection)
        except StoreError:
            self._campaign = Campaign()  # while the store is silent, nobody's beat can be heard
            raise
        if not leader.may_take(row, holder, self._campaign, self._clock.monotonic_s()):
            return None
        with self._transaction(writes=True) as connection:
            return leader.take(connection, row, holder, self._clock.now_ms())

    def beat(self, leadership: Leadership) -> None:
        """Show life: more often than every leader.TAKEOVER_S / 3. Raises NotLeaderError when it was lost."""
        if self._pulse is not None:
            self._pulse.lives()
        self._beat(leadership)

    @contextmanager
    def pulse(self, leadership: Leadership) -> Iterator[None]:
        """Beat from a thread, too, for the time of the block: its own beats may then be pulse.HANG_S apart."""
        self._pulse = Pulse(lambda: self._beat(leadership))
        self._pulse.start()
        try:
            yield
        finally:
            self._pulse.stop()
            self._pulse = None

    def resign(self, leadership: Leadership) -> None:
        """Let a standby take over at once."""
        with self._transaction(writes=True) as connection:
            leader.resign(connection, leadership)

    def leader(self, *, watch: bool = False) -> LeaderInfo | None:
        """Who leads now. With `watch`, one whose life cannot be told from here is watched for some seconds."""
        with self._transaction(writes=False) as connection:
            info = leader.info_of(leader.current(connection))
        if not watch or info is None or info.alive is not None:
            return info
        return self.leader() if leader.shows_life(self._leader_row) else None

    def _leader_row(self) -> object:
        with self._transaction(writes=False) as connection:
            return leader.current(connection)

    def backup(self, path: Path) -> None:
        """Write a consistent copy to the file `path`, which must not exist, while others go on working.

        It is an SQLite store, wherever this one lives. Raises StoreError.
        """
        self._backend.backup(path)

    def close(self) -> None:
        """Close all connections. Leadership is not resigned."""
        self._backend.close()

    def _beat(self, leadership: Leadership) -> None:
        with self._transaction(writes=True) as connection:
            leader.beat(connection, leadership)

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[Connection]:
        self._backend.check()
        with transaction(self._backend, writes=writes) as connection:
            yield connection
