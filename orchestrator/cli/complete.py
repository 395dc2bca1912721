"""Completion of job ids and names, in well under 100 ms: reads the store's file with the standard library alone.

It runs at every press of TAB, so it loads neither the SDK nor SQLAlchemy, and any trouble means "no suggestion".
"""

from __future__ import annotations

import sqlite3
from pathlib import Path


def jobs(incomplete: str) -> list[tuple[str, str]]:
    """(id or name, help) of the newest jobs that begin with `incomplete`."""
    path = _database()
    if path is None:
        return []
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=0.05) as connection:
            rows = connection.execute("SELECT id, name, state FROM job ORDER BY id DESC LIMIT 200").fetchall()
    except sqlite3.Error:
        return []
    found: dict[str, str] = {}
    for job_id, name, state in rows:
        found.setdefault(name, state)
        found.setdefault(job_id, f"{name}, {state}")
    return [(word, text) for word, text in found.items() if word.startswith(incomplete)]


def groups(incomplete: str) -> list[tuple[str, str]]:
    """(id or name, help) of the newest groups that begin with `incomplete`."""
    path = _database()
    if path is None:
        return []
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=0.05) as connection:
            rows = connection.execute("SELECT id, name, policy FROM job_group ORDER BY id DESC LIMIT 200").fetchall()
    except sqlite3.Error:
        return []
    found: dict[str, str] = {}
    for group_id, name, policy in rows:
        found.setdefault(name, policy)
        found.setdefault(group_id, f"{name}, {policy}")
    return [(word, text) for word, text in found.items() if word.startswith(incomplete)]


def _database() -> Path | None:
    """The store's file; None where there is none, or where it is no file of SQLite's."""
    from orchestrator.config import load_config
    from orchestrator.config.store_url import file_of_url
    from orchestrator.errors import SpecError

    try:
        url = load_config().store_url
    except SpecError:
        return None
    path = file_of_url(url)
    return path if path is not None and path.is_file() else None
