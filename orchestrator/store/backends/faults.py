"""What a database says when something is wrong, as a StoreError with the remedy."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from sqlalchemy.exc import DBAPIError

from orchestrator.errors import RowError, StoreDamagedError, StoreError


class _Fault(NamedTuple):
    """What is wrong and the remedy. A `sound` connection may be used again, any other is opened anew. `kind` tells
    whether it lies in the values of one row or in the database."""

    what: str
    remedy: str
    sound: bool = False
    kind: type[StoreError] = StoreError


_RESTORE = "stop everything that uses it, then: tradewind store restore BACKUP"
_LOCKED = _Fault(
    "is locked by another process",
    "try again; if it lasts, a process hangs in the middle of a write: resume or end it",
    sound=True,
)
_FULL = _Fault("cannot grow: the disk is full", "free some space; the change was undone, nothing was lost")
_READ_ONLY = _Fault(
    "is read-only", "give this user write permission on it, on what lies beside it (-wal, -shm) and on its folder"
)
_DAMAGED = _Fault("is damaged", _RESTORE, kind=StoreDamagedError)
_BROKEN_DISK = _Fault("cannot be read or written", "look for a full or failing disk; the change was undone")
_REFUSED = _Fault(
    "refused a change that contradicts what it holds",
    "nothing was changed; please report this with the message above",
    sound=True,
    kind=RowError,
)
_UNREACHABLE = _Fault(
    "cannot be reached",
    "check that the server runs, that the database exists (createdb NAME) and that the address is right",
)
_UNCERTAIN = _Fault(
    "was lost while a change was being committed",
    "the change was made either wholly or not at all: look before you ask for it again",
)
_TOO_SLOW = _Fault(
    "ended a statement that took longer than statement_timeout allows",
    "nothing was changed; allow this role more: ALTER ROLE name SET statement_timeout = '60s'",
)
_TOO_MANY = _Fault(
    "has too many clients",
    "nothing was changed; try again in a moment, and raise max_connections of the server if it happens often",
)
_UNKNOWN = _Fault("failed", "please report this with the message above")

_LACKING = ("no such table", "no such column", "no column named", "Could not decode to UTF-8")
"""How SQLite, and Python's module for it, say that what every store has is not there, or not as text."""

_REFUSED_CLIENTS = ("too many clients", "too many connections", "remaining connection slots", "no more connections")
"""How Postgres and poolers refuse a connection; on the way in, their words come without an SQLSTATE."""

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
        "its first page is damaged (tradewind store restore BACKUP), or another program wrote this file: then name "
        "another one",
    ),
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_IOERR: _BROKEN_DISK,
    sqlite3.SQLITE_CONSTRAINT: _REFUSED,
}

_POSTGRES: dict[str, _Fault] = {  # SQLSTATE, or its class
    "55P03": _LOCKED,
    "25P03": _Fault("ended a transaction that stood still", "nothing was changed; try again"),
    "53100": _FULL,
    "53300": _TOO_MANY,
    "57014": _TOO_SLOW,
    "42P01": _DAMAGED,  # a table that every store has is not there
    "42703": _DAMAGED,
    "53": _Fault("is out of resources", "see the log of the database server"),
    "25006": _READ_ONLY,
    "42501": _Fault("refuses this user", "grant it all rights on this database"),
    "XX": _DAMAGED,
    "58": _BROKEN_DISK,
    "22": _REFUSED,  # a value that no column of this type can hold
    "23": _REFUSED,
}


def explain(error: Exception, place: str, *, committing: bool = False) -> StoreError:
    """The error of a driver, or SQLAlchemy's around it, in our words; `place` names the store without its password.

    A connection that is lost while `committing` leaves open whether the server still heard of it.
    """
    fault = _fault(error)
    if committing and fault is _UNREACHABLE:
        fault = _UNCERTAIN
    return fault.kind(f"the store {place} {fault.what}: {str(_cause(error)).strip()}", hint=fault.remedy)


def damaged(error: Exception, place: str) -> StoreDamagedError:
    """SQLAlchemy's word for an answer that no store gives."""
    return StoreDamagedError(f"the store {place} is damaged: {error}", hint=_RESTORE)


def spoils(error: Exception) -> bool:
    """Whether open connections may have to do with the error (one opened on a read-only file stays read-only)."""
    return not _fault(error).sound


def takes_no_more_clients(error: Exception) -> bool:
    """Whether a server refused a connection because it has too many."""
    return _fault(error) is _TOO_MANY


def _fault(error: Exception) -> _Fault:
    cause = _cause(error)
    code = getattr(cause, "sqlite_errorcode", None)
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
