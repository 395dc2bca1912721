"""Submits a group: stores its jobs, their events and the plan in one transaction, all or nothing."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import InfeasibleError, LimitError, TokenConflictError, UsageError, echoed
from orchestrator.formats.codec import encode
from orchestrator.installation import Installation
from orchestrator.model import Group, GroupSpec, Job, new_id
from orchestrator.services.caller import Caller
from orchestrator.services.groups.plan import new_jobs, planned_group, with_parts
from orchestrator.services.groups.views import GroupView
from orchestrator.services.jobs.code import uploaded
from orchestrator.services.jobs.current import job_views
from orchestrator.services.jobs.feasible import require_accepted_risk, require_startable
from orchestrator.services.jobs.plan import freshen, planned
from orchestrator.services.jobs.submit import TOKEN, add_jobs, make_checkpoint_folder
from orchestrator.store import Tx


def prepared(installation: Installation, group: GroupSpec) -> tuple[Job, ...]:
    """The jobs as they would be submitted, each with its part of the group's budget. Raises the same errors as
    `plan_group`."""
    freshen(installation)
    jobs = new_jobs(installation, group, new_id("group", installation.clock.now_ms(), random.SystemRandom()))
    return with_parts(group, jobs, planned_group(installation, group, jobs))


def submit_group(
    installation: Installation,
    group: GroupSpec,
    jobs: tuple[Job, ...],
    *,
    caller: Caller,
    token: str | None = None,
    accept_code: bool = False,
    accept_risk: bool = True,
) -> GroupView:
    """Submit the `jobs` that `prepared` made of a group. For `token` and `accept_code` see services.jobs.submit.

    Raises InfeasibleError if no offer fits one of the jobs; unless `accept_risk`, LimitError if a job is unlikely to
    meet its deadline and its part of the budget; TokenConflictError, UsageError, StoreError.
    """
    if token is not None and (before := submitted_before(installation, group, token)) is not None:
        return before
    view = planned(installation, jobs, only=[job.id for job in jobs])
    with _of_group_file():
        require_startable(view)
        if not accept_risk:
            require_accepted_risk(view)
    for job in jobs:
        make_checkpoint_folder(job)
    with uploaded(installation, jobs, accepted=accept_code) as packed, installation.store.write() as tx:
        known = None if token is None else _with_token(tx, group, token)
        if known is None:
            now = installation.clock.now_ms()
            due_ms = group.deadline_at_ms
            if group.deadline_s is not None:
                due_ms = now + int(group.deadline_s * 1000)
            known = Group(
                jobs[0].group_id or "",
                group.name,
                group.policy,
                group.project,
                caller.owner,
                now,
                group.budget_nano_usd,
                due_ms,
            )
            tx.add_group(known, token=token, digest=_digest(group))
            add_jobs(installation, tx, packed, view.plan, caller=caller)
        return group_view(installation, tx, known)


@contextmanager
def _of_group_file() -> Iterator[None]:
    """Hints refer to the group file, not to a job file."""
    try:
        yield
    except (InfeasibleError, LimitError) as error:
        error.hint = error.hint.replace("the job file", "the group file")
        raise


def submitted_before(installation: Installation, group: GroupSpec, token: str) -> GroupView | None:
    """The group that the same submission created earlier, else None. Raises TokenConflictError, UsageError."""
    with installation.store.read() as tx:
        known = _with_token(tx, group, token)
        return None if known is None else group_view(installation, tx, known)


def group_view(installation: Installation, tx: Tx, group: Group) -> GroupView:
    """The current state of a group and its jobs."""
    by_id = {job.id: job for job in tx.outlines_of(tx.job_ids_of_group(group.id))}
    views = job_views(installation, tx, [by_id[each] for each in tx.job_ids_of_group(group.id)], {})
    return GroupView(
        id=group.id,
        name=group.name,
        policy=group.policy,
        project=group.project,
        owner=group.owner,
        submitted_at_ms=group.submitted_at_ms,
        budget_nano_usd=group.budget_nano_usd,
        deadline_at_ms=group.deadline_at_ms,
        paid_nano_usd=sum(view.paid_nano_usd for view in views),
        jobs=views,
    )


def _with_token(tx: Tx, group: GroupSpec, token: str) -> Group | None:
    if not TOKEN.fullmatch(token):
        raise UsageError(
            f"{echoed(token)} is not a valid token", hint="use 1 to 200 printable ASCII characters, no spaces"
        )
    found = tx.group_with_token(group.project, token)
    other = None if found is not None else tx.job_with_token(group.project, token)
    if other is not None or (found is not None and found[1] != _digest(group)):
        name = other.name if other is not None else found[0].name if found is not None else ""
        raise TokenConflictError(
            f"the token {token} was used for another submission to project {group.project}: {name}",
            hint="use another token for a different group",
        )
    return None if found is None else found[0]


def _digest(group: GroupSpec) -> str:
    text = json.dumps(encode(group), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
