"""Jobs: job files as submitted, their states, and facts learned since."""

from __future__ import annotations

import difflib
import math
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, TypedDict, Unpack, get_args

from sqlalchemy import Row, Select, bindparam, func, select, tuple_, update

from orchestrator.errors import NotFoundError, RowError, UnreadableRowError, UsageError, echoed
from orchestrator.formats.codec import Codec, CodecError
from orchestrator.model import TERMINAL, Job, JobSpec, JobState, TrainSpec
from orchestrator.store.backends.types import Number, Word
from orchestrator.store.market.offers import batches
from orchestrator.store.rows import ROWS_KEPT, Unreadable, decoded, record, records
from orchestrator.store.schema import JOB_OPEN, job
from orchestrator.store.schema_base import job_group
from orchestrator.store.transaction import Transaction, among


@dataclass(frozen=True, slots=True)
class _After:
    jobs: tuple[str, ...]


_SPEC = Codec(JobSpec, "job-spec/1")
_AFTER = Codec(_After, "job-after/1")


@dataclass(frozen=True, slots=True)
class JobFacts:
    """Facts about a job since its submission. Times are market time in ms.

    `failures` is the number of used retries, `error` the last traceback or reason, `baseline_offer_id` the on-demand
    offer for cost comparisons, `next_decision_ms` the time of the next decision. `quarantine` is the error for which it
    was quarantined at `quarantined_at_ms`; both are None otherwise. `compared_at_ms` is the time of its savings
    comparison; None if it is due, for the first time or because the ledger has changed.
    """

    total_steps: int | None = None
    failures: int = 0
    checkpoint_bytes: int | None = None
    weights_hash: str | None = None
    error: str | None = None
    finished_at_ms: int | None = None
    baseline_offer_id: str | None = None
    next_decision_ms: int | None = None
    quarantine: str | None = None
    quarantined_at_ms: int | None = None
    compared_at_ms: int | None = None


class JobFactFields(TypedDict, total=False):
    """The fields of JobFacts, all optional, except `compared_at_ms`, which comparisons set."""

    total_steps: int | None
    failures: int
    checkpoint_bytes: int | None
    weights_hash: str | None
    error: str | None
    finished_at_ms: int | None
    baseline_offer_id: str | None
    next_decision_ms: int | None
    quarantine: str | None
    quarantined_at_ms: int | None


@dataclass(frozen=True, slots=True)
class _Stored:
    """A job with its job file as text."""

    id: str
    spec: str
    owner: str
    submitted_at_ms: int
    state: JobState
    name: str
    project: str
    group_id: str | None = None
    weight: float = 1.0
    after: str | None = None


NAMES_COMPARED = 1000
"""Similar names are searched among this many newest jobs if a reference matches no job."""

_FACTS = [job.c[field.name] for field in fields(JobFacts)]
_ID_BEGINS = "job_"
_LONGEST_REF = 200
_JOB_COLUMNS = [field.name for field in fields(_Stored)]
_JOB = [job.c[name] for name in _JOB_COLUMNS]
_WITH_TOKEN = select(*_JOB).where(job.c.project == bindparam("of_project"), job.c.token == bindparam("of_token"))
_ONE_JOB = select(*_JOB).where(job.c.id == bindparam("job_id"))
_GROUP_NAMED = (
    select(job_group.c.id).where((job_group.c.name == bindparam("ref")) | (job_group.c.id == bindparam("ref"))).limit(1)
)
_ENDED_BETWEEN = (
    select(*_JOB)
    .where(among(job.c.state, TERMINAL))
    .where(job.c.finished_at_ms >= bindparam("since_ms"), job.c.finished_at_ms < bindparam("until_ms"))
    .order_by(job.c.submitted_at_ms, job.c.id)
)
_ENDED = select(func.count()).where(among(job.c.state, TERMINAL))
_ENDED_OF_PROJECT = _ENDED.where(job.c.project == bindparam("project"))
_COUNT = select(func.count()).select_from(job)
_NAMED = (
    select(*_JOB).where(job.c.name == bindparam("ref")).order_by(job.c.submitted_at_ms.desc(), job.c.id.desc()).limit(1)
)
_SHARING_NAME = select(job.c.id).where(job.c.name == bindparam("ref")).limit(2)
_SHARED_NAMES = (
    select(job.c.name)
    .where(job.c.name.in_(bindparam("names", expanding=True)))
    .group_by(job.c.name)
    .having(func.count() > 1)
)
_ID_BETWEEN = (
    select(*_JOB).where(job.c.id >= bindparam("begin"), job.c.id < bindparam("end")).order_by(job.c.id).limit(4)
)
_NEWEST_NAMES = select(job.c.name).order_by(job.c.id.desc()).limit(NAMES_COMPARED)
_THESE = select(*_JOB).where(job.c.id.in_(bindparam("job_ids", expanding=True))).order_by(job.c.id)
_PAUSED_FOLLOWERS = select(*_JOB).where(JOB_OPEN, job.c.state == "paused", job.c.after.is_not(None)).order_by(job.c.id)
_FACT_NAMES = [field.name for field in fields(JobFacts)]
_FACTS_OF = select(job.c.id, *_FACTS).where(job.c.id.in_(bindparam("job_ids", expanding=True)))
_FACTS_OF_ONE = select(*_FACTS).where(job.c.id == bindparam("job_id"))
_UPDATE = update(job).where(job.c.id == bindparam("job_id"))
_UPDATE_IF = _UPDATE.where(job.c.state.in_(bindparam("expected", expanding=True)))


