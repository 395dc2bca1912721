"""What the jobs of a project may use together, which jobs come first, and how projects share machines."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.config.projects import Project, Projects
from orchestrator.errors import UsageError
from orchestrator.model import Expected, GpuRequest, Group, Job, JobSpec, Resources
from orchestrator.policy.projects import STARVED_S
from orchestrator.services.caller import Caller
from orchestrator.services.control_plane import project_limits
from orchestrator.services.groups.orders import resume_group
from orchestrator.services.jobs import commands
from orchestrator.services.jobs.project_money import short_projects
from providers.money import usd
from tests.sim.harness import BRISK, CHEAP, SimulatedInstallation, check_truth, train_spec

RESTART = "(tradewind down --keep-jobs, then tradewind up)"
ME = Caller("me")
KNOWN = Expected(GpuRequest("V100"), 1.0)
Install = Callable[..., SimulatedInstallation]


def states(home: SimulatedInstallation, *jobs: Job) -> set[str]:
    return {home.job(job).state for job in jobs}


def why_waiting(home: SimulatedInstallation, job: Job) -> str:
    return home.events(job, "job.waits")[-1].message


def up(home: SimulatedInstallation, *jobs: Job) -> int:
    machines = {each.id for each in home.cloud.instances() if each.alive}
    return sum(instance_id in machines for job in jobs for run in home.runs(job) for instance_id in run.instance_ids)


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        (
            {"max_instances": 1},
            "projects.vision.max_instances is reached (1 of 1 machines): raise projects.vision.max_instances in "
            f"tradewind.toml {RESTART}, or wait",
        ),
        (
            {"max_usd_per_hour": 1.5},
            "this would cost $2.00/h, more than projects.vision.max_usd_per_hour (1.5); $1.00/h of it is used: raise "
            f"projects.vision.max_usd_per_hour in tradewind.toml {RESTART}, or wait",
        ),
    ],
)
def test_a_limit_of_a_project_holds_up_its_own_jobs_only(install: Install, limit: dict[str, object], why: str) -> None:
    home = install(overrides={"projects": {"vision": limit}})
    vision = [home.submit(f"vision-{number}", steps=30, project="vision") for number in range(2)]
    other = home.submit("other", steps=10)
    most = 0
    while states(home, *vision) != {"finished"}:
        home.tick()
        most = max(most, up(home, *vision))
        assert home.clock.monotonic_s() < 600, home.story()
    assert most == 1
    (waited,) = [job for job in vision if home.events(job, "job.waits")]
    assert why_waiting(home, waited) == why
    assert not home.events(other, "job.waits")
    home.settle()
    check_truth(home)


def test_a_job_that_its_project_holds_up_keeps_no_place_from_others(install: Install) -> None:
    """It lost its machine, so it would come before new jobs; but it has to wait for another one of its project."""
    home = install(overrides={"limits.max_instances": 2, "projects": {"vision": {"max_instances": 1, "priority": 5}}})
    training = home.submit("training", steps=400, project="vision")
    run = home.until_step(training, 5)
    waiting = home.submit("waiting", steps=400, project="vision")
    home.until(lambda: bool(home.events(waiting, "job.waits")))
    other = home.submit("other", steps=10)
    home.until_state(other, "finished")
    home.cloud.crash(home.machine(run).id)
    home.until(lambda: len(home.runs(training)) + len(home.runs(waiting)) > 1)
    assert home.runs(training)[1:], "the one that trained before comes first in its project, too"


@pytest.mark.parametrize("deaf", [False, True])
def test_jobs_of_a_project_never_cost_more_than_its_budget(install: Install, deaf: bool) -> None:
    budget = usd("0.25")
    home = install(overrides={"projects": {"vision": {"budget": 0.25}}})
    jobs = [home.submit(f"vision-{number}", steps=900, project="vision") for number in range(2)]
    for job in jobs:
        home.until_step(job, 3)
        if deaf:
            home.site.ignore_control(job.id)
    home.until(lambda: states(home, *jobs) == {"paused"}, limit_s=900.0, stride_s=3.0)
    said = home.events(jobs[0], "job.paused")[0].message
    assert re.search(r"project vision: \$0\.\d+ of its \$0\.25 is spent; \$\S+ is reserved", said)
    assert said.endswith(f"raise projects.vision.budget in tradewind.toml {RESTART}, then tradewind resume vision-0")
    home.settle(limit_s=2000.0)
    ledger, billed = home.books()
    assert 0.8 * budget < ledger == billed <= budget


@pytest.mark.parametrize("expected", [KNOWN, None])
def test_a_job_whose_project_pays_for_no_machine_is_not_resumed_and_the_amount_named_is_enough(
    install: Install, expected: Expected | None
) -> None:
    home = install(overrides={"projects": {"vision": {"budget": 0.015}}})
    job = home.submit("job", steps=600, project="vision", expected=expected)
    home.ask("pause", job)
    home.until_state(job, "paused")
    why = r"^job could rent no machine: the \$0\.015 budget of project vision is too small$"
    with pytest.raises(UsageError, match=why) as refused:
        commands.resume(home.installation, "job", caller=ME)
    hint = refused.value.hint
    assert hint.endswith("then tradewind resume job")
    amount = r"projects\.vision\.budget to (\S+) in" if expected else r"\$(\S+) is enough to rent a machine"
    (enough,) = re.findall(amount, hint)
    raised(home, enough)
    accepted = commands.resume(home.installation, "job", caller=ME)
    assert "pause it again" not in accepted.message or expected is None
    home.until_state(job, "running")
    home.settle(limit_s=2000.0)
    assert home.job(job).state == "finished" or expected is None
    ledger, billed = home.books()
    assert 0 < ledger == billed <= usd(enough)


@pytest.mark.parametrize("seed", range(3))
def test_a_job_paused_by_the_budget_of_its_project_is_resumed_with_a_warning_and_an_amount_that_is_enough(
    install: Install, seed: int
) -> None:
    draw = random.Random(seed)
    home = install(overrides={"projects": {"vision": {"budget": round(draw.uniform(0.1, 0.14), 3)}}})
    other = home.submit("other", steps=draw.randint(10, 60), project="vision")
    home.until_state(other, "finished")
    job = home.submit("job", steps=900, project="vision", expected=KNOWN)
    home.until_step(job, 3)
    home.until_state(job, "paused")
    home.settle(limit_s=2000.0)
    try:
        said = commands.resume(home.installation, "job", caller=ME).message
        assert re.search(r"; the \$\S+ budget of project vision may pause it again; to let it finish", said)
    except UsageError as refused:
        said = refused.hint
    (enough,) = re.findall(r"projects\.vision\.budget to (\d+\.\d\d) in tradewind\.toml \(tradewind down", said)
    home.settle(limit_s=2000.0)
    raised(home, enough)
    with suppress(UsageError):
        assert "pause it again" not in commands.resume(home.installation, "job", caller=ME).message
    home.until_state(job, "running")
    home.settle(limit_s=4000.0)
    assert home.job(job).state == "finished"
    ledger, billed = home.books()
    assert 0 < ledger == billed <= usd(enough)


def test_a_new_budget_of_a_job_names_that_of_its_project_if_it_pays_for_no_machine(install: Install) -> None:
    home = install(overrides={"projects": {"vision": {"budget": 0.015}}})
    job = home.submit("job", steps=600, project="vision", expected=KNOWN, budget_nano_usd=usd("0.01"))
    home.until_state(job, "paused")
    said = commands.set_budget(home.installation, "job", "2.00", caller=ME).message
    found = re.search(
        r"^the budget of job becomes \$2\.00; the \$0\.015 budget of project vision is too small; to continue: raise "
        r"projects\.vision\.budget to (\S+) in tradewind\.toml \(.*\), then tradewind resume job$",
        said,
    )
    assert found is not None, said
    home.tick()
    raised(home, found[1])
    commands.resume(home.installation, "job", caller=ME)
    home.until_state(job, "running")


def test_a_pause_for_the_budget_of_a_job_names_that_of_its_project_if_it_pays_for_no_machine(install: Install) -> None:
    home = install(overrides={"projects": {"vision": {"budget": 0.015}}})
    job = home.submit("job", steps=600, project="vision", expected=KNOWN, budget_nano_usd=usd("0.01"))
    home.until_state(job, "paused")
    said = home.events(job, "job.paused")[0].message
    own, whole = r"tradewind budget set job (\S+)", r"raise projects\.vision\.budget to (\S+) in tradewind\.toml \(.*\)"
    found = re.search(rf"; to set it: {own}, then {whole}, then tradewind resume job$", said)
    assert found is not None, said
    commands.set_budget(home.installation, "job", found[1], caller=ME)
    home.tick()
    raised(home, found[2])
    commands.resume(home.installation, "job", caller=ME)
    home.until_state(job, "running")


def raised(home: SimulatedInstallation, dollars: str) -> None:
    """A control plane that starts with another budget of the project."""
    home.config = replace(home.config, projects=Projects({"vision": Project(budget=float(dollars))}))
    home.start()


def test_a_pause_for_the_budget_of_a_project_gives_the_id_of_a_job_whose_name_another_has(install: Install) -> None:
    home = install(overrides={"projects": {"vision": {"budget": 0.15}}})
    job = home.submit("shared", steps=900, project="vision")
    home.until_step(job, 3)
    home.submit("shared", steps=1)
    home.until_state(job, "paused")
    assert home.events(job, "job.paused")[0].message.endswith(f"tradewind up), then tradewind resume {job.id}")


def test_launches_at_the_same_time_do_not_pass_the_budget_together(install: Install) -> None:
    """A machine here is billed for a minute at least: that is $0.0167 each. The job that finds no room says why."""
    home = install(overrides={"projects": {"vision": {"budget": 0.09}}})
    jobs = [home.submit(f"vision-{number}", steps=900, project="vision") for number in range(4)]
    home.until(lambda: "running" in states(home, *jobs))
    for job in jobs:
        home.site.ignore_control(job.id)
    home.until(lambda: not states(home, *jobs) - {"paused", "queued"}, stride_s=2.0)
    home.run_for(30)
    ledger, billed = home.books()
    assert 0 < ledger == billed <= usd("0.09")
    waiting = [event.message for job in jobs for event in home.events(job, "job.waits")]
    assert waiting
    for why in waiting:
        assert why.startswith("the rest of the budget of project vision does not cover another machine; $0.0")
        assert why.endswith(
            "raise projects.vision.budget in tradewind.toml (tradewind down --keep-jobs, then tradewind up)"
        )


@pytest.mark.parametrize("limited", [{"limits.max_instances": 1}, {}])
def test_a_job_of_a_higher_priority_gets_the_next_machine(install: Install, limited: dict[str, object]) -> None:
    """Where the installation allows one machine, and where the account's quota does."""
    behaviour = BRISK if limited else replace(BRISK, max_instances=1)
    home = install(behaviour=behaviour, overrides={**limited, "projects": {"urgent": {"priority": 1}}})
    first = home.submit("first", steps=40)
    home.until_step(first, 5)
    low = [home.submit(f"low-{number}", steps=30) for number in range(4)]
    home.run_for(5)
    urgent = home.submit("urgent", steps=5, project="urgent")
    home.until(lambda: any(home.runs(job) for job in (*low, urgent)))
    assert home.runs(urgent)
    assert not any(home.runs(job) for job in low)
    home.until_state(urgent, "finished")
    home.until(lambda: any(home.runs(job) for job in low))


