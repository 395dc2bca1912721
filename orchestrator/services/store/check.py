"""Read-only checks of the store: first the database, then the consistency of its rows.

A check that raises an error is reported as failed.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from orchestrator import ledger
from orchestrator.config import Config
from orchestrator.errors import RowError, StoreError
from orchestrator.ledger import Comparison
from orchestrator.model import Entry, Run
from orchestrator.services.store.ledger_correction import amendments, priced, wrong_periods
from orchestrator.services.store.views import StoreDiagnosis
from orchestrator.services.views import Check
from orchestrator.store import LeaderInfo, Store, Tx
from orchestrator.store.recovery.examine import Examination, examine
from providers.billing.charges import CHARGE_KINDS
from providers.clock import SystemClock
from providers.money import about_usd

RESTORE = "tradewind store restore BACKUP"
MEND = f"tradewind up (it repairs a run's row from other rows; see tradewind events); else: {RESTORE}"
CORRECT = "tradewind ledger correct --reason 'store check' (preview with --dry-run)"
REPORT = "please report this; until then: tradewind store restore BACKUP"
JOBS_AT_ONCE = 200
MOST = 3  # findings per line


def check(config: Config) -> StoreDiagnosis:
    """Runs every check. Raises nothing for a damaged store: that is a failed check."""
    return StoreDiagnosis(tuple(_checks(config.store_url)))


def _checks(url: str) -> Iterator[Check]:
    try:
        with examine(url) as found:
            yield Check("database", "ok", found.place)
            if found.age != "current":
                yield _schema(found)
                return
            checks = [*_database(found)]
            leader = found.leader()
        yield from checks
        if all(each.state == "ok" for each in checks):
            store = Store.open(url, SystemClock(), create=False)
            try:
                with store.read() as tx:
                    yield from _content(tx, leader)
            finally:
                store.close()
    except StoreError as error:
        yield Check("store", "fail", str(error), error.hint)


def _schema(found: Examination) -> Check:
    if found.revision is None:
        return Check("schema", "fail", "the database contains no store", RESTORE)
    if found.age == "newer":
        fix = "pip install --upgrade tradewind"
        return Check("schema", "fail", f"revision {found.revision} of a newer version", fix)
    return Check("schema", "warn", f"older revision {found.revision}: not checked further", "tradewind up")


def _database(found: Examination) -> Iterator[Check]:
    yield _judged("integrity", "no damage", found.damage(), RESTORE)
    yield _judged("schema", f"revision {found.revision}, complete", found.differences(), RESTORE)
    yield _judged("append-only", "history cannot be changed", found.lost_protection(), RESTORE)
    yield _judged("references", "no dangling references", found.dangling(), RESTORE)


def _content(tx: Tx, leader: LeaderInfo | None) -> Iterator[Check]:
    unreadable = _unreadable(tx)
    yield _judged("rows", "all readable", unreadable, MEND)
    if unreadable:
        return
    yield from _books(tx)
    yield _judged("work", *_work(tx, tx.runs()), "tradewind events, then please report this")
    yield _leader(tx, leader)


def _unreadable(tx: Tx) -> list[str]:
    """Rows with invalid values."""
    heard: list[str] = []

    def hear(_job_id: str, error: RowError) -> None:
        heard.append(str(error))

    tx.jobs(unreadable=hear)
    tx.runs(unreadable=hear)
    tx.migrations(unreadable=hear)
    heard += [command.damage for command in tx.open_commands() if command.damage]
    reads: list[Callable[[], object]] = [partial(tx.plan, each) for each in tx.plan_ids()]
    reads += [
        partial(deque, each(), maxlen=0) for each in (tx.events_of_all, tx.entries_of)
    ]  # nothing is kept of streams
    reads += [tx.offers, tx.newest_prices, tx.polls, tx.poll_states, tx.perf, tx.comparisons]
    for read in reads:
        try:
            read()
        except RowError as error:
            heard.append(str(error))
    return heard


def _books(tx: Tx) -> Iterator[Check]:
    """Two checks: each run is booked exactly once, at its price times its time (deviations can be corrected unless rows
    contradict each other); each comparison follows from its stored inputs and its ledger entries. Jobs are read in
    batches, because there may be a million entries."""
    contradictions: list[str] = []
    wrong: list[str] = []
    unfounded: list[str] = []
    count = compared = 0
    ids = iter([job.id for job in tx.outlines()])
    while some := list(islice(ids, JOBS_AT_ONCE)):
        runs = [run for found in tx.runs_of(some).values() for run in found]
        of_run: dict[str, list[Entry]] = defaultdict(list)
        amounts: dict[str, list[int]] = {job_id: [] for job_id in some}
        for entry in tx.entries_of(some):
            of_run[entry.run_id].append(entry)
            amounts[entry.job_id].append(entry.amount_nano_usd)
        contradictions += _contradictions(tx, runs, of_run)
        wrong += [line for run in runs for line in _wrong_books(tx, run, of_run[run.id])]
        kept = tx.comparisons_of(some)
        unfounded += [line for job_id in some for each in kept[job_id] for line in _unfounded(each, amounts[job_id])]
        count += sum(map(len, amounts.values()))
        compared += sum(1 for found in kept.values() if found)
    wrong += [f"the stored sum of {name} differs from its entries" for name in tx.unequal_sums()]
    well = f"{count} entries add up to {about_usd(tx.total_nano_usd())}, with each run's time at its price"
    yield _judged("ledger", well, [*contradictions, *wrong], REPORT if contradictions else CORRECT)
    yield _judged("comparisons", f"{compared} job(s) compared, all consistent with their inputs", unfounded, REPORT)


def _contradictions(tx: Tx, runs: Sequence[Run], of_run: dict[str, list[Entry]]) -> Iterator[str]:
    """Contradictions in entries (by run) that no new entry can correct."""
    for run_id in of_run.keys() - {run.id for run in runs}:
        for entry in of_run[run_id]:
            yield f"{entry.id} belongs to another job than its run {run_id}"
    yield from _charged_twice(runs, of_run)
    for run in runs:
        booked = of_run[run.id]
        known = {entry.id for entry in booked}
        for entry in booked:
            if entry.job_id != run.job_id:
                yield f"{entry.id} belongs to another job than its run {run.id}"
            if entry.reverses is not None and entry.reverses not in known:
                yield f"{entry.id} corrects {entry.reverses}, which is not an entry of {run.id}"
        if run.billed_from_ms is None and any(entry.kind == "compute" for entry in booked):
            yield f"{run.id} is booked but was never billed"
        elif booked and run.billed_from_ms is not None and not priced(tx, run):
            yield f"{run.id} is booked, but no price of {run.offer_id} is known at {run.machine_billed_from_ms}"


def _charged_twice(runs: Sequence[Run], of_run: dict[str, list[Entry]]) -> Iterator[str]:
    """Charges other than machine time that are booked on more than one run of a machine."""
    charged: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for run in runs:
        kinds: dict[str, str] = {}
        sums: Counter[str] = Counter()
        for entry in of_run[run.id]:  # in the order of writing, so that entries precede their corrections
            kind = kinds[entry.id] = kinds.get(entry.reverses or "", entry.kind)
            sums[kind] += entry.amount_nano_usd
        for kind in CHARGE_KINDS:
            if sums[kind] and run.instance_id is not None:
                charged[run.job_id, run.instance_id, kind].append(run.id)
    for (_, machine, kind), ids in charged.items():
        if len(ids) > 1:
            yield f"{kind} of the machine {machine} is charged to {' and '.join(ids)}"


def _wrong_books(tx: Tx, run: Run, booked: Sequence[Entry]) -> list[str]:
    if run.billed_from_ms is None or (run.billed_to_ms is None and not booked):
        return []
    reported = wrong_periods(run, booked)
    if not reported and amendments(tx, tx.job(run.job_id), run, booked, run.billed_from_ms):
        reported = [f"{run.id} is not booked at its prices"]
    return reported


def _unfounded(found: Comparison, amounts: Sequence[int]) -> Iterator[str]:
    """Deviations of a comparison from its inputs; `amounts` are those of its job's entries, in the order of writing."""
    if sum(amounts[: found.entries]) != found.paid_nano_usd:
        yield f"{found.job_id} paid {found.paid_nano_usd} according to its comparison, but not to its entries"
    if found.inputs is not None and ledger.baseline_nano_usd(found.inputs) != found.baseline_nano_usd:
        yield f"the baseline {found.baseline} of {found.job_id} does not follow from its inputs"


