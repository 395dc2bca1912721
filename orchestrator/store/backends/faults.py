"""Maps database errors to StoreErrors with remedies."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from sqlalchemy.exc import DBAPIError

from orchestrator.errors import RowError, StoreDamagedError, StoreError


class _Fault(NamedTuple):
    """The problem and the remedy. `sound`: the connection can be used again; otherwise a new one is opened. `kind`
    distinguishes faults of one row from faults of the database."""

    what: str
    remedy: str
    sound: bool = False
    kind: type[StoreError] = StoreError


_RESTORE = "stop everything that uses it, then: tradewind store restore BACKUP"
_LOCKED = _Fault(
    "is locked by another process",
    "try again; if it persists, a process is stuck in a write: resume it or end it",
    sound=True,
)
_FULL = _Fault("cannot grow: the disk is full", "free some space; the change was rolled back and nothing was lost")
_READ_ONLY = _Fault(
    "is read-only", "give this user write permission on it, on its -wal and -shm files and on its folder"
)
_WRITE_IN_A_READ = _Fault(
    "was to be changed within a read transaction",
    "nothing was changed; make the change within `store.write()`",
    sound=True,
)
_DAMAGED = _Fault("is damaged", _RESTORE, kind=StoreDamagedError)
_BROKEN_DISK = _Fault("cannot be read or written", "check for a full or failing disk; the change was rolled back")
_REFUSED = _Fault(
    "rejected a change that violates a constraint",
    "nothing was changed; please report this with the message above",
    sound=True,
    kind=RowError,
)
_UNREACHABLE = _Fault(
    "cannot be reached",
    "check that the server is running, that the database exists (createdb NAME) and that the URL is correct",
)
_UNCERTAIN = _Fault(
    "lost its connection while a change was being committed",
    "the change was made either completely or not at all: check before you repeat it",
)
_TOO_SLOW = _Fault(
    "ended a statement that took longer than statement_timeout allows",
    "nothing was changed; allow this role more time: ALTER ROLE name SET statement_timeout = '60s'",
)
_TOO_MANY = _Fault(
    "has too many clients",
    "nothing was changed; try again in a moment, and raise the server's max_connections if this happens often",
)
_UNKNOWN = _Fault("failed", "please report this with the message above")

_LACKING = ("no such table", "no such column", "no column named", "Could not decode to UTF-8")
"""Messages of SQLite and of Python's sqlite3 for missing tables and columns and for text that is not UTF-8."""

_REFUSED_CLIENTS = ("too many clients", "too many connections", "remaining connection slots", "no more connections")
"""Messages with which Postgres and connection poolers refuse a connection; they come without an SQLSTATE."""

_SQLITE: dict[int, _Fault] = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: _Fault(
        "cannot be opened", "check that the folder exists and that this user may write to it"
    ),
    sqlite3.SQLITE_NOTADB: _Fault(
        "is not a database",
        "its first page is damaged (tradewind store restore BACKUP), or another program wrote this file: use another "
        "file",
    ),
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_IOERR: _BROKEN_DISK,
    sqlite3.SQLITE_CONSTRAINT: _REFUSED,
}

_POSTGRES: dict[str, _Fault] = {  # SQLSTATE, or its class
    "55P03": _LOCKED,
    "25P03": _Fault("ended an idle transaction", "nothing was changed; try again"),
    "53100": _FULL,
    "53300": _TOO_MANY,
    "57014": _TOO_SLOW,
    "42P01": _DAMAGED,  # a table of every store is missing
    "42703": _DAMAGED,
    "53": _Fault("is out of resources", "see the log of the database server"),
    "25006": _READ_ONLY,
    "42501": _Fault("denies access to this user", "grant the user all rights on this database"),
    "XX": _DAMAGED,
    "58": _BROKEN_DISK,
    "22": _REFUSED,  # a value out of the range of its column type
    "23": _REFUSED,
}


def explain(error: Exception, place: str, *, committing: bool = False, reading: bool = False) -> StoreError:
    """The StoreError for a driver's error or SQLAlchemy's wrapper of it; `place` names the store without its password.

    If a connection is lost while `committing`, the change may or may not have been made. `reading`: within a
    transaction that only reads.
    """
    fault = _fault(error, reading=reading)
    if committing and fault is _UNREACHABLE:
        fault = _UNCERTAIN
    return fault.kind(f"the store {place} {fault.what}: {str(_cause(error)).strip()}", hint=fault.remedy)


def damaged(error: Exception, place: str) -> StoreDamagedError:
    """The error for a result that a valid store cannot give."""
    return StoreDamagedError(f"the store {place} is damaged: {error}", hint=_RESTORE)


def invalidates_connections(error: Exception, *, reading: bool) -> bool:
    """True if open connections may share the fault (one opened on a read-only file stays read-only). For `reading` see
    `explain`."""
    return not _fault(error, reading=reading).sound


def of_disk(error: Exception) -> bool:
    """True if a disk is full or fails: the data to read or write is not the cause."""
    return _fault(error) in (_FULL, _BROKEN_DISK)


def too_many_clients(error: Exception) -> bool:
    """True if a server refused a connection because it has too many."""
    return _fault(error) is _TOO_MANY


def _fault(error: Exception, *, reading: bool = False) -> _Fault:
    cause = _cause(error)
    code = getattr(cause, "sqlite_errorcode", None)
    # A file or folder without write permission has an extended code of SQLite while it is only read.
    if reading and (code == sqlite3.SQLITE_READONLY or getattr(cause, "sqlstate", None) == "25006"):
        return _WRITE_IN_A_READ
    if code == sqlite3.SQLITE_IOERR_SHMSIZE:  # no space for the index of the journal, which reading also needs
        return _FULL
    if code is not None or isinstance(cause, sqlite3.Error):
        if any(words in str(cause) for words in _LACKING):
            return _DAMAGED
        return _SQLITE.get((code or 0) & 0xFF, _UNKNOWN)  # the low byte is the primary code
    state = getattr(cause, "sqlstate", None)
    if state is None and any(words in str(cause) for words in _REFUSED_CLIENTS):
        return _TOO_MANY
    if state is None:
        return _UNREACHABLE
    named = _POSTGRES.get(state)
    if named is None and state.startswith(("08", "57")):
        return _UNREACHABLE
    return named or _POSTGRES.get(state[:2]) or _UNKNOWN


def _cause(error: Exception) -> BaseException | None:
    return error.orig if isinstance(error, DBAPIError) else error
