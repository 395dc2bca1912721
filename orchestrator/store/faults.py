"""What a database says when something is wrong, as a StoreError with the remedy. Must not know tables or queries."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError

from orchestrator.errors import StoreError

_Fault = tuple[str, str]  # what is wrong, the remedy

_LOCKED: _Fault = (
    "is locked by another process",
    "try again; if it lasts, a process hangs in the middle of a write: resume or end it",
)
_FULL: _Fault = ("cannot grow: the disk is full", "free some space; the change was undone, nothing was lost")
_READ_ONLY: _Fault = ("is read-only", "give this user write permission on it and on its folder")
_DAMAGED: _Fault = ("is damaged", "stop everything that uses it and put a backup in its place")
_BROKEN_DISK: _Fault = ("cannot be read or written", "look for a full or failing disk; the change was undone")
_REFUSED: _Fault = (
    "refused a change that contradicts what it holds",
    "nothing was changed; please report this with the message above",
)
_UNREACHABLE: _Fault = (
    "cannot be reached",
    "check that the server runs, that the database exists (createdb NAME) and that the address is right",
)

_SQLITE: dict[int, _Fault] = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "check that the folder exists and that this user may write to it"),
    sqlite3.SQLITE_NOTADB: ("is not a database", "another program wrote this file: name another one, or move it away"),
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_IOERR: _BROKEN_DISK,
    sqlite3.SQLITE_CONSTRAINT: _REFUSED,
}

_POSTGRES: dict[str, _Fault] = {  # SQLSTATE, or its class
    "55P03": _LOCKED,
    "25P03": ("ended a transaction that stood still", "nothing was changed; try again"),
    "53100": _FULL,
    "53": ("is out of resources", "see the log of the database server"),
    "25006": _READ_ONLY,
    "42501": ("refuses this user", "grant it all rights on this database"),
    "XX001": _DAMAGED,
    "XX002": _DAMAGED,
    "58": _BROKEN_DISK,
    "23": _REFUSED,
}


def explain(error: DBAPIError | sqlite3.Error, place: str) -> StoreError:
    """The error of a driver in our words; `place` names the store without its password."""
    cause: BaseException | None = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        fault = _SQLITE.get(code & 0xFF)  # the low byte is the primary code
    else:
        state = getattr(cause, "sqlstate", None)
        fault = (_POSTGRES.get(state) or _POSTGRES.get(state[:2])) if state else None
        if fault is None and (state is None or state.startswith(("08", "57"))):
            fault = _UNREACHABLE
    what, hint = fault or ("failed", "please report this with the message above")
    return StoreError(f"the store {place} {what}: {str(cause).strip()}", hint=hint)
