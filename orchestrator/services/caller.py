"""Caller: who submits jobs and gives orders. It is recorded with them; it gives no rights yet."""

from __future__ import annotations

import getpass
import re
from dataclasses import dataclass

from orchestrator.errors import UsageError

LONGEST_OWNER = 200
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # as in a job file


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity that a Client acts under.

    `owner` becomes the owner of the jobs that it submits, and the actor `user:<owner>` of its orders and events.
    `project` is that of a job file or mapping which names none. Nothing checks that a caller is who it says, and every
    caller may do everything that the operating system lets its process do. Raises UsageError for a name that cannot be
    recorded.
    """

    owner: str
    project: str = "default"

    def __post_init__(self) -> None:
        named = isinstance(self.owner, str) and 0 < len(self.owner) <= LONGEST_OWNER and self.owner.isprintable()
        if not named or self.owner != self.owner.strip():
            raise UsageError(
                f"{self.owner!r:.80} is not a valid owner",
                hint=f"1 to {LONGEST_OWNER} printable characters, without spaces around them",
            )
        if not isinstance(self.project, str) or not _PROJECT.fullmatch(self.project):
            raise UsageError(f"{self.project!r} is not a valid project", hint="write it as in a job file: vision-2")

    @classmethod
    def from_environment(cls) -> Caller:
        """The operating system's user of this process (`unknown` where the system has none), project `default`."""
        try:
            name = getpass.getuser()
        except (KeyError, OSError):
            name = ""
        recordable = "".join(filter(str.isprintable, name)).strip()[:LONGEST_OWNER].strip()
        return cls(recordable or "unknown")

    @property
    def actor(self) -> str:
        """How events and orders name the caller."""
        return f"user:{self.owner}"
