"""Costs: what was spent in a period, by project, owner, kind, job, cloud or month, compared with the previous period.

Every total is the sum of its rows and of the ledger's entries. A change is split into its two causes: more or fewer
machine hours, and a higher or lower price per machine hour. The causes of the total are the sums of those of its rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import ClassVar, Literal, get_args

from orchestrator.errors import UsageError, did_you_mean, echoed, one_of
from orchestrator.formats.csv_cells import table
from orchestrator.installation import Installation
from orchestrator.model import Entry, EntryKind
from orchestrator.reports.periods import DAY_MS, Period, month_named
from orchestrator.services.paging import Cursors, checked_limit
from orchestrator.store import CostFilter, CostKey, CostSum, Tx
from providers.money import NANO_USD
from providers.offer import provider_of
from providers.registry import provider_names

CostGroup = Literal["project", "owner", "kind", "job", "cloud", "offer", "basis", "day", "month"]
GROUPS: tuple[CostGroup, ...] = get_args(CostGroup)
_KEYS: dict[str, CostKey] = {
    "project": "project",
    "owner": "owner",
    "kind": "kind",
    "job": "job",
    "offer": "offer",
    "cloud": "offer",
    "basis": "basis",
}
MOST_ROWS = 500
MOST_NAMED = 20  # valid values, in an error


@dataclass(frozen=True, slots=True)
class CostRow:
    """A group: its costs (nano-USD), machine hours, entries and jobs in the period, and its costs and hours in the
    previous period. `key` identifies the group in the ledger, `name` is for people. The change is `by_hours_nano_usd`
    plus `by_price_nano_usd`; both are None for days and months, which are not compared."""

    key: str
    name: str
    amount_nano_usd: int
    machine_ms: int
    entries: int
    jobs: int
    before_nano_usd: int
    before_machine_ms: int
    by_hours_nano_usd: int | None = None
    by_price_nano_usd: int | None = None

    @property
    def change_nano_usd(self) -> int:
        """The costs minus the costs of the previous period."""
        return self.amount_nano_usd - self.before_nano_usd


@dataclass(frozen=True, slots=True)
class CostDay:
    """The costs of each group on the UTC day that begins at `start_ms`, in nano-USD."""

    start_ms: int
    amounts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class CostView:
    """Costs by group, largest first, compared with those of `before_period`. `rows` has at most MOST_ROWS groups,
    unless all were requested; the others cost `rest` in total, and `left_out` is their number. `days` has the largest
    groups by day, and all others as ""."""

    kind: ClassVar[str] = "costs"

    at_ms: int
    from_ms: int
    until_ms: int
    period: str
    before_period: str
    group_by: CostGroup
    rows: tuple[CostRow, ...]
    total: CostRow
    days: tuple[CostDay, ...]
    left_out: int
    rest_nano_usd: int
    simulated: bool

    @property
    def so_far(self) -> str:
        """The name of the period, which may not have ended yet: `November 2026 so far`."""
        return f"{self.period} so far" if self.at_ms < self.until_ms else self.period

    def shortened(self, most: int) -> CostView:
        """The view with at most `most` rows; further rows are left out."""
        others = self.rows[most:]
        rest = self.rest_nano_usd + sum(each.amount_nano_usd for each in others)
        return replace(self, rows=self.rows[:most], left_out=self.left_out + len(others), rest_nano_usd=rest)


@dataclass(frozen=True, slots=True)
class EntryPage:
    """A page of ledger entries, newest first; `count` is the number of all matching entries, `amount_nano_usd` the sum
    of their parts in the period, as some begin before it or end after it."""

    kind: ClassVar[str] = "ledger-page"

    entries: tuple[Entry, ...]
    count: int
    amount_nano_usd: int
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class _Before:
    entry_id: str


_CURSORS = Cursors("ledger-page", _Before)
DRAWN = 6
"""Number of groups with a separate color."""


def costs(
    installation: Installation,
    period: Period,
    group_by: CostGroup = "project",
    wanted: CostFilter | None = None,
    *,
    every: bool = False,
) -> CostView:
    """The costs of a period by group: the MOST_ROWS largest groups, or all with `every`. `wanted` filters the entries;
    its period is ignored. Raises UsageError for an unknown grouping, kind, cloud or project."""
    if group_by not in GROUPS:
        raise UsageError(f"{group_by!r:.40} is not a grouping", hint=one_of(group_by, GROUPS))
    chosen = replace(wanted or CostFilter(), since_ms=period.from_ms, until_ms=period.until_ms)
    earlier = replace(chosen, since_ms=period.before_ms, until_ms=period.from_ms)
    key = _KEYS.get(group_by)
    with installation.store.read() as tx:
        now, before = tx.cost_sums(chosen, key), tx.cost_sums(earlier, key)
        if not now:
            _require_known(installation, tx, chosen)
        if group_by == "job":  # each job is billed separately
            billed = {(each.key, each.key) for each in now}
        else:
            billed = {(_group(group_by, day, of), job) for day, of, job in tx.cost_jobs(chosen, key)}
        rows = _rows(group_by, now, before, Counter(of for of, _ in billed))
        kept = rows if every else rows[:MOST_ROWS]
        named = _names(tx, group_by, kept)
    days = _days(group_by, now, rows)
    total = CostRow(
        "",
        "total",
        sum(each.amount_nano_usd for each in now),
        sum(each.machine_ms for each in now),
        sum(each.entries - each.continued for each in now),
        len({job for _, job in billed}),
        sum(each.amount_nano_usd for each in before),
        sum(each.machine_ms for each in before),
        *_sums_of_causes(rows),
    )
    return CostView(
        at_ms=installation.clock.now_ms(),
        from_ms=period.from_ms,
        until_ms=period.until_ms,
        period=period.name,
        before_period=period.before_name,
        group_by=group_by,
        rows=named,
        total=total,
        days=days,
        left_out=len(rows) - len(kept),
        rest_nano_usd=sum(each.amount_nano_usd for each in rows[len(kept) :]),
        simulated=installation.simulated,
    )


def entry_page(
    installation: Installation,
    period: Period | None = None,
    wanted: CostFilter | None = None,
    *,
    limit: int = 100,
    cursor: str | None = None,
) -> EntryPage:
    """Ledger entries of a period (None: all), newest first. Raises UsageError for an invalid limit or cursor, and for
    an unknown kind, cloud or project."""
    most = checked_limit(limit) or MOST_ROWS
    chosen = wanted or CostFilter()
    if period is not None:
        chosen = replace(chosen, since_ms=period.from_ms, until_ms=period.until_ms)
    filters = {"wanted": chosen}
    before = _CURSORS.read(cursor, filters)
    with installation.store.read() as tx:
        found, count, amount = tx.entry_page(chosen, most + 1, None if before is None else before.entry_id)
        if not count:
            _require_known(installation, tx, chosen)
    page = found[:most]
    more = len(found) > len(page)
    following = _CURSORS.write(_Before(page[-1].id), filters) if more else None
    return EntryPage(tuple(page), count, amount, following)


def _require_known(installation: Installation, tx: Tx, wanted: CostFilter) -> None:
    """Checks the values of a filter, which may be mistyped. Raises UsageError with the valid values."""
    valid: dict[str, tuple[str | None, set[str]]] = {
        "kind": (wanted.kind, set(get_args(EntryKind))),
        "cloud": (wanted.provider, {*provider_names(), *map(provider_of, tx.cost_values("offer"))}),
        "project": (
            wanted.project,
            {"default", *installation.config.projects.tables, *tx.job_projects(), *tx.cost_values("project")},
        ),
    }
    for what, (value, known) in valid.items():
        if value is not None and value not in known:
            some = ", ".join(sorted(known)[:MOST_NAMED])
            raise UsageError(f"unknown {what} {echoed(value)}", hint=did_you_mean(value, known) or f"one of {some}")


def costs_csv(view: CostView) -> str:
    """CSV with a row per group, in exact nano-USD and in USD."""
    columns = (
        view.group_by,
        "name",
        "amount_nano_usd",
        "amount_usd",
        "machine_hours",
        "entries",
        "jobs",
        "before_nano_usd",
        "by_hours_nano_usd",
        "by_price_nano_usd",
    )
    rows = (
        (
            each.name if view.group_by == "day" else each.key,  # a date, not epoch ms
            each.name,
            each.amount_nano_usd,
            Decimal(each.amount_nano_usd) / NANO_USD,
            f"{each.machine_ms / 3_600_000:.6f}",
            each.entries,
            each.jobs,
            each.before_nano_usd,
            "" if each.by_hours_nano_usd is None else each.by_hours_nano_usd,
            "" if each.by_price_nano_usd is None else each.by_price_nano_usd,
        )
        for each in view.rows
    )
    return table(columns, rows)


def _group(group_by: CostGroup, day: int, key: str) -> str:
    if group_by == "cloud":
        return provider_of(key)
    if group_by == "month":
        return month_named(day * DAY_MS)
    return str(day * DAY_MS) if group_by == "day" else key


def _begins(group_by: CostGroup, day: int) -> bool:
    """Whether a group begins with this day: an entry that continues from the day before counts in both groups."""
    return group_by in ("day", "month") and _group(group_by, day, "") != _group(group_by, day - 1, "")


def _rows(
    group_by: CostGroup, now: Sequence[CostSum], before: Sequence[CostSum], jobs: Mapping[str, int]
) -> list[CostRow]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
    for each in now:
        of = sums[_group(group_by, each.day, each.key)]
        of[0] += each.amount_nano_usd
        of[1] += each.machine_ms
        of[2] += each.entries if _begins(group_by, each.day) else each.entries - each.continued
    if group_by not in ("day", "month"):
        for each in before:
            of = sums[_group(group_by, each.day, each.key)]
            of[3] += each.amount_nano_usd
            of[4] += each.machine_ms
    rows = [CostRow(key, key, of[0], of[1], of[2], jobs.get(key, 0), of[3], of[4]) for key, of in sums.items()]
    if group_by in ("day", "month"):
        return sorted(rows, key=lambda each: int(each.key.replace("-", "")))
    rows = [replace(each, by_hours_nano_usd=of[0], by_price_nano_usd=of[1]) for each in rows for of in [_causes(each)]]
    return sorted(rows, key=lambda each: (-each.amount_nano_usd, -each.before_nano_usd, each.key))


def _causes(row: CostRow) -> tuple[int, int]:
    """The parts of a change that are due to machine hours and to prices. Hours are valued at the previous price, or at
    the current price if there were none before; the rest is due to the price, including costs of a group without
    machine hours."""
    if row.before_machine_ms:
        by_hours = row.before_nano_usd * (row.machine_ms - row.before_machine_ms) // row.before_machine_ms
    else:
        by_hours = row.change_nano_usd if row.machine_ms else 0
    return by_hours, row.change_nano_usd - by_hours


def _sums_of_causes(rows: Sequence[CostRow]) -> tuple[int | None, int | None]:
    hours = [each.by_hours_nano_usd for each in rows if each.by_hours_nano_usd is not None]
    prices = [each.by_price_nano_usd for each in rows if each.by_price_nano_usd is not None]
    return (sum(hours), sum(prices)) if len(hours) == len(rows) else (None, None)


def _names(tx: Tx, group_by: CostGroup, rows: Sequence[CostRow]) -> tuple[CostRow, ...]:
    if group_by == "job":
        names = {job.id: job.name for job in tx.outlines_of([each.key for each in rows])}
        return tuple(replace(each, name=names.get(each.key, each.key)) for each in rows)
    if group_by == "day":
        from orchestrator.formats.readable import iso

        return tuple(replace(each, name=iso(int(each.key))[:10]) for each in rows)
    return tuple(rows)


def _days(group_by: CostGroup, now: Sequence[CostSum], rows: Sequence[CostRow]) -> tuple[CostDay, ...]:
    alone = group_by in ("day", "month")
    drawn = [] if alone else [each.key for each in rows[:DRAWN]]
    by_day: dict[int, Counter[str]] = defaultdict(Counter)
    for each in now:
        key = _group(group_by, each.day, each.key)
        by_day[each.day][key if key in drawn else ""] += each.amount_nano_usd
    return tuple(CostDay(day * DAY_MS, tuple(sorted(by_day[day].items()))) for day in sorted(by_day))
