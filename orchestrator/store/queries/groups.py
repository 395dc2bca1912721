"""Groups of jobs as submitted, and their jobs."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import fields
from typing import NamedTuple

from sqlalchemy import Select, bindparam, select, update

from orchestrator.errors import NotFoundError, UsageError, echoed
from orchestrator.model import TERMINAL, Group
from orchestrator.store.market.offers import batches
from orchestrator.store.rows import record
from orchestrator.store.schema import job
from orchestrator.store.schema_base import job_group
from orchestrator.store.transaction import Transaction, columns

NAMES_COMPARED = 1000
"""Similar names are searched among this many newest groups if a reference matches no group."""

PROJECTS_NAMED = 5
"""At most this many projects are listed that have a group with a name."""

_GROUP = [job_group.c[field.name] for field in fields(Group)]
_ALL = select(*_GROUP).order_by(job_group.c.submitted_at_ms, job_group.c.id)
_ONE = select(*_GROUP).where(job_group.c.id == bindparam("ref"))
_NAMED = (
    select(*_GROUP)
    .where(job_group.c.name == bindparam("ref"))
    .order_by(job_group.c.submitted_at_ms.desc(), job_group.c.id.desc())
    .limit(1)
)
_PROJECTS_OF = (
    select(job_group.c.project)
    .where((job_group.c.name == bindparam("ref")) | (job_group.c.id == bindparam("ref")))
    .distinct()
    .order_by(job_group.c.project)
)
_OPEN_NAMESAKES = (
    select(job_group.c.id)
    .where(
        job_group.c.name == bindparam("of_name"),
        job_group.c.project == bindparam("of_project"),
        job_group.c.id != bindparam("ref"),
        job_group.c.id.in_(select(job.c.group_id).where(job.c.state.not_in(tuple(TERMINAL)))),
    )
    .order_by(job_group.c.submitted_at_ms, job_group.c.id)
)
_NEWEST_NAMES = select(job_group.c.name).order_by(job_group.c.id.desc()).limit(NAMES_COMPARED)
_WITH_TOKEN: Select[tuple[str, str]] = select(job_group.c.id, job_group.c.digest).where(
    job_group.c.project == bindparam("of_project"), job_group.c.token == bindparam("of_token")
)
_OUTLINES = select(job_group.c.id, job_group.c.name, job_group.c.policy).where(
    job_group.c.id.in_(bindparam("ids", expanding=True))
)
_SET_BUDGET = update(job_group).where(job_group.c.id == bindparam("group_id"))
_JOBS_OF = select(job.c.id).where(job.c.group_id == bindparam("group_id")).order_by(job.c.submitted_at_ms, job.c.id)
_WAITING = select(job.c.id).where(
    job.c.group_id.in_(bindparam("ids", expanding=True)), job.c.after.is_not(None), job.c.state == "queued"
)


class GroupOutline(NamedTuple):
    """The facts of a group that lists of jobs show."""

    name: str
    policy: str


class GroupRows(Transaction):
    """Reads and writes groups."""

    def add_group(self, new: Group, *, token: str | None = None, digest: str | None = None) -> None:
        """Adds a group, before its jobs. `digest` is the digest of the submission that `token` identifies.

        Raises StoreError if its id exists or another group of its project has the `token`.
        """
        self._insert(job_group, **columns(new), token=token, digest=digest)

    def group(self, group_id: str) -> Group:
        """The group with this id. Raises NotFoundError, UnreadableRowError."""
        row = self._connection.execute(_ONE, {"ref": group_id}).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no group {group_id}", hint="tradewind queue lists the jobs")
        return record(Group, "job_group", row)

    def groups(self) -> list[Group]:
        """All groups in the order of submission. Raises UnreadableRowError."""
        return [record(Group, "job_group", row) for row in self._connection.execute(_ALL).all()]

    def group_outlines(self, group_ids: Collection[str]) -> dict[str, GroupOutline]:
        """The names and policies of these groups by id; unknown ids are left out."""
        return {
            str(row.id): GroupOutline(str(row.name), str(row.policy))
            for batch in batches(group_ids)
            for row in self._connection.execute(_OUTLINES, {"ids": batch})
        }

    def find_group(self, ref: str, project: str | None = None) -> Group:
        """The group with this id, or the newest with this name; in `project`, if one is given. Raises NotFoundError
        with similar names or its project, UnreadableRowError."""
        for query in (_ONE, _NAMED):
            wanted = query if project is None else query.where(job_group.c.project == project)
            if (row := self._connection.execute(wanted, {"ref": ref}).one_or_none()) is not None:
                return record(Group, "job_group", row)
        if elsewhere := self._projects_of(ref):
            message = f"project {echoed(project)} has no group {echoed(ref)}"
            raise NotFoundError(message, hint=f"projects that have one: {_listed(elsewhere)}")
        found = self._connection.execute(_NEWEST_NAMES).scalars()
        names = list(dict.fromkeys(name for name in found if isinstance(name, str)))
        close = difflib.get_close_matches(ref, sorted(names), n=3)
        hint = f"the newest groups: {', '.join(names[:3])}" if names else "submit one: tradewind submit GROUP.yaml"
        hint = f"did you mean {' or '.join(close)}?" if close else hint
        raise NotFoundError(f"there is no group {echoed(ref)}", hint=hint)

    def only_group(self, ref: str, project: str | None = None) -> Group:
        """Like `find_group`, for actions that must not affect the wrong group: raises UsageError if several projects
        have groups with this name and no project is given."""
        found = self.find_group(ref, project)
        if project is None and ref != found.id and len(projects := self._projects_of(ref)) > 1:
            hint = "also give the project, or give the id of the group"
            raise UsageError(f"several projects have a group {ref}: {_listed(projects)}", hint=hint)
        return found

    def open_namesakes(self, group: Group) -> list[str]:
        """The ids of the other groups of its project that have its name and jobs that have not ended, oldest first."""
        given = {"of_name": group.name, "of_project": group.project, "ref": group.id}
        return [str(each) for each in self._connection.execute(_OPEN_NAMESAKES, given).scalars()]

    def _projects_of(self, ref: str) -> list[str]:
        """The projects that have groups with this name or id, in alphabetical order."""
        return [str(each) for each in self._connection.execute(_PROJECTS_OF, {"ref": ref}).scalars()]

    def group_with_token(self, project: str, token: str) -> tuple[Group, str] | None:
        """The group of `project` with the submitter's `token` and the digest of its submission, or None. Raises
        UnreadableRowError."""
        row = self._connection.execute(_WITH_TOKEN, {"of_project": project, "of_token": token}).one_or_none()
        return None if row is None else (self.group(str(row.id)), str(row.digest))

    def set_group_budget(self, group_id: str, nano_usd: int) -> None:
        """Changes the budget of a group. Raises NotFoundError."""
        if not self._connection.execute(_SET_BUDGET, {"group_id": group_id, "budget_nano_usd": nano_usd}).rowcount:
            raise NotFoundError(f"there is no group {group_id}", hint="tradewind queue lists the jobs")

    def job_ids_of_group(self, group_id: str) -> list[str]:
        """The ids of the group's jobs, in the order of submission."""
        return [str(each) for each in self._connection.execute(_JOBS_OF, {"group_id": group_id}).scalars()]

    def waiting_ids_of_groups(self, group_ids: Collection[str]) -> list[str]:
        """The ids of the queued jobs of these groups that wait for other jobs."""
        return [
            str(each)
            for batch in batches(group_ids)
            for each in self._connection.execute(_WAITING, {"ids": batch}).scalars()
        ]


def _listed(projects: list[str]) -> str:
    more = [f"{len(projects) - PROJECTS_NAMED} more"] if len(projects) > PROJECTS_NAMED else []
    return ", ".join(projects[:PROJECTS_NAMED] + more)
