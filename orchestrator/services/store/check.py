"""Is the store sound? The database first, then what its rows say of each other. Changes nothing, upgrades nothing.

A check that breaks is a line that fails.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from orchestrator import ledger
from orchestrator.config import Config
from orchestrator.errors import RowError, StoreError
from orchestrator.model import Entry, Run
from orchestrator.services.store.ledger_correction import amendments, priced, wrong_periods
from orchestrator.services.store.views import StoreDiagnosis
from orchestrator.services.views import Check
from orchestrator.store import LeaderInfo, Store, Tx
from orchestrator.store.recovery.examine import Examination, examine
from providers.charges import CHARGE_KINDS
from providers.clock import SystemClock
from providers.money import format_usd

RESTORE = "tradewind store restore BACKUP"
MEND = f"tradewind up (it repairs a run's row from other rows; see tradewind events); else: {RESTORE}"
CORRECT = "tradewind ledger correct --reason 'store check' (what it would book: add --dry-run)"
REPORT = "please report this; until then: tradewind store restore BACKUP"
MOST = 3  # examples of what is wrong in one line


def check(config: Config) -> StoreDiagnosis:
    """Every check, each ok, warn or fail."""
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
        return Check("schema", "fail", "there is no store in it", RESTORE)
    if found.age == "newer":
        fix = "pip install --upgrade tradewind"
        return Check("schema", "fail", f"revision {found.revision} of a newer version", fix)
    return Check("schema", "warn", f"older revision {found.revision}: not examined any further", "tradewind up")


def _database(found: Examination) -> Iterator[Check]:
    yield _judged("integrity", "no damage", found.damage(), RESTORE)
    yield _judged("schema", f"revision {found.revision}, complete", found.differences(), RESTORE)
    yield _judged("append-only", "history cannot be changed", found.lost_protection(), RESTORE)
    yield _judged("references", "none dangles", found.dangling(), RESTORE)


def _content(tx: Tx, leader: LeaderInfo | None) -> Iterator[Check]:
    unreadable = _unreadable(tx)
    yield _judged("rows", "all can be read", unreadable, MEND)
    if unreadable:
        return
    runs = tx.runs()
    yield _ledger(tx, runs, tx.entries())
    yield _judged("comparisons", *_comparisons(tx), REPORT)
    yield _judged("work", *_work(tx, runs), "tradewind events, then please report this")
    yield _leader(tx, leader)


def _unreadable(tx: Tx) -> list[str]:
    """Rows that hold what no row of their table can hold."""
    heard: list[str] = []

    def hear(_job_id: str, error: RowError) -> None:
        heard.append(str(error))

    tx.jobs(unreadable=hear)
    tx.runs(unreadable=hear)
    tx.migrations(unreadable=hear)
    heard += [command.damage for command in tx.open_commands() if command.damage]
    reads: list[Callable[[], object]] = [partial(tx.plan, each) for each in tx.plan_ids()]
    reads += [tx.events, tx.entries, tx.offers, tx.newest_prices, tx.polls, tx.poll_states, tx.perf, tx.comparisons]
    for read in reads:
        try:
            read()
        except RowError as error:
            heard.append(str(error))
    return heard


def _ledger(tx: Tx, runs: Sequence[Run], entries: Sequence[Entry]) -> Check:
    """Each run is booked at its price times its time, once: what is not can be corrected, unless the rows themselves
    contradict each other."""
    of_run: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        of_run[entry.run_id].append(entry)
    contradictions = [*_contradictions(tx, runs, entries, of_run)]
    wrong = [line for run in runs for line in _wrong_books(tx, run, of_run[run.id])]
    well = f"{len(entries)} entries add up to {format_usd(tx.total_nano_usd(), 4)}, each run's time at its price"
    return _judged("ledger", well, [*contradictions, *wrong], REPORT if contradictions else CORRECT)


def _contradictions(
    tx: Tx, runs: Sequence[Run], entries: Sequence[Entry], of_run: Mapping[str, Sequence[Entry]]
) -> Iterator[str]:
    """Entries that no new entry makes right."""
    if tx.total_nano_usd() != ledger.total_nano_usd(entries):
        yield "the sum of the entries is not their total"
    yield from _charged_twice(runs, of_run)
    for run in runs:
        booked = of_run[run.id]
        known = {entry.id for entry in booked}
        for entry in booked:
            if entry.job_id != run.job_id:
                yield f"{entry.id} names another job than its run {run.id}"
            if entry.reverses is not None and entry.reverses not in known:
                yield f"{entry.id} corrects {entry.reverses}, which is no entry of {run.id}"
        if run.billed_from_ms is None and any(entry.kind == "compute" for entry in booked):
            yield f"{run.id} is booked, and was never billed"
        elif booked and run.billed_from_ms is not None and not priced(tx, run):
            yield f"{run.id} is booked, but no price of {run.offer_id} is known at {run.machine_billed_from_ms}"


def _charged_twice(runs: Sequence[Run], of_run: Mapping[str, Sequence[Entry]]) -> Iterator[str]:
    """What a machine is billed besides its time is with one of the runs that had it."""
    charged: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for run in runs:
        kinds: dict[str, str] = {}
        sums: Counter[str] = Counter()
        for entry in of_run[run.id]:  # in the order of writing: what is corrected comes before its correction
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


def _comparisons(tx: Tx) -> tuple[str, list[str]]:
    """Each is what follows from what is kept with it, and from the entries that it counts."""
    wrong = []
    found = tx.comparisons()
    for each in found:
        entries = tx.entries(job_id=each.job_id)[: each.entries]
        if ledger.total_nano_usd(entries) != each.paid_nano_usd:
            wrong.append(f"{each.job_id} paid {each.paid_nano_usd} according to its comparison, but not to its entries")
        if each.inputs is not None and ledger.baseline_nano_usd(each.inputs) != each.baseline_nano_usd:
            wrong.append(f"the baseline {each.baseline} of {each.job_id} does not follow from its inputs")
    return f"{len({each.job_id for each in found})} job(s) compared, each as it follows from its inputs", wrong


def _work(tx: Tx, runs: Sequence[Run]) -> tuple[str, list[str]]:
    """What is well, and what nobody would ever take further."""
    moves = tx.migrations(open=True)
    coming = {move.target_run_id for move in moves}
    live = [run for run in runs if run.end is None]
    wrong = [
        f"{run.id} is {run.state} without a machine and without a move that brings it one"
        for run in live
        if run.instance_id is None and run.id not in coming
    ]
    served = {run.job_id for run in live} | {move.job_id for move in moves}
    wrong += [
        f"{job.id} is {job.state}, and nothing runs or is under way for it"
        for job in tx.jobs(states=("starting", "running", "migrating"))
        if job.id not in served
    ]
    moving = Counter(move.job_id for move in moves)
    wrong += [f"{job_id} has {count} moves at once" for job_id, count in moving.items() if count > 1]
    return f"{len(live)} run(s) that live, {len(moves)} move(s) under way", wrong


def _leader(tx: Tx, leader: LeaderInfo | None) -> Check:
    if leader is not None and leader.alive is not False:
        where = "" if leader.alive else ", as far as can be told from here"
        return Check("leader", "ok", f"{leader.holder} (process {leader.pid} on {leader.host}){where}")
    waiting = len(tx.unsettled_runs()) + len(tx.migrations(open=True))
    if waiting:
        return Check("leader", "warn", "nobody leads, and there is work under way", "tradewind up")
    return Check("leader", "ok", "nobody leads, and nothing is under way")


def _judged(name: str, well: str, wrong: Iterator[str] | Sequence[str], fix: str) -> Check:
    found = list(wrong)
    if not found:
        return Check(name, "ok", well)
    more = f" (and {len(found) - MOST} more)" if len(found) > MOST else ""
    return Check(name, "fail", "; ".join(found[:MOST]) + more, fix)
