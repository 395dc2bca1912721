"""The bucket that holds an installation's orders, reports and checkpoints: its state, its contents, and messages about
it."""

from __future__ import annotations

from dataclasses import dataclass

from providers.errors import SetupError

ABORT_AFTER_DAYS = 2
"""After this many days, a bucket made by Tradewind deletes the parts of interrupted uploads."""
AT_MOST = 1000
"""How many objects of a bucket are counted at most: one page of its list."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket that exists. `own`: it was made for this installation; only then are its rules corrected, and may it be
    removed. `missing` describes what `make_bucket` would create or correct. `region` is the cloud's name for it."""

    provider: str
    url: str
    region: str
    own: bool
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """Number and size of the first objects of a bucket; `more`: there are others."""

    objects: int
    size_bytes: int
    more: bool

    def __str__(self) -> str:
        size = f"{self.size_bytes / 1e6:,.1f} MB"
        if self.more:
            return f"more than {self.objects:,} objects (the first {self.objects:,} have {size})"
        return f"{self.objects} object{'' if self.objects == 1 else 's'}, {size}"


def taken(name: str, change: str) -> SetupError:
    """The error for a bucket name that another account has; `change` is where the name is set."""
    return SetupError(
        f"the name {name} belongs to another account: bucket names are unique across all accounts of this cloud",
        hint=f"choose another name: {change}",
        scope="account",
    )


def not_ours(url: str, command: str) -> str:
    """The line about a bucket that Tradewind did not make; `command` removes it."""
    return (
        f"{url} is kept: Tradewind did not make it for this installation; to delete it with all its contents: {command}"
    )


def not_empty(url: str, holds: Contents | str, command: str) -> str:
    """The line about a bucket that is not removed because it holds something; `command` removes it."""
    return f"{url} is kept: it holds {holds}; to delete it with all checkpoints: {command}"
