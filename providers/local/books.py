"""The durable books of the `local` provider: every launch, instance and override.

SQLite in WAL mode, shared by all processes that have a LocalProvider on the folder. Writers take the write lock first
(BEGIN IMMEDIATE), and every update checks the state it expects, so that two processes cannot make conflicting
decisions.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from providers.billing.charges import Usage
from providers.errors import SetupError, UnavailableError
from providers.instance import EndReason
from providers.local.prices import PriceOverride
from providers.processes import Leader

_VERSION = 3
_SCHEMA = """
CREATE TABLE about (uid TEXT NOT NULL, seed INTEGER NOT NULL) STRICT;
CREATE TABLE launches (token TEXT PRIMARY KEY, fingerprint TEXT NOT NULL) STRICT;
CREATE TABLE instances (
    id TEXT PRIMARY KEY,
    token TEXT NOT NULL REFERENCES launches (token),
    offer_id TEXT NOT NULL,
    user_data TEXT NOT NULL,
    tags TEXT NOT NULL,
    accepted_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    pid INTEGER,                  -- first process = session; NULL until the folder is claimed
    start_ticks INTEGER,
    boot_id TEXT,
    notice_deadline_ms INTEGER,   -- market time
    notice_deadline_s REAL,       -- the same on the monotonic clock, as given to the machine
    ending_at_ms INTEGER,         -- when it is to end, written before it is carried out
    ending_reason TEXT,
    gentle INTEGER NOT NULL DEFAULT 0,  -- SIGTERM first
    sigterm_at_s REAL,
    ended_ms INTEGER
) STRICT;
CREATE INDEX instances_living ON instances (accepted_ms) WHERE ended_ms IS NULL;
CREATE INDEX instances_of_token ON instances (token);
CREATE TABLE price_overrides (
    id INTEGER PRIMARY KEY, offer_id TEXT NOT NULL, nano_usd_per_hour INTEGER NOT NULL,
    from_ms INTEGER NOT NULL, to_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE capacity_overrides (
    id INTEGER PRIMARY KEY, offer_id TEXT NOT NULL, machines INTEGER NOT NULL, until_ms INTEGER NOT NULL
) STRICT;
"""
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)  # reading, too, needs space for the index of the journal
_SINCE = (  # what each later version added
    (2, "CREATE TABLE claims (install TEXT PRIMARY KEY, word TEXT NOT NULL) STRICT"),
    (
        3,
        "CREATE TABLE usage (instance_id TEXT PRIMARY KEY REFERENCES instances (id), at TEXT NOT NULL,"
        " moved_from TEXT NOT NULL, moved_bytes INTEGER NOT NULL, kept_bytes INTEGER NOT NULL) STRICT",
    ),
)


@dataclass(frozen=True, slots=True)
class Record:
    """One instance in the books. Times are market milliseconds; `_s` are monotonic wall seconds.

    `ending_*` is the decision to end it, `ended_ms` the confirmed end.
    """

    id: str
    token: str
    offer_id: str
    user_data: str
    tags: Mapping[str, str]
    accepted_ms: int
    expires_ms: int | None = None
    leader: Leader | None = None
    notice_deadline_ms: int | None = None
    notice_deadline_s: float | None = None
    ending_at_ms: int | None = None
    ending_reason: EndReason | None = None
    gentle: bool = False
    sigterm_at_s: float | None = None
    ended_ms: int | None = None


class Books:
    """The database at `path`, created if missing for a market of `seed`.

    Raises SetupError if the file is damaged, from a newer version or of another seed; UnavailableError if it cannot be
    read or written now.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self._path = path
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)  # SQLite gives its journals the permissions of this file
        except OSError as error:
            raise self._unavailable(error) from error
        with self._translated():
            self._db = sqlite3.connect(path, timeout=20, isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._db.close)
        with self._translated():
            self._db.row_factory = sqlite3.Row
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")  # a power cut would end the processes as well
        self.uid = self._open(seed)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """An atomic transaction; other processes cannot write meanwhile."""
        with self._lock, self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    # --- launches and instances ---

    def fingerprint(self, token: str) -> str | None:
        """The fingerprint of the request under a token; None if the token is new."""
        rows = self._rows("SELECT fingerprint FROM launches WHERE token = ?", token)
        return str(rows[0]["fingerprint"]) if rows else None

    def of_token(self, token: str) -> list[Record]:
        """The instances of a launch, in the order of their numbers."""
        return self._records("WHERE token = ? ORDER BY rowid", token)

    def accept(self, token: str, fingerprint: str, records: list[Record]) -> None:
        """Write a launch and its instances; call it within a transaction."""
        self._write("INSERT INTO launches VALUES (?, ?)", token, fingerprint)
        for record in records:
            self._write(
                "INSERT INTO instances (id, token, offer_id, user_data, tags, accepted_ms, expires_ms)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                *(record.id, record.token, record.offer_id, record.user_data),
                *(json.dumps(dict(record.tags)), record.accepted_ms, record.expires_ms),
            )

    def record(self, instance_id: str) -> Record | None:
        """One instance; None if it never existed."""
        found = self._records("WHERE id = ?", instance_id)
        return found[0] if found else None

    def living(self) -> list[Record]:
        """Instances that have not ended, oldest first."""
        return self._records("WHERE ended_ms IS NULL ORDER BY accepted_ms, rowid")

    def offers_rented_since(self, since_ms: int) -> frozenset[str]:
        """The offers of all instances that are alive or ended at `since_ms` or later."""
        rows = self._rows(
            "SELECT DISTINCT offer_id FROM instances WHERE ended_ms IS NULL OR ended_ms >= ?",
            since_ms,
        )
        return frozenset(str(row["offer_id"]) for row in rows)

    def leaders(self) -> dict[str, Leader | None]:
        """The first process of every instance that ever existed."""
        return {record.id: record.leader for record in self._records("ORDER BY rowid")}

    def adopt(self, instance_id: str, leader: Leader) -> None:
        """Store the first process of an instance."""
        self._write(
            "UPDATE instances SET pid = ?, start_ticks = ?, boot_id = ? WHERE id = ? AND pid IS NULL",
            *(leader.pid, leader.start_ticks, leader.boot_id, instance_id),
        )

    def begin_ending(
        self,
        instance_id: str,
        reason: EndReason,
        at_ms: int,
        *,
        gentle: bool = False,
        notice_deadline_s: float | None = None,
    ) -> None:
        """Decide that an instance ends at `at_ms`; no effect if it ends earlier or has ended.

        `gentle`: send SIGTERM first. With `notice_deadline_s` (monotonic seconds), the machine gets a notice.
        """
        self._write(
            "UPDATE instances SET ending_reason = ?, ending_at_ms = ?, gentle = ?,"
            " notice_deadline_ms = COALESCE(?, notice_deadline_ms),"
            " notice_deadline_s = COALESCE(?, notice_deadline_s)"
            " WHERE id = ? AND ended_ms IS NULL AND (ending_at_ms IS NULL OR ending_at_ms > ?)",
            *(reason.value, at_ms, int(gentle)),
            *(None if notice_deadline_s is None else at_ms, notice_deadline_s),
            *(instance_id, at_ms),
        )

    def renew(self, instance_ids: Sequence[str], now_ms: int, expires_ms: int) -> None:
        """Extend the time to live of those that are still alive; call it within a transaction."""
        for instance_id in instance_ids:
            self._write(
                "UPDATE instances SET expires_ms = ?"
                " WHERE id = ? AND ended_ms IS NULL AND (expires_ms IS NULL OR expires_ms > ?)",
                *(expires_ms, instance_id, now_ms),
            )

    def sigterm_sent(self, instance_id: str, at_s: float) -> None:
        """Store when the machine was asked to shut down (monotonic seconds)."""
        self._write("UPDATE instances SET sigterm_at_s = ? WHERE id = ?", at_s, instance_id)

    def ended(self, instance_id: str, at_ms: int) -> None:
        """Close the billed interval; without a decision to end it, the instance failed."""
        self._write(
            "UPDATE instances SET ended_ms = MAX(?, accepted_ms),"
            " ending_reason = COALESCE(CASE WHEN ending_at_ms <= ? THEN ending_reason END, ?)"
            " WHERE id = ? AND ended_ms IS NULL",
            *(at_ms, at_ms, EndReason.FAILED.value, instance_id),
        )

    # --- checkpoints ---

    def usage(self, instance_id: str) -> Usage | None:
        """The checkpoint usage of an instance; None if none was reported."""
        rows = self._rows("SELECT * FROM usage WHERE instance_id = ?", instance_id)
        return _usage(rows[0]) if rows else None

    def meter(self, instance_id: str, usage: Usage) -> None:
        """Store the checkpoint usage of an instance, replacing any reported before."""
        self._write(
            "INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?, ?)",
            *(instance_id, "/".join(usage.at), "/".join(usage.moved_from), usage.moved_bytes, usage.kept_bytes),
        )

    # --- claims ---

    def claim(self, install: str) -> str | None:
        """The claim of an installation; None if there never was one."""
        rows = self._rows("SELECT word FROM claims WHERE install = ?", install)
        return str(rows[0]["word"]) if rows else None

    def set_claim(self, install: str, word: str) -> None:
        """Store a claim; call it within a transaction that has checked the previous one."""
        self._write("INSERT OR REPLACE INTO claims VALUES (?, ?)", install, word)

    # --- overrides ---

    def override_price(self, override: PriceOverride) -> None:
        """Override a market price; call it within a transaction."""
        self._write(
            "INSERT INTO price_overrides (offer_id, nano_usd_per_hour, from_ms, to_ms) VALUES (?, ?, ?, ?)",
            *(override.offer_id, override.nano_usd_per_hour, override.from_ms, override.to_ms),
        )

    def price_overrides(self) -> list[PriceOverride]:
        """All price overrides in the order in which they were set."""
        rows = self._rows("SELECT offer_id, nano_usd_per_hour, from_ms, to_ms FROM price_overrides ORDER BY id")
        return [PriceOverride(*row) for row in rows]

    def override_capacity(self, offer_id: str, machines: int, until_ms: int) -> None:
        """Set the total capacity of a pool from now until `until_ms`."""
        self._write(
            "INSERT INTO capacity_overrides (offer_id, machines, until_ms) VALUES (?, ?, ?)",
            *(offer_id, machines, until_ms),
        )

    def capacity_override(self, offer_id: str, at_ms: int) -> int | None:
        """The capacity override in force; None if there is none."""
        rows = self._rows(
            "SELECT machines, until_ms FROM capacity_overrides WHERE offer_id = ? ORDER BY id DESC LIMIT 1",
            offer_id,
        )
        return int(rows[0]["machines"]) if rows and at_ms < rows[0]["until_ms"] else None

    # --- below: SQLite ---

    def _open(self, seed: int) -> str:
        with self.transaction():
            version = self._rows("PRAGMA user_version")[0][0]
            if version > _VERSION:
                raise SetupError(
                    f"the books of the local provider at {self._path} were written by a newer version",
                    hint="update tradewind, or use another state folder",
                )
            if version == 0:
                for statement in _SCHEMA.split(";\n"):
                    if statement.strip():
                        self._write(statement)
                self._write("INSERT INTO about VALUES (?, ?)", uuid.uuid4().hex, seed)
            for since, statement in _SINCE:
                if version < since:
                    self._write(statement)
            if version < _VERSION:
                self._write(f"PRAGMA user_version = {_VERSION}")
            rows = self._rows("SELECT uid, seed FROM about")
        if len(rows) != 1:
            raise self._damaged("the market's seed is missing")
        about = rows[0]
        if about["seed"] != seed:
            raise SetupError(
                f"the local market at {self._path.parent} has seed {about['seed']}, not {seed}",
                hint="bills depend on the seed: keep it, or use another state folder",
            )
        return str(about["uid"])

    def _records(self, where: str, *arguments: object) -> list[Record]:
        rows = self._rows(f"SELECT * FROM instances {where}", *arguments)
        try:
            return [_record(row) for row in rows]
        except ValueError as error:
            raise self._damaged(error) from error

    def _rows(self, statement: str, *arguments: object) -> list[sqlite3.Row]:
        with self._lock, self._translated():
            return self._db.execute(statement, arguments).fetchall()

    def _write(self, statement: str, *arguments: object) -> None:
        with self._lock, self._translated():
            self._db.execute(statement, arguments)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise self._unavailable(error) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error

    def _damaged(self, detail: object) -> SetupError:
        return SetupError(
            f"the books of the local provider at {self._path} are damaged: {detail}",
            hint="end all processes with TRADEWIND_INSTANCE_ID in their environment, then move this folder away;"
            " a new market starts with empty books",
        )

    def _unavailable(self, error: Exception) -> UnavailableError:
        if getattr(error, "sqlite_errorcode", None) in _FULL:
            return UnavailableError(
                f"the disk is full, so the books of the local provider at {self._path} cannot be used: {error}",
                hint=f"free some space at {self._path.parent}, then try again",
                scope="cloud",
            )
        return UnavailableError(
            f"the books of the local provider at {self._path} cannot be used now: {error}",
            hint="check that the disk is not full, the folder is writable and no other program uses it",
            scope="cloud",
        )


def _usage(row: sqlite3.Row) -> Usage:
    return Usage(
        tuple(row["at"].split("/")),
        tuple(row["moved_from"].split("/")) if row["moved_from"] else (),
        row["moved_bytes"],
        row["kept_bytes"],
    )


def _record(row: sqlite3.Row) -> Record:
    reason = row["ending_reason"]
    return Record(
        id=row["id"],
        token=row["token"],
        offer_id=row["offer_id"],
        user_data=row["user_data"],
        tags=json.loads(row["tags"]),
        accepted_ms=row["accepted_ms"],
        expires_ms=row["expires_ms"],
        leader=None if row["pid"] is None else Leader(row["pid"], row["start_ticks"], row["boot_id"]),
        notice_deadline_ms=row["notice_deadline_ms"],
        notice_deadline_s=row["notice_deadline_s"],
        ending_at_ms=row["ending_at_ms"],
        ending_reason=None if reason is None else EndReason(reason),
        gentle=bool(row["gentle"]),
        sigterm_at_s=row["sigterm_at_s"],
        ended_ms=row["ended_ms"],
    )
