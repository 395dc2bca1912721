"""Who asks: the operating system's user."""

from __future__ import annotations

import getpass


def user() -> str:
    """The name of the user; `unknown` where the system has none for this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def actor() -> str:
    """The user as an event's actor."""
    return f"user:{user()}"
