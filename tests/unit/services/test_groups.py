"""Groups: planned together, submitted all or none, kept within their budget, in their order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.billing.group_budget import divided
from orchestrator.errors import InfeasibleError, LimitError, NotFoundError, TokenConflictError, UsageError
from orchestrator.installation import Installation
from orchestrator.model import Expected, GpuRequest, GroupJob, GroupSpec, JobSpec
from orchestrator.reports import job_list
from orchestrator.services.groups.orders import cancel_group, pause_group, resume_group
from orchestrator.services.groups.plan import plan_group
from orchestrator.services.groups.submit import prepared, submit_group, submitted_before
from orchestrator.services.groups.views import GroupView
from orchestrator.services.jobs import commands, current, submit
from orchestrator.services.jobs.plan import preview
from orchestrator.store import JobFilter
from providers.money import usd
from tests.unit.services.recorded_history import ME, spec


def known(name: str, **changes: object) -> JobSpec:
    return replace(spec(), name=name, expected=Expected(GpuRequest("V100"), 4.5), **changes)  # type: ignore[arg-type]


def group(*jobs: GroupJob, **fields: object) -> GroupSpec:
    made = jobs or (GroupJob(known("a")), GroupJob(known("b"), 2.0, ("a",)))
    return GroupSpec("sweep", "cheapest", "default", made, **fields)  # type: ignore[arg-type]


def submitted(installation: Installation, work: GroupSpec, token: str | None = None) -> GroupView:
    return submit_group(installation, work, prepared(installation, work), caller=ME, token=token)


def test_a_joint_plan_has_each_job_with_cost_and_finish_and_writes_nothing(installation: Installation) -> None:
    view = plan_group(installation, group())
    assert [each.name for each in view.jobs] == ["a", "b"]
    assert all(each.cost_nano_usd > 0 and each.finish_at_ms and each.parts for each in view.jobs)
    assert view.cost_nano_usd == sum(each.cost_nano_usd for each in view.jobs)
    assert view.gap <= 5e-3
    assert (view.jobs[1].weight, view.jobs[1].after) == (2.0, ("a",))
    with installation.store.read() as tx:
        assert tx.jobs() == []


def test_a_job_without_any_speed_is_named(installation: Installation) -> None:
    with pytest.raises(InfeasibleError, match="b: no throughput"):
        plan_group(installation, group(GroupJob(known("a")), GroupJob(replace(spec(), name="b", expected=None))))


def test_a_budget_that_is_too_small_says_which_one_would_do(installation: Installation) -> None:
    view = plan_group(installation, group())
    cost, enough = view.cost_nano_usd, view.enough_budget_nano_usd
    with pytest.raises(LimitError, match="together") as error:
        plan_group(installation, group(budget_nano_usd=cost // 2))
    dollars = float(error.value.hint.split("$")[1].split()[0])
    assert cost <= enough <= usd(dollars) < enough + 10_000_000
    assert plan_group(installation, group(budget_nano_usd=usd(dollars))).cost_nano_usd == cost


def test_what_if_needs_a_form_and_a_quota_that_exists(installation: Installation) -> None:
    for wrong in ("p5=3", "quota.fake.us.p5", "quota.fake.us.p5=-1", "price.fake.us.p5=1", "quota.fake.us.p5=1"):
        with pytest.raises(UsageError) as error:
            plan_group(installation, group(), [wrong])
        assert error.value.hint


def test_all_jobs_are_submitted_with_their_group_order_and_weight(installation: Installation) -> None:
    view = submitted(installation, group())
    assert [each.name for each in view.jobs] == ["a", "b"]
    with installation.store.read() as tx:
        found = tx.find_group("sweep")
        a, b = (tx.job(each) for each in tx.job_ids_of_group(found.id))
    assert found.id == view.id == a.group_id == b.group_id
    assert (b.weight, b.after) == (2.0, (a.id,))


def test_a_group_with_a_job_that_fits_nowhere_leaves_nothing(installation: Installation) -> None:
    nowhere = known("b", where=replace(spec().where, clouds=("aws",)))
    with pytest.raises(InfeasibleError, match="b"):
        submitted(installation, group(GroupJob(known("a")), GroupJob(nowhere)))
    with installation.store.read() as tx:
        assert (tx.jobs(), tx.groups()) == ([], [])


def test_a_token_submits_once_and_belongs_to_one_submission(installation: Installation) -> None:
    first = submitted(installation, group(), "once")
    assert submitted(installation, group(), "once").id == first.id
    before = submitted_before(installation, group(), "once")
    assert before is not None
    assert before.id == first.id
    assert submitted_before(installation, group(), "other") is None
    with pytest.raises(TokenConflictError):
        submitted(installation, group(GroupJob(known("a"))), "once")
    with pytest.raises(TokenConflictError):
        submit.submit(installation, preview(installation, [spec()]), caller=ME, token="once")
    with pytest.raises(UsageError):
        submitted(installation, group(), "two words")
    submit.submit(installation, preview(installation, [spec()]), caller=ME, token="single")
    with pytest.raises(TokenConflictError):
        submitted(installation, group(), "single")


def test_the_budget_is_divided_and_its_parts_cannot_grow_beyond_it(installation: Installation) -> None:
    whole = 3 * plan_group(installation, group()).cost_nano_usd
    view = submitted(installation, group(budget_nano_usd=whole))
    parts = [each.budget_nano_usd or 0 for each in view.jobs]
    assert 0 < sum(parts) <= whole
    with pytest.raises(UsageError, match="at most"):
        commands.set_budget(installation, view.jobs[0].id, (whole - parts[1]) / 1e9 + 0.01, caller=ME)
    commands.set_budget(installation, view.jobs[0].id, parts[0] / 2e9, caller=ME)


@pytest.mark.parametrize(
    ("budget", "expected", "own", "parts"),
    [
        (90, [1, 2], [None, None], (30, 60)),
        (90, [1, 2], [10, None], (10, 80)),
        (90, [1, 2], [50, None], (30, 60)),
        (90, [1, 1], [10, 20], (10, 20)),
        (91, [1, 1], [None, None], (45, 45)),
        (90, [0, 0], [None, None], (45, 45)),
    ],
)
def test_parts_of_a_budget(budget: int, expected: list[int], own: list[int | None], parts: tuple[int, ...]) -> None:
    assert divided(budget, expected, own) == parts


def test_the_queue_of_a_group_and_its_cancellation(installation: Installation) -> None:
    view = submitted(installation, group())
    submit.submit(installation, preview(installation, [spec()]), caller=ME)
    listed = current.jobs(installation, group="sweep", limit=1)
    assert [each.name for each in listed.jobs] == ["a"]
    rest = current.jobs(installation, group="sweep", limit=1, cursor=listed.next_cursor)
    assert ([each.name for each in rest.jobs], rest.next_cursor) == (["b"], None)
    with pytest.raises(NotFoundError):
        current.jobs(installation, group="swoop")
    assert cancel_group(installation, "sweep", caller=ME).job_ids == tuple(each.id for each in view.jobs)
    with installation.store.write() as tx:
        for each in view.jobs:
            tx.set_job_state(each.id, "cancelled")
    assert current.jobs(installation, group="sweep").ended == 2
    with pytest.raises(UsageError):
        cancel_group(installation, "sweep", caller=ME)


def test_a_group_is_paused_and_resumed_as_a_whole(installation: Installation) -> None:
    view = submitted(installation, group())
    first, second = (each.id for each in view.jobs)
    with pytest.raises(UsageError, match="sweep has no jobs left to resume"):
        resume_group(installation, "sweep", caller=ME)
    with installation.store.write() as tx:
        tx.set_job_state(first, "paused")
    assert pause_group(installation, "sweep", caller=ME).job_ids == (second,)
    resumed = resume_group(installation, "sweep", caller=ME)
    assert resumed.command == "resume"
    assert set(resumed.job_ids) == {first, second}, "it takes back a pause that waits for a control plane"
    assert resumed.message.startswith("2 jobs of sweep will resume")
    again = pause_group(installation, "sweep", caller=ME)
    assert set(again.job_ids) == {first, second}, "it takes back a resume that waits for a control plane"
    for ref in (first, second):
        commands.cancel(installation, ref, caller=ME)
    for order in (pause_group, resume_group):
        with pytest.raises(UsageError, match="sweep has no jobs left to"):
            order(installation, "sweep", caller=ME)
    with installation.store.read() as tx:
        assert [(each.kind, each.job_id) for each in tx.open_commands()] == [
            ("pause", second),
            *(("resume", job_id) for job_id in resumed.job_ids),
            *(("pause", job_id) for job_id in again.job_ids),
            ("cancel", first),
            ("cancel", second),
        ]


def test_a_command_for_the_newest_group_of_a_name_names_the_others_that_have_open_jobs(
    installation: Installation,
) -> None:
    older, newer = sorted((submitted(installation, group()) for _ in range(2)), key=lambda each: each.id)
    assert f"; an older group of this name has open jobs, too: --group {older.id}" in (
        cancel_group(installation, "sweep", caller=ME).message
    )
    assert "of this name" not in pause_group(installation, older.id, caller=ME).message
    with installation.store.write() as tx:
        for each in newer.jobs:
            tx.set_job_state(each.id, "cancelled")
    with pytest.raises(UsageError, match="have ended") as error:
        cancel_group(installation, "sweep", caller=ME)
    assert f"--group {older.id}" in error.value.hint
    with installation.store.write() as tx:
        for each in older.jobs:
            tx.set_job_state(each.id, "cancelled")
    with pytest.raises(UsageError, match="have ended") as error:
        cancel_group(installation, "sweep", caller=ME)
    assert older.id not in error.value.hint


def test_a_job_ends_after_its_predecessors_and_a_chain_that_is_too_long_is_late(installation: Installation) -> None:
    view = plan_group(installation, group())
    first, second = view.jobs
    assert first.start_at_ms == view.at_ms
    assert second.start_at_ms == first.finish_at_ms
    assert view.finish_at_ms == second.finish_at_ms
    assert second.finish_at_ms is not None
    alone_s = (second.finish_at_ms - (second.start_at_ms or 0)) / 1000
    hurried = GroupJob(known("b", deadline_s=alone_s * 1.5), 1.0, ("a",))
    late = plan_group(installation, group(GroupJob(known("a")), hurried)).jobs[1]
    assert late.late
    assert not second.late


def test_the_list_of_jobs_has_their_groups_and_can_be_one_groups(installation: Installation) -> None:
    view = submitted(installation, group())
    submit.submit(installation, preview(installation, [known("alone")]), caller=ME)
    both = job_list.job_table(installation)
    assert {each.name: each.group for each in both.jobs} == {"a": "sweep", "b": "sweep", "alone": None}
    assert {each.group_id for each in both.jobs} == {view.id, None}
    for ref in (view.id, "sweep"):
        found = job_list.job_table(installation, JobFilter(group=ref))
        assert (found.count, {each.name for each in found.jobs}) == (2, {"a", "b"})
    with pytest.raises(NotFoundError, match="there is no group 'fresh'") as error:
        job_list.job_table(installation, JobFilter(group="fresh"))
    assert error.value.hint == "the newest groups: sweep"
    with pytest.raises(NotFoundError, match="there is no group 'swep'") as error:
        job_list.job_table(installation, JobFilter(group="swep"))
    assert error.value.hint == "did you mean sweep?"
    assert current.job(installation, "alone").group is None
    assert "sweep" in job_list.jobs_csv(both)


def test_a_name_in_a_project_is_that_projects_group_even_if_another_has_a_newer_one(
    installation: Installation,
) -> None:
    for project in ("alpha", "beta"):
        submitted(installation, replace(group(GroupJob(known("a", project=project))), project=project))
    for project in ("alpha", "beta"):
        (listed,) = job_list.job_table(installation, JobFilter(group="sweep", project=project)).jobs
        (queued,) = current.jobs(installation, project=project, group="sweep").jobs
        assert listed.project == queued.project == project


def test_a_group_is_not_cancelled_because_another_project_has_one_of_its_name(installation: Installation) -> None:
    alpha, _ = (
        submitted(installation, replace(group(GroupJob(known("a", project=project))), project=project))
        for project in ("alpha", "beta")
    )
    with pytest.raises(UsageError, match="alpha, beta"):
        cancel_group(installation, "sweep", caller=ME)
    with installation.store.read() as tx:
        assert not tx.open_commands()
    assert cancel_group(installation, "sweep", "alpha", caller=ME).job_ids == (alpha.jobs[0].id,)
    with installation.store.write() as tx:
        tx.set_job_state(alpha.jobs[0].id, "cancelled")
    with pytest.raises(UsageError) as error:
        cancel_group(installation, "sweep", "alpha", caller=ME)
    ref = error.value.hint.split("--group ")[1]
    assert [each.id for each in current.jobs(installation, ended=True, group=ref).jobs] == [alpha.jobs[0].id]