@lru_cache(maxsize=64)
def _jobs(states: tuple[JobState, ...] | None, of_project: bool) -> Select[Any]:
    query = select(*_JOB).order_by(job.c.submitted_at_ms, job.c.id)
    if states is not None:
        query = query.where(among(job.c.state, states))
    return query.where(job.c.project == bindparam("project")) if of_project else query


@lru_cache(maxsize=64)
def _outlines(of_project: bool, ended: bool, after: bool, limit: bool) -> Select[Any]:
    query = _jobs(None, of_project)
    if not ended:
        query = query.where(JOB_OPEN)
    if after:
        place = tuple_(bindparam("after_ms", type_=Number), bindparam("after_id", type_=Word))
        query = query.where(tuple_(job.c.submitted_at_ms, job.c.id) > place)
    return query.limit(bindparam("limit")) if limit else query


class JobRows(Transaction):
    """Reads and writes jobs and their facts."""

    def add_job(self, new: Job, token: str | None = None) -> None:
        """Adds a job. Raises StoreError if its id exists or another job of its project has the `token`."""
        self._insert(
            job,
            id=new.id,
            name=new.name,
            project=new.project,
            owner=new.owner,
            submitted_at_ms=new.submitted_at_ms,
            state=new.state,
            spec=_SPEC.dumps(new.spec),
            failures=0,
            **({} if token is None else {"token": token}),
            **({} if new.group_id is None else _membership(new)),
        )

    def jobs_of(self, job_ids: Collection[str], unreadable: Unreadable | None = None) -> list[Job]:
        """The jobs with these ids, by id; otherwise like `jobs`."""
        found: list[Job] = []
        for batch in batches(job_ids):
            rows = self._connection.execute(_THESE, {"job_ids": batch}).all()
            found += records(_job, rows, "id", unreadable)
        return found

    def job_with_token(self, project: str, token: str) -> Job | None:
        """The job of `project` with the submitter's `token`, or None. Raises RowError."""
        row = self._connection.execute(_WITH_TOKEN, {"of_project": project, "of_token": token}).one_or_none()
        return None if row is None else _job(row)

    def job(self, job_id: str) -> Job:
        """The job with this id. Raises NotFoundError; RowError if its job file is unreadable."""
        return _job(self._one_job(job_id))

    def outline(self, job_id: str) -> Job:
        """The job, for callers that need only its identity and state. Unreadable parts are replaced: a job file by an
        empty one, a state by "running", because it may have machines. Raises NotFoundError; UnreadableRowError for an
        id that is not text."""
        return _outline(self._one_job(job_id))

    def outlines(
        self,
        project: str | None = None,
        *,
        ended: bool = True,
        after: tuple[int, str] | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """The outlines of all jobs (of a project) in the order of submission; without `ended`, only of open jobs.

        `after` is the time of submission and the id of a job: the first `limit` jobs that follow it.
        """
        query = _outlines(project is not None, ended, after is not None, limit is not None)
        given: dict[str, object] = {"project": project, "limit": limit}
        if after is not None:
            given["after_ms"], given["after_id"] = after
        return [_outline(row) for row in self._connection.execute(query, given)]

    def outlines_of(self, job_ids: Collection[str]) -> list[Job]:
        """The outlines of the jobs with these ids, by id; unknown ids are left out."""
        return [
            _outline(row) for batch in batches(job_ids) for row in self._connection.execute(_THESE, {"job_ids": batch})
        ]

    def paused_followers(self) -> list[Job]:
        """The outlines of the paused jobs that wait for other jobs, by id."""
        return [_outline(row) for row in self._connection.execute(_PAUSED_FOLLOWERS)]

    def ended_between(self, since_ms: int, until_ms: int) -> list[Job]:
        """The outlines of the jobs that ended in [`since_ms`, `until_ms`), in the order of submission."""
        rows = self._connection.execute(_ENDED_BETWEEN, {"since_ms": since_ms, "until_ms": until_ms})
        return [_outline(row) for row in rows]

    def count_jobs(self) -> int:
        """The number of all jobs."""
        return int(self._connection.execute(_COUNT).scalar_one())

    def count_ended(self, project: str | None = None) -> int:
        """The number of ended jobs (of a project)."""
        query = _ENDED if project is None else _ENDED_OF_PROJECT
        return int(self._connection.execute(query, {"project": project}).scalar_one())

    def typed_name(self, job_id: str, name: str) -> str:
        """The reference to a job in suggested commands: its name, or its id if other jobs have the same name."""
        sharing = self._connection.execute(_SHARING_NAME, {"ref": name}).scalars().all()
        return name if sharing == [job_id] else job_id

    def typed_names(self, jobs: Collection[Job]) -> dict[str, str]:
        """`typed_name` of each of these jobs, by job id."""
        shared = {
            name
            for batch in batches({each.name for each in jobs})
            for name in self._connection.execute(_SHARED_NAMES, {"names": batch}).scalars()
        }
        return {each.id: each.id if each.name in shared else each.name for each in jobs}

    def find_job(self, ref: str) -> Job:
        """The outline of the job with this id, name (the newest) or beginning of an id, in this order; the beginning of
        an id ignores case.

        `job_` or less is not accepted as the beginning of an id: an unset shell variable must not name a job. Raises
        NotFoundError with similar names, or with a hint if a group has this name; UsageError if several ids begin like
        this and for text that cannot be a name.
        """
        if not (isinstance(ref, str) and ref.isprintable() and 0 < len(ref) <= _LONGEST_REF):
            raise UsageError(f"{echoed(ref)} is not the name or id of a job", hint="tradewind queue lists them")
        for query, given in ((_ONE_JOB, {"job_id": ref}), (_NAMED, {"ref": ref})):
            if (exact := self._connection.execute(query, given).one_or_none()) is not None:
                return _outline(exact)
        found = self._ids_beginning(ref)
        if len(found) == 1:
            return _outline(found[0])
        if found:
            listed = ", ".join(row.id for row in found[:3]) + (", ..." if len(found) > 3 else "")
            raise UsageError(
                f"{echoed(ref)} is the beginning of several job ids: {listed}", hint="give more characters of the id"
            )
        if self._connection.execute(_GROUP_NAMED, {"ref": ref}).one_or_none() is not None:
            option = f"--group {shlex.quote(ref)}"
            hint = f"list its jobs: tradewind queue --all {option}; pause, resume, cancel and budget set take {option}"
            raise NotFoundError(f"{echoed(ref)} is a group of jobs, not a job", hint=hint)
        names = self._connection.execute(_NEWEST_NAMES).scalars()
        close = difflib.get_close_matches(ref, sorted({name for name in names if isinstance(name, str)}), n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "tradewind queue lists them"
        raise NotFoundError(f"there is no job {echoed(ref)}", hint=hint)

    def _ids_beginning(self, ref: str) -> Sequence[Row[Any]]:
        """The first jobs whose ids begin with `ref`. This is a range of ids, which uses an index; so `ref` has the form
        of ids: `job_`, then capital letters and digits."""
        begin = ref[: len(_ID_BEGINS)].lower() + ref[len(_ID_BEGINS) :].upper()
        if not (begin.startswith(_ID_BEGINS) and begin[len(_ID_BEGINS) :].isalnum() and begin.isascii()):
            return ()
        end = begin[:-1] + chr(ord(begin[-1]) + 1)
        return self._connection.execute(_ID_BETWEEN, {"begin": begin, "end": end}).all()

    def jobs(
        self,
        states: Collection[JobState] | None = None,
        project: str | None = None,
        unreadable: Unreadable | None = None,
    ) -> list[Job]:
        """The jobs in the order of submission. `unreadable` is called for unreadable ones, which are skipped;
        without it, RowError is raised."""
        query = _jobs(None if states is None else tuple(sorted(states)), project is not None)
        given = {} if project is None else {"project": project}
        return records(_job, self._connection.execute(query, given).all(), "id", unreadable)

    def set_job_state(self, job_id: str, state: JobState, *, expected: Collection[JobState] | None = None) -> bool:
        """Sets the state; False, with no change, if the job is in none of the `expected` states. Raises
        NotFoundError."""
        change = {"job_id": job_id, "state": state}
        if expected is None:
            done = self._connection.execute(_UPDATE, change)
        else:
            done = self._connection.execute(_UPDATE_IF, {**change, "expected": sorted(expected)})
        if done.rowcount:
            return True
        self._one_job(job_id)
        return False

    def job_facts(self, job_id: str) -> JobFacts:
        """The facts about a job. Raises NotFoundError, RowError."""
        row = self._connection.execute(_FACTS_OF_ONE, {"job_id": job_id}).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no job {job_id}", hint="tradewind queue lists them")
        return record(JobFacts, "job", row, of=job_id)

    def job_facts_of(self, job_ids: Collection[str], unreadable: Unreadable | None = None) -> dict[str, JobFacts]:
        """Like `job_facts`, for each of these jobs. `unreadable` is called for those whose facts are unreadable, and
        they are left out; without it, RowError is raised."""
        found: dict[str, JobFacts] = {}
        for batch in batches(job_ids):
            rows = self._connection.execute(_FACTS_OF, {"job_ids": batch}).all()
            found.update(records(_facts, rows, "id", unreadable))
        return found

    def set_job_facts(self, job_id: str, **facts: Unpack[JobFactFields]) -> None:
        """Sets these facts of a job. Raises NotFoundError."""
        if not self._connection.execute(_UPDATE, {"job_id": job_id, **facts}).rowcount:
            raise NotFoundError(f"there is no job {job_id}", hint="tradewind queue lists them")

    def set_budget(self, job_id: str, nano_usd: int) -> None:
        """Changes the budget in the job file, the only part that can change. Raises NotFoundError; RowError if the
        file is unreadable."""
        spec = replace(self.job(job_id).spec, budget_nano_usd=nano_usd)
        self._connection.execute(_UPDATE, {"job_id": job_id, "spec": _SPEC.dumps(spec)})

    def _one_job(self, job_id: str) -> Row[Any]:
        row = self._connection.execute(_ONE_JOB, {"job_id": job_id}).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no job {job_id}", hint="tradewind queue lists them")
        return row


def _membership(new: Job) -> dict[str, object]:
    after = _AFTER.dumps(_After(new.after)) if new.after else None
    return {"group_id": new.group_id, "weight": new.weight, "after": after}


@lru_cache(maxsize=1024)
def _spec(text: str) -> JobSpec:
    """A parsed job file, cached because the control plane reads each many times a second."""
    return _SPEC.loads(text)


def _job(row: Row[Any]) -> Job:
    """Raises UnreadableRowError."""
    return _job_of(tuple(row))


@lru_cache(maxsize=ROWS_KEPT)
def _job_of(row: tuple[Any, ...]) -> Job:
    stored = decoded(_Stored, "job", dict(zip(_JOB_COLUMNS, row, strict=True)))
    return _with(stored, _spec_of(stored))


def _facts(row: Row[Any]) -> tuple[str, JobFacts]:
    """Raises UnreadableRowError."""
    return row[0], _facts_of(tuple(row))


@lru_cache(maxsize=ROWS_KEPT)
def _facts_of(row: tuple[Any, ...]) -> JobFacts:
    return decoded(JobFacts, "job", dict(zip(_FACT_NAMES, row[1:], strict=True)), row[0])


def _outline(row: Row[Any]) -> Job:
    """Fails only for an id that is not text, because quarantining a job needs the id. Raises UnreadableRowError."""
    try:
        stored = record(_Stored, "job", row)
    except RowError:
        stored = _stand_in(row)
    try:
        return _with(stored, _spec_of(stored))
    except RowError:
        nothing = TrainSpec(None, None, {}, "/", {}, (), None, None)
        plain = replace(stored, weight=1.0, after=None)
        return _with(plain, JobSpec(name=stored.name, project=stored.project, train=nothing))


def _stand_in(row: Row[Any]) -> _Stored:
    def text(value: object, otherwise: str) -> str:
        return value if isinstance(value, str) else otherwise

    if not isinstance(row.id, str):
        raise UnreadableRowError("job", row.id, "id: it is not text")
    return _Stored(
        id=row.id,
        spec=text(row.spec, ""),
        owner=text(row.owner, ""),
        submitted_at_ms=row.submitted_at_ms if isinstance(row.submitted_at_ms, int) else 0,
        state=row.state if row.state in get_args(JobState) else "running",
        name=text(row.name, row.id),
        project=text(row.project, ""),
        group_id=row.group_id if isinstance(row.group_id, str) else None,
    )


def _spec_of(stored: _Stored) -> JobSpec:
    try:
        return _spec(stored.spec)
    except CodecError as error:
        raise UnreadableRowError("job", stored.id, f"spec: {error}") from error


def _with(stored: _Stored, spec: JobSpec) -> Job:
    if not 0 < stored.weight < math.inf:
        raise UnreadableRowError("job", stored.id, f"weight: {stored.weight} is not a positive number")
    try:
        after = () if stored.after is None else _AFTER.loads(stored.after).jobs
    except CodecError as error:
        raise UnreadableRowError("job", stored.id, f"after: {error}") from error
    group, weight = stored.group_id, stored.weight
    return Job(stored.id, spec, stored.owner, stored.submitted_at_ms, stored.state, group, weight, after)
