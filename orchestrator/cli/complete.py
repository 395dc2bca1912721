"""Completion of job and group ids and names in well under 100 ms: reads the store's file with the standard library
only.

It runs at every TAB, so it loads neither the SDK nor SQLAlchemy; any error means "no suggestion".
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def jobs(incomplete: str) -> list[tuple[str, str]]:
    """(id or name, help) of the newest jobs that begin with `incomplete`."""
    return _newest("SELECT id, name, state FROM job ORDER BY id DESC LIMIT 200", incomplete)


def groups(incomplete: str) -> list[tuple[str, str]]:
    """(id or name, help) of the newest groups that begin with `incomplete`."""
    return _newest("SELECT id, name, policy FROM job_group ORDER BY id DESC LIMIT 200", incomplete)


def _newest(query: str, incomplete: str) -> list[tuple[str, str]]:
    """(id or name, help) for each row (id, name, help) of a query whose id or name begins with `incomplete`."""
    path = _database()
    if path is None:
        return []
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=0.05)) as connection:
            rows = connection.execute(query).fetchall()
    except sqlite3.Error:
        return []
    found: dict[str, str] = {}
    for number, name, text in rows:
        found.setdefault(name, text)
        found.setdefault(number, f"{name}, {text}")
    return [(word, text) for word, text in found.items() if word.startswith(incomplete)]


def _database() -> Path | None:
    """The store's file; None if there is none, or if it is not an SQLite file."""
    from orchestrator.config import load_config
    from orchestrator.config.store_url import file_of_url
    from orchestrator.errors import SpecError

    try:
        url = load_config().store_url
    except SpecError:
        return None
    path = file_of_url(url)
    return path if path is not None and path.is_file() else None
