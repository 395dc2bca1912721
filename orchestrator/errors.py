"""Every error that Tradewind raises on purpose, with the remedy and the exit code of the command line.

TradewindError            1
 +- UsageError            2   a command or argument that is not valid here
 |   +- TokenConflictError 2  the token of another submission
 +- SpecError             3   job file or configuration is wrong (all problems at once)
 +- NotFoundError         4   no such job, run, plan, migration or event
 +- ProviderFailure       5   a provider or its credentials
 +- MissingExtraError     5   an optional dependency is not installed
 +- StoreError            5   the store cannot be read or written
 |   +- StoreVersionError 5   written by a newer version
 |   +- StoreDamagedError 5   what it holds cannot be read
 |   +- RowError          5   one row cannot be read or written; the store itself works
 |   |   +- BookingError 5   a time would be booked twice, or past its machine's end
 |   |   +- UnreadableRowError 5   (a StoreDamagedError, too) it holds what no row of its table can hold
 |   +- NotLeaderError    5   another control plane acts on this store
 |   +- SupersededError   5   another store with this installation's id acts on its machines
 +- SiteError             5   Ray or a node of a site failed
 +- OutputError           5   the result cannot be written to standard output
 +- InfeasibleError       6   no offer meets the objective and the constraints
 +- StalePlanError        7   the market or the jobs moved since the plan was made
 +- PartialFailure        8   some of several things failed; also: the awaited job failed
 +- LimitError             9   a budget or another limit refused to spend

10 is `plan --check` when a move would be made; 130 is Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class TradewindError(Exception):
    """Base: `hint` is the remedy in one sentence."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(TradewindError):
    exit_code = 2


class TokenConflictError(UsageError):
    pass


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file: where (1-based line and column), which field, what, and what to do.

    `line` is 0 where there is no file: a mapping from Python, an environment variable, a flag.
    """

    path: str
    line: int
    column: int
    field: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}:{self.column}:" if self.line else f"{self.path}:"
        field = f" {self.field}:" if self.field else ""
        return f"{where}{field} {self.message}" + (f" ({self.hint})" if self.hint else "")


class SpecError(TradewindError):
    """A job or configuration file with problems; str() lists every one, a line each."""

    exit_code = 3

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(p) for p in problems))
        self.problems = tuple(problems)


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """`did you mean "x"?` for the option nearest to `word`; empty when none is near."""
    import difflib  # only ever needed on the way to an error

    by_folded = {option.casefold(): option for option in options}
    near = difflib.get_close_matches(word.casefold(), by_folded, n=1)
    return f'did you mean "{by_folded[near[0]]}"?' if near else ""


def one_edit_apart(word: str, other: str) -> bool:
    """Whether one letter was left out, added, changed, or swapped with the next one."""
    if word == other:
        return False
    at = next((i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))
    rest, others = word[at:], other[at:]
    return rest[1:] in (others, others[1:]) or rest == others[1:] or (rest[1::-1] + rest[2:] == others)


class NotFoundError(TradewindError):
    exit_code = 4


class ProviderFailure(TradewindError):
    exit_code = 5


class MissingExtraError(TradewindError):
    """Names the pip command that installs what is missing."""

    exit_code = 5

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"this needs {module}, which is not installed", hint=f"pip install 'tradewind[{extra}]'")


class StoreError(TradewindError):
    exit_code = 5


class StoreVersionError(StoreError):
    pass


class StoreDamagedError(StoreError):
    pass


class RowError(StoreError):
    pass


class BookingError(RowError):
    """Nothing was booked: the entry contradicts its run, or what is booked of it already."""


class UnreadableRowError(RowError, StoreDamagedError):
    """One row holds what no row of its table can hold; `table` and `key` name it, so that others can go on."""

    def __init__(self, table: str, key: object, reason: str) -> None:
        super().__init__(
            f"the store is damaged: {table} {key} cannot be read: {reason}",
            hint="see what else is: tradewind store check; the way back: tradewind store restore BACKUP",
        )
        self.table = table
        self.key = key
        self.reason = reason


class NotLeaderError(StoreError):
    pass


class SupersededError(StoreError):
    pass


class SiteError(TradewindError):
    exit_code = 5


class OutputError(TradewindError):
    exit_code = 5


class InfeasibleError(TradewindError):
    exit_code = 6


class StalePlanError(TradewindError):
    exit_code = 7


class PartialFailure(TradewindError):
    exit_code = 8


class LimitError(TradewindError):
    exit_code = 9
