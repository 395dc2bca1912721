"""Budgets of groups: plan and submit refuse the same ones, and the amount that they name is enough for both."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.cli.render.screens.groups import group_plan
from orchestrator.cli.render.text import Screen
from orchestrator.config import load_config
from orchestrator.errors import InfeasibleError, LimitError
from orchestrator.installation import Installation
from orchestrator.model import FASTEST, Expected, GpuRequest, GroupJob, GroupPolicy, GroupSpec, JobSpec, Resources
from orchestrator.services.groups.budgets import parts
from orchestrator.services.groups.plan import plan_group
from orchestrator.services.groups.submit import prepared, submit_group
from orchestrator.services.groups.views import GroupPlanView, PlannedJob
from providers.clock import VirtualClock
from providers.fake import Behaviour, FakeCloud, FakeProvider
from providers.money import usd
from tests.unit.services.recorded_history import ME, spec

CENT = 10_000_000


@pytest.fixture
def scarce(installation: Installation, clock: VirtualClock) -> Installation:
    """Two machines for all jobs."""
    cloud = FakeCloud(clock, seed=1, behaviour=Behaviour(max_instances=2))
    return replace_providers(installation, FakeProvider(clock, cloud=cloud))


def replace_providers(installation: Installation, provider: FakeProvider) -> Installation:
    return Installation(installation.config, installation.clock, installation.store, {"fake": provider})


def known(name: str, steps: int = 500, rate: float = 4.5, **changes: object) -> JobSpec:
    made = replace(spec(), name=name, expected=Expected(GpuRequest("V100"), rate), **changes)  # type: ignore[arg-type]
    return replace(made, train=replace(made.train, steps=steps))


def group(*jobs: JobSpec, policy: GroupPolicy = "cheapest", **fields: object) -> GroupSpec:
    return GroupSpec("sweep", policy, "default", tuple(map(GroupJob, jobs)), **fields)  # type: ignore[arg-type]


def submit(installation: Installation, work: GroupSpec, *, accept_risk: bool = False) -> list[int]:
    view = submit_group(installation, work, prepared(installation, work), caller=ME, accept_risk=accept_risk)
    return [each.budget_nano_usd or 0 for each in view.jobs]


def refusal(installation: Installation, work: GroupSpec) -> LimitError | None:
    """What `plan` and `submit` both say of it, None if both accept it."""
    found: list[LimitError | None] = []
    for act in (plan_group, lambda *args: submit(*args)):
        try:
            act(installation, work)
            found.append(None)
        except LimitError as error:
            found.append(error)
    planned, submitted = found
    assert str(planned) == str(submitted)
    return planned


def named(error: LimitError) -> list[int]:
    return [usd(each) for each in re.findall(r"\$([0-9.]+)", error.hint)]


def test_a_joint_plan_says_which_limit_or_budget_of_the_project_is_too_small_for_it(
    installation: Installation,
) -> None:
    work = group(*(known(f"job-{number}") for number in range(3)), policy="makespan")

    def planned(**settings: object) -> tuple[GroupPlanView, str]:
        table = {"state_dir": str(installation.state_dir), "providers.enabled": "fake", **settings}
        config = load_config(table, environ={}, cwd=installation.state_dir)
        view = plan_group(replace(installation, config=config), work)
        return view, " ".join(group_plan(view, Screen()).split())

    view, text = planned(**{"limits.max_instances": 3})
    assert (view.full_limits, view.short_projects) == ((), ())
    assert "wanted" not in text
    view, text = planned(**{"limits.max_instances": 2})
    assert [(each.setting, each.most, each.wanted) for each in view.full_limits] == [("limits.max_instances", 2, 3)]
    assert "limits.max_instances is 2: 3 wanted, so jobs wait until others end" in text
    assert "not counting starts and limits in tradewind.toml" in text  # the policy makespan is about times
    with pytest.raises(InfeasibleError, match=r"the job needs a machine, but limits\.max_instances is 0") as refused:
        planned(**{"limits.max_instances": 0})
    assert refused.value.hint == "raise that limit in tradewind.toml (tradewind down --keep-jobs, then tradewind up)"
    view, text = planned(projects={"default": {"budget": view.cost_nano_usd / 2e9}})
    assert [each.cost_nano_usd for each in view.short_projects] == [view.cost_nano_usd]
    assert "raise projects.default.budget in tradewind.toml" in text


def uneven() -> GroupSpec:
    return group(known("long", 1_000_000, 2.0), known("short", 30), known("middle", 20_000))


GROUPS: dict[str, Callable[[], GroupSpec]] = {
    "two alike": lambda: group(known("a"), known("b")),
    "uneven": uneven,
    "four": lambda: group(*(known(name, 5000 + 100 * ord(name)) for name in "abcd")),
    "fastest": lambda: group(known("a", objective=FASTEST), known("b")),
    "deadlines": lambda: group(known("a", 50_000, deadline_s=6 * 3600.0), known("b", 50_000, deadline_s=9 * 3600.0)),
    "a part of its own": lambda: group(known("a", budget_nano_usd=usd("0.9")), known("b")),
    "makespan": lambda: group(known("a"), known("b", 3000), policy="makespan"),
    "throughput": lambda: group(known("a"), known("b", 3000), policy="max-throughput"),
}


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("machines", ["installation", "scarce"])
def test_the_budget_that_is_named_is_enough_for_plan_and_submit(
    request: pytest.FixtureRequest, name: str, machines: str
) -> None:
    installation, work = request.getfixturevalue(machines), GROUPS[name]()
    error = refusal(installation, replace(work, budget_nano_usd=usd("0.01")))
    assert error is not None
    amount = named(error)[0]
    assert refusal(installation, replace(work, budget_nano_usd=amount)) is None
    view = plan_group(installation, work)
    assert view.enough_budget_nano_usd <= amount < view.enough_budget_nano_usd + CENT
    assert view.cost_nano_usd <= amount


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("machines", ["installation", "scarce"])
def test_what_the_plan_shows_as_the_cost_or_as_needed_is_accepted_as_a_budget(
    request: pytest.FixtureRequest, name: str, machines: str
) -> None:
    installation, work = request.getfixturevalue(machines), GROUPS[name]()
    view = plan_group(installation, work)
    text = " ".join(group_plan(view, Screen()).split())
    (total,) = re.findall(r"together about \$([\d.]+)", text)
    more = re.findall(r"the budget must be at least \$([\d.]+) to cover likely", text)
    least = sum(each.least_budget_nano_usd for each in view.jobs)
    assert bool(more) is (least > usd(total))
    assert plan_group(installation, replace(work, budget_nano_usd=usd(more[0] if more else total)))
    for missing in (1, least // 3):
        with pytest.raises(LimitError) as refused:
            plan_group(installation, replace(work, budget_nano_usd=least - missing))
        has, needs = (usd(each) for each in re.findall(r"\$([\d.]+)", str(refused.value)))
        assert has == least - missing < least <= needs
        assert re.search(r"is \$\d\.\d{4}", str(refused.value)) or has >= usd(1)
        assert ("the cost of the plan" in str(refused.value)) is (least == view.cost_nano_usd)
        assert plan_group(installation, replace(work, budget_nano_usd=needs))


@pytest.mark.parametrize("name", ["two alike", "uneven", "deadlines", "makespan"])
def test_a_budget_that_plan_accepts_submit_refuses_at_most_for_its_risk(installation: Installation, name: str) -> None:
    work = GROUPS[name]()
    view = plan_group(installation, work)
    least, enough = sum(each.least_budget_nano_usd for each in view.jobs), view.enough_budget_nano_usd
    with pytest.raises(LimitError, match=r"cannot pay|need at least"):
        plan_group(installation, replace(work, budget_nano_usd=least - 1))
    for part in (0.0, 0.3, 0.9):
        between = replace(work, budget_nano_usd=least + round(part * (enough - least)))
        assert plan_group(installation, between).budget_nano_usd == between.budget_nano_usd
        submit(installation, between, accept_risk=True)
    with pytest.raises(LimitError, match="80%") as risky:
        submit(installation, replace(work, budget_nano_usd=least))
    assert risky.value.hint == "relax them in the group file, or add --accept-risk"


@pytest.mark.parametrize("machines", ["installation", "scarce"])
def test_budgets_of_single_jobs_are_held_to_the_same(request: pytest.FixtureRequest, machines: str) -> None:
    installation = request.getfixturevalue(machines)
    budgets: dict[str, int] = {"a": usd("0.0001"), "b": usd("0.02")}
    for attempt in itertools.count():
        work = group(*(known(name, budget_nano_usd=each) for name, each in budgets.items()), known("c"))
        error = refusal(installation, work)
        if error is None:
            break
        assert attempt == 0
        assert "a (has $0.000100, needs at least about" in str(error)
        budgets = dict(zip(budgets, named(error), strict=True))
    assert budgets["a"] > usd("0.1")


@pytest.mark.parametrize("whole", ["0.0001", "0.02", "0.10"])
def test_own_budgets_that_are_named_as_enough_come_with_one_of_the_group_where_it_has_less(
    installation: Installation, whole: str
) -> None:
    def made(own: int, of_the_group: int) -> GroupSpec:
        return group(known("a", budget_nano_usd=own), known("b"), budget_nano_usd=of_the_group)

    error = refusal(installation, made(usd("0.0001"), usd(whole)))
    assert error is not None
    own, of_the_group = named(error)
    assert f"; and ${of_the_group / 1e9:.2f} for the group sweep" in error.hint
    assert own < of_the_group
    assert refusal(installation, made(own, of_the_group)) is None
    ample = refusal(installation, made(usd("0.0001"), usd(100)))
    assert ample is not None
    assert named(ample) == [own]


def test_another_policy_than_the_cheapest_names_what_that_would_need(installation: Installation) -> None:
    work = group(*(known(f"j{n}", 5000) for n in range(3)), policy="max-throughput", budget_nano_usd=usd("0.01"))
    error = refusal(installation, work)
    assert error is not None
    own, *cheapest = named(error)
    for each in cheapest:
        assert each < own
        assert refusal(installation, replace(work, policy="cheapest", budget_nano_usd=each)) is None


def test_a_short_job_gets_what_its_start_costs(installation: Installation) -> None:
    work = replace(uneven(), budget_nano_usd=usd("10000"))
    budgets = submit(installation, work)
    view = plan_group(installation, work)
    assert all(have >= each.enough_budget_nano_usd for have, each in zip(budgets, view.jobs, strict=True))


def _job(own: int | None, least: int, enough: int) -> PlannedJob:
    return PlannedJob("a", 1.0, (), (), 1.0, 0, 0, 0, None, False, own, least, enough)


@pytest.mark.parametrize(
    ("budget", "jobs", "expected"),
    [
        (300, [(None, 50, 100), (None, 20, 50)], (200, 100)),
        (150, [(None, 50, 100), (None, 20, 50)], (100, 50)),
        (70, [(None, 50, 100), (None, 20, 50)], (50, 20)),
        (110, [(None, 50, 100), (None, 20, 50)], (75, 35)),
        (110, [(60, 50, 100), (None, 20, 50)], (60, 50)),
        (400, [(60, 50, 100), (None, 20, 50)], (60, 340)),
        (500, [(60, 50, 100), (70, 20, 50)], (60, 70)),
    ],
)
def test_parts(budget: int, jobs: list[tuple[int | None, int, int]], expected: tuple[int, ...]) -> None:
    found = parts(budget, [_job(*each) for each in jobs])
    assert found == expected
    assert sum(found) <= budget


@pytest.mark.parametrize("steps", [30, 500, 5000, 20_000])
def test_a_budget_that_pays_on_one_kind_of_machine_also_pays_where_more_are_allowed(
    installation: Installation, steps: int
) -> None:
    """A step costs less on an H100, but a start costs more than this job on a V100."""

    def of(*gpus: str, **fields: object) -> GroupSpec:
        return group(replace(known("a", steps), resources=Resources(tuple(map(GpuRequest, gpus)))), **fields)

    free = plan_group(installation, of("V100", "H100"))
    costs = {gpu: plan_group(installation, of(gpu)).cost_nano_usd for gpu in ("V100", "H100")}
    assert free.cost_nano_usd == min(costs.values()) == costs["V100"]
    assert refusal(installation, of("V100", "H100", budget_nano_usd=free.enough_budget_nano_usd)) is None
    assert plan_group(installation, of("V100", "H100", budget_nano_usd=free.cost_nano_usd)).jobs == free.jobs
    error = refusal(installation, of("V100", "H100", budget_nano_usd=free.cost_nano_usd - 1))
    assert error is not None
    amount = named(error)[0]
    assert free.enough_budget_nano_usd <= amount < free.enough_budget_nano_usd + CENT
    assert refusal(installation, of("V100", "H100", budget_nano_usd=amount)) is None


def test_the_view_tells_what_is_enough_without_a_budget(installation: Installation) -> None:
    view: GroupPlanView = plan_group(installation, group(known("a"), known("b")))
    assert view.budget_nano_usd is None
    assert view.enough_budget_nano_usd == sum(each.enough_budget_nano_usd for each in view.jobs)
    for each in view.jobs:
        assert 0 < each.cost_nano_usd <= each.least_budget_nano_usd <= each.enough_budget_nano_usd