def test_of_jobs_that_are_decided_together_the_one_of_a_higher_priority_is_placed(install: Install) -> None:
    home = install(overrides={"limits.max_instances": 1, "projects": {"urgent": {"priority": 1}}})
    low = [home.submit(f"low-{number}", steps=5) for number in range(4)]
    urgent = home.submit("urgent", steps=5, project="urgent")
    home.until(lambda: any(home.runs(job) for job in (*low, urgent)))
    assert home.runs(urgent)


def test_room_is_kept_for_a_job_of_a_higher_priority_until_it_is_enough(install: Install) -> None:
    """The gang needs two machines. Jobs of a lower priority could take each one that becomes free."""
    home = install(overrides={"limits.max_instances": 2, "projects": {"urgent": {"priority": 1}}})
    first, second = home.submit("first", steps=25), home.submit("second", steps=50)
    for job in (first, second):
        home.until_step(job, 3)
    gang = home.submit("gang", steps=5, project="urgent", resources=Resources(nodes=2))
    low = home.submit("low", steps=400)
    home.until_state(first, "finished")
    home.until(lambda: bool(home.runs(gang) or home.runs(low)))
    assert not home.runs(low)
    assert "and gang, which has a higher priority, comes first" in " ".join(
        event.message for event in home.events(low, "job.waits")
    )


