"""Errors: everything that Tradewind raises on purpose, with its remedy and the exit code of the command line.

TradewindError            1
 +- UsageError            2   a command or argument that is not valid here
 |   +- TokenConflictError 2  the token belongs to another submission
 +- SpecError             3   the job file or configuration is not valid (lists all problems)
 +- NotFoundError         4   the job, run, plan, migration or event does not exist
 +- ProviderFailure       5   a provider or its credentials failed
 +- MissingExtraError     5   an optional dependency is not installed
 +- StoreError            5   the store cannot be read or written
 |   +- StoreVersionError 5   written by a newer version
 |   +- StoreDamagedError 5   its content cannot be read
 |   +- RowError          5   one row cannot be read or written; the store itself works
 |   |   +- BookingError 5   time would be booked twice, or after its machine's end
 |   |   +- UnreadableRowError 5   (also a StoreDamagedError) a row has values that its table cannot have
 |   +- NotLeaderError    5   another control plane acts on this store
 |   +- SupersededError   5   another store with this installation's id acts on its machines
 +- SiteError             5   Ray or a node of a site failed
 +- OutputError           5   the result cannot be written to standard output
 +- InfeasibleError       6   no offer meets the objective and the constraints
 +- StalePlanError        7   the market or the jobs changed since the plan was made
 +- PartialFailure        8   some of several actions failed; also: the awaited job failed
 +- LimitError             9   a budget or another limit does not allow the cost

10 is `plan --check` if a move would be made; 130 is Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

LONGEST_ECHO = 80
"""The most characters of user input that an error quotes."""


class TradewindError(Exception):
    """The base class. `hint` is the remedy in one sentence; `exit_code` is the exit code of the command line."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(TradewindError):
    """A command or argument that is not valid here. Exit code 2."""

    exit_code = 2


class TokenConflictError(UsageError):
    """The submission token belongs to another submission. Exit code 2."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file: where (1-based line and column), which field, what is wrong, and what to do.

    `line` is 0 if there is no file: a Python mapping, an environment variable, a flag. `unsupported`: the field is
    valid, but this version does not support it yet.
    """

    path: str
    line: int
    column: int
    field: str
    message: str
    hint: str = ""
    unsupported: bool = False

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}:{self.column}:" if self.line else f"{self.path}:"
        field = f" {self.field}:" if self.field else ""
        return f"{where}{field} {self.message}" + (f" ({self.hint})" if self.hint else "")


class SpecError(TradewindError):
    """A job or configuration file with problems. str() lists all of them, one per line. Exit code 3."""

    exit_code = 3

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(p) for p in problems))
        self.problems = tuple(problems)


def did_you_mean(word: str, options: Iterable[str], key: Callable[[str], str] = str) -> str:
    """`did you mean "x"?` with the option whose `key` is closest to `word`; empty if none is close, or if `word` itself
    is an option, so that the error is elsewhere."""
    known = list(options)
    near = "" if word in known else nearest(word, known, key)
    return f'did you mean "{near}"?' if near else ""


def one_of(word: str, options: Iterable[str]) -> str:
    """A hint that lists the options, after the one that was probably meant."""
    known = list(options)
    near, listed = did_you_mean(word, known), ", ".join(known)
    return f"{near} All are: {listed}" if near else f"one of {listed}"


def echoed(given: object) -> str:
    """User input as an error quotes it: on one line, and shortened if it is long."""
    return shortened(repr(given))


def shortened(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= LONGEST_ECHO else f"{text[: LONGEST_ECHO - 3]}..."


def nearest(word: str, options: Iterable[str], key: Callable[[str], str] = str) -> str:
    """The option whose `key` is closest to `word`, ignoring case; empty if none is close."""
    import difflib  # only needed for an error

    by_folded = {key(option).casefold(): option for option in options}
    near = difflib.get_close_matches(word.casefold(), by_folded, n=1)
    return by_folded[near[0]] if near else ""


def one_edit_apart(word: str, other: str) -> bool:
    """Whether the words differ by one letter that is missing, added, changed, or swapped with the next one."""
    if word == other:
        return False
    at = next((i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))
    rest, others = word[at:], other[at:]
    return rest[1:] in (others, others[1:]) or rest == others[1:] or (rest[1::-1] + rest[2:] == others)


class NotFoundError(TradewindError):
    """A job, run, plan, migration, event, file or other object that does not exist. Exit code 4."""

    exit_code = 4


class ProviderFailure(TradewindError):
    """A provider failed or rejected its credentials. Exit code 5."""

    exit_code = 5


class MissingExtraError(TradewindError):
    """An optional dependency is missing; the hint is the pip command that installs it. Exit code 5."""

    exit_code = 5

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"this needs {module}, which is not installed", hint=f"pip install 'tradewind[{extra}]'")


class StoreError(TradewindError):
    """The store cannot be read or written. Exit code 5."""

    exit_code = 5


class StoreVersionError(StoreError):
    """The store was written by a newer version. Exit code 5."""


class StoreDamagedError(StoreError):
    """The store's content cannot be read. Exit code 5."""


class RowError(StoreError):
    """One row cannot be read or written; the store itself works. Exit code 5."""


class BookingError(RowError):
    """An entry contradicts its run or earlier entries, so nothing was booked. Exit code 5."""


class UnreadableRowError(RowError, StoreDamagedError):
    """A row with values that its table cannot have; `table` and `key` name it. Exit code 5."""

    def __init__(self, table: str, key: object, reason: str) -> None:
        super().__init__(
            f"the store is damaged: {table} {key} cannot be read: {reason}",
            hint="to see all damage: tradewind store check; to repair: tradewind store restore BACKUP",
        )
        self.table = table
        self.key = key
        self.reason = reason


class NotLeaderError(StoreError):
    """Another control plane acts on this store. Exit code 5."""


class SupersededError(StoreError):
    """Another store with this installation's id acts on its machines. Exit code 5."""


class SiteError(TradewindError):
    """Ray or a node of a site failed. Exit code 5."""

    exit_code = 5


class OutputError(TradewindError):
    """The result cannot be written to standard output. Exit code 5."""

    exit_code = 5


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A change that by itself may make a plan possible: deadlines of `jobs` (names) `delay_s` later, or a limit of
    `limit` instead of `instead_of` for a `quota` (named as for `--what-if`).

    `enough`: whether it makes a plan possible; None if there was no time to find out. `cost_nano_usd`: the estimated
    cost of that plan.
    """

    enough: bool | None
    jobs: tuple[str, ...] = ()
    delay_s: float | None = None
    quota: str = ""
    limit: int | None = None
    instead_of: int | None = None
    cost_nano_usd: int | None = None


class InfeasibleError(TradewindError):
    """No offer meets the objective and the constraints; `relaxations` are changes that may help, if they were computed.
    Exit code 6."""

    exit_code = 6

    def __init__(self, message: str, *, hint: str = "", relaxations: Sequence[Relaxation] = ()) -> None:
        super().__init__(message, hint=hint)
        self.relaxations = tuple(relaxations)


class StalePlanError(TradewindError):
    """The market or the jobs changed since the plan was made. Exit code 7."""

    exit_code = 7


class PartialFailure(TradewindError):
    """Some of several actions failed, or the awaited job failed. Exit code 8."""

    exit_code = 8


class LimitError(TradewindError):
    """A budget or another limit does not allow the cost. Exit code 9."""

    exit_code = 9
