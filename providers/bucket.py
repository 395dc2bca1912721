"""The bucket that holds an installation's orders, reports and checkpoints: what is said of it, and what is in it."""

from __future__ import annotations

from dataclasses import dataclass

from providers.errors import SetupError

ABORT_AFTER_DAYS = 2
"""After so many days a bucket of ours deletes the parts of uploads that were interrupted."""
AT_MOST = 1000
"""Objects of a bucket that are counted: one page of its list."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket that exists. `own`: it was made for this installation; only then its rules are corrected, and it may be
    removed. `missing` says in words what `make_bucket` would make or correct. `region` as its cloud names it."""

    provider: str
    url: str
    region: str
    own: bool
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """The first objects of a bucket; `more`: there are others."""

    objects: int
    size_bytes: int
    more: bool

    def __str__(self) -> str:
        size = f"{self.size_bytes / 1e6:,.1f} MB"
        if self.more:
            return f"more than {self.objects:,} objects (the first {self.objects:,} have {size})"
        return f"{self.objects} object{'' if self.objects == 1 else 's'}, {size}"


def taken(name: str, change: str) -> SetupError:
    """The name of a bucket that somebody else has; `change` is where it is set."""
    return SetupError(
        f"the name {name} belongs to somebody else: all accounts of this cloud share these names",
        hint=f"choose another name: {change}",
        scope="account",
    )


def not_ours(url: str, command: str) -> str:
    """The line about a bucket that Tradewind did not make; `command` removes it."""
    return (
        f"{url} is kept: Tradewind did not make it for this installation; to delete it with all that it has: {command}"
    )


def not_empty(url: str, holds: Contents | str, command: str) -> str:
    """The line about a bucket that is not removed because it holds something; `command` removes it."""
    return f"{url} is kept: it holds {holds}; to delete it with all checkpoints: {command}"