def test_a_job_that_waited_for_a_day_comes_before_newer_ones_of_a_higher_priority(install: Install) -> None:
    home = install(overrides={"limits.max_instances": 1, "projects": {"urgent": {"priority": 1}}})
    first = home.submit("first", steps=100, project="urgent")
    home.until_step(first, 5)
    low = home.submit("low", steps=20)
    home.tick()
    home.clock.advance(STARVED_S)
    home.tick()
    urgent = home.submit("urgent", steps=20, project="urgent")
    home.until(lambda: bool(home.runs(urgent) or home.runs(low)), limit_s=900.0)
    assert home.runs(low)


def test_projects_share_machines_by_their_weights(install: Install) -> None:
    settings: dict[str, Any] = {
        "policy.time_sharing": "max-min-fairness",
        "policy.turn_s": 60.0,
        "projects": {"vision": {"weight": 3}},
    }
    behaviour = replace(BRISK, max_instances=1, owned=True)
    home = install(catalog=((CHEAP, usd("0.01")),), behaviour=behaviour, overrides=settings)
    vision = [home.submit(f"vision-{number}", steps=300, project="vision") for number in range(2)]
    other = home.submit("other", steps=300)
    jobs = [*vision, other]
    home.until(lambda: all(any("its share is about" in each.message for each in home.events(job)) for job in jobs))
    parts = {
        job.name: re.findall(r"its share is about (\d+)%", each.message)[-1]
        for job in jobs
        for each in home.events(job)
        if "3 jobs share" in each.message
    }
    assert {name: abs(int(part) - {"other": 25}.get(name, 37)) <= 1 for name, part in parts.items()} == {
        job.name: True for job in jobs
    }


