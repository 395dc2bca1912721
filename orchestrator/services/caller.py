"""Caller: the identity that is recorded with submitted jobs and commands. It grants no permissions yet."""

from __future__ import annotations

import getpass
import re
from dataclasses import dataclass

from orchestrator.errors import UsageError, echoed

LONGEST_OWNER = 200
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # as in a job file


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity that a Client acts under.

    `owner` is the owner of its jobs and the actor `user:<owner>` of its commands and events. `project` is the default
    for job files and mappings without one. The identity is not authenticated: every caller may do everything that the
    operating system permits its process. Raises UsageError for an invalid name.
    """

    owner: str
    project: str = "default"

    def __post_init__(self) -> None:
        named = isinstance(self.owner, str) and 0 < len(self.owner) <= LONGEST_OWNER and self.owner.isprintable()
        if not named or self.owner != self.owner.strip():
            raise UsageError(
                f"{echoed(self.owner)} is not a valid owner",
                hint=f"1 to {LONGEST_OWNER} printable characters, without spaces around them",
            )
        if not isinstance(self.project, str) or not _PROJECT.fullmatch(self.project):
            raise UsageError(
                f"{echoed(self.project)} is not a valid project",
                hint="use a name as in a job file, for example vision-2",
            )

    @classmethod
    def from_environment(cls) -> Caller:
        """The operating system's user of this process (`unknown` if there is none), project `default`."""
        try:
            name = getpass.getuser()
        except (KeyError, OSError):
            name = ""
        recordable = "".join(filter(str.isprintable, name)).strip()[:LONGEST_OWNER].strip()
        return cls(recordable or "unknown")

    @property
    def actor(self) -> str:
        """The caller's name in events and commands."""
        return f"user:{self.owner}"