def _work(tx: Tx, runs: Sequence[Run]) -> tuple[str, list[str]]:
    """A summary of the open work, and work that is stuck."""
    moves = tx.migrations(open=True)
    coming = {move.target_run_id for move in moves}
    live = [run for run in runs if run.end is None]
    wrong = [
        f"{run.id} is {run.state} without a machine and without a migration that provides one"
        for run in live
        if run.instance_id is None and run.id not in coming
    ]
    served = {run.job_id for run in live} | {move.job_id for move in moves}
    wrong += [
        f"{job.id} is {job.state}, but has no run and no migration"
        for job in tx.jobs(states=("starting", "running", "migrating"))
        if job.id not in served
    ]
    moving = Counter(move.job_id for move in moves)
    wrong += [f"{job_id} has {count} migrations at once" for job_id, count in moving.items() if count > 1]
    return f"{len(live)} current run(s), {len(moves)} open migration(s)", wrong


def _leader(tx: Tx, leader: LeaderInfo | None) -> Check:
    if leader is not None and leader.alive is not False:
        where = "" if leader.alive else ", on another host or not known to be alive"
        return Check("leader", "ok", f"{leader.holder} (process {leader.pid} on {leader.host}){where}")
    waiting = len(tx.unsettled_runs()) + len(tx.migrations(open=True))
    if waiting:
        return Check("leader", "warn", "no leader, but there is open work", "tradewind up")
    return Check("leader", "ok", "no leader and no open work")


def _judged(name: str, well: str, wrong: Iterator[str] | Sequence[str], fix: str) -> Check:
    found = list(wrong)
    if not found:
        return Check(name, "ok", well)
    more = f" (and {len(found) - MOST} more)" if len(found) > MOST else ""
    return Check(name, "fail", "; ".join(found[:MOST]) + more, fix)