def test_a_budget_of_a_project_that_the_control_plane_has_not_read_yet_does_not_count(install: Install) -> None:
    home = install(overrides={"projects": {"vision": {"budget": 0.015}}})
    project_limits.keep(home.installation)  # as a control plane does when it starts
    job = home.submit("job", steps=60, project="vision", expected=KNOWN, budget_nano_usd=usd(1))
    home.ask("pause", job)
    home.until_state(job, "paused")
    projects = Projects({"vision": Project(budget=2.0)})
    edited = replace(home.installation, config=replace(home.config, projects=projects))
    why = r"^job could rent no machine: the \$0\.015 budget of project vision is too small$"
    restart = (
        f"restart the control plane, so that it reads projects.vision.budget again {RESTART}, then tradewind resume job"
    )
    with pytest.raises(UsageError, match=why) as refused:
        commands.resume(edited, "job", caller=ME)
    assert refused.value.hint == restart
    assert commands.set_budget(edited, "job", "2.00", caller=ME).message.endswith(f"; to continue: {restart}")
    with edited.store.read() as tx:
        (short,) = short_projects(edited, tx, {"vision": usd("0.5")}, edited.clock.now_ms())
    assert short.budget_nano_usd == usd("0.015")
    raised(home, "2.00")
    project_limits.keep(home.installation)
    commands.resume(edited, "job", caller=ME)
    home.until_state(job, "running")


def test_a_budget_of_a_project_that_was_written_since_the_control_plane_started_without_one_does_not_count(
    install: Install,
) -> None:
    home = install()
    project_limits.keep(home.installation)
    job = home.submit("job", steps=60, project="vision", expected=KNOWN)
    home.ask("pause", job)
    home.until_state(job, "paused")
    projects = Projects({"vision": Project(budget=0.001)})
    edited = replace(home.installation, config=replace(home.config, projects=projects))
    commands.resume(edited, "job", caller=ME)
    home.until_state(job, "running")


def paused_group(home: SimulatedInstallation) -> list[Job]:
    """Three jobs of a group that were paused before they began."""
    group = Group("group_A", "sweep", "cheapest", "vision", "me", home.clock.now_ms())
    jobs = []
    for name in "abc":
        spec = JobSpec(name, train_spec(600), project="vision", expected=KNOWN)
        jobs.append(Job(f"job_{name}", spec, "me", home.clock.now_ms(), "paused", group.id))
    with home.installation.store.write() as tx:
        tx.add_group(group)
        for job in jobs:
            tx.add_job(job)
    home.tick()
    return jobs


@pytest.mark.parametrize("budget", [0.015, 0.3])
def test_the_budget_of_a_project_that_is_named_for_the_jobs_of_a_group_is_enough_for_all_of_them(
    install: Install, budget: float
) -> None:
    """0.3 is enough for each job alone."""
    home = install(overrides={"projects": {"vision": {"budget": budget}}})
    jobs = paused_group(home)
    if budget < 0.1:
        with pytest.raises(
            UsageError, match=r"^a could rent no machine: the \$0\.015 budget .*; b could rent no"
        ) as error:
            resume_group(home.installation, "sweep", caller=ME)
        said = error.value.hint
        assert said.endswith("then tradewind resume --group sweep")
    else:
        said = resume_group(home.installation, "sweep", caller=ME).message
        assert "; the $0.30 budget of project vision may pause them again; to let them finish: raise " in said
    (enough,) = re.findall(r"projects\.vision\.budget to (\d+\.\d\d) in tradewind\.toml", said)
    raised(home, enough)
    if budget < 0.1:
        said = resume_group(home.installation, "sweep", caller=ME).message
        assert "budget" not in said
    home.until(lambda: "paused" not in states(home, *jobs))
    home.settle(limit_s=2000.0)
    assert states(home, *jobs) == {"finished"}
    ledger, billed = home.books()
    assert 0 < ledger == billed <= usd(enough)


def test_the_budget_of_a_project_that_is_named_for_one_job_says_that_others_need_money_too(install: Install) -> None:
    home = install(overrides={"projects": {"vision": {"budget": 0.015}}})
    paused_group(home)
    others = "; 2 other jobs of the project have not ended and also need money"
    with pytest.raises(UsageError) as refused:
        commands.resume(home.installation, "a", caller=ME)
    assert str(refused.value).endswith(f"the $0.015 budget of project vision is too small{others}")
    raised(home, "0.20")
    assert f"the $0.20 budget of project vision may pause it again{others}; to let it finish: raise " in (
        commands.resume(home.installation, "a", caller=ME).message
    )
