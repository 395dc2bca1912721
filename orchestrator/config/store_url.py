"""Converts between the path of a SQLite store and its URL."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

STORE_FILE = "tradewind.db"
"""The store in a state folder, unless `store_url` names another one."""


def url_of_file(path: Path) -> str:
    """The SQLite URL of a file. The path is escaped, because `%` begins an escape and `?` the options of a URL."""
    return f"sqlite:///{str(path).replace('%', '%25').replace('?', '%3F')}"


def file_of_url(url: str) -> Path | None:
    """The inverse; None for a database that is not a file."""
    kind, separator, rest = url.partition(":///")
    if not kind.startswith("sqlite") or not separator:
        return None
    return Path(unquote(rest.partition("?")[0]))
