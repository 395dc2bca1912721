"""Plans: previewed, submitted, saved, applied, refused when stale."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli.render.screens.plans import plan as rendered
from orchestrator.cli.render.text import Screen
from orchestrator.config import load_config
from orchestrator.errors import (
    InfeasibleError,
    LimitError,
    NotFoundError,
    SpecError,
    StalePlanError,
    TokenConflictError,
    UsageError,
)
from orchestrator.installation import Installation
from orchestrator.model import GpuRequest, OutputSpec, Probe, Resources, TrainSpec
from orchestrator.policy import FOR_MONEY, OVER_LIMITS
from orchestrator.services.jobs import apply, feasible, plan, submit
from providers.clock import VirtualClock
from providers.fake import FakeCloud, FakeProvider
from providers.money import NANO_USD, usd
from tests.unit.services.recorded_history import ME, ON_DEMAND, OTHER_SPOT, SPOT, Past, program, spec, submit_job

RESTART = "(tradewind down --keep-jobs, then tradewind up)"


def test_a_preview_ranks_offers_and_writes_no_job(installation: Installation) -> None:
    view = plan.preview(installation, [spec()])
    (decided,) = view.decisions
    assert decided.action == "place"
    assert decided.choices[0].role == "choose"
    assert decided.choices[0].offer_id == decided.offer_id
    assert [choice.role for choice in decided.choices][-1] == "baseline"
    assert all(choice.reason for choice in decided.choices if choice.role == "no")
    assert view.simulated
    with installation.store.read() as tx:
        assert tx.jobs() == []
        assert tx.latest_plan() is None


@pytest.mark.parametrize("why", [False, True])
@pytest.mark.parametrize(
    ("action", "compared"), [("place", "on-demand"), ("move", "staying"), ("wait", "starting now")]
)
def test_a_saving_says_what_it_is_compared_with(
    installation: Installation, action: str, compared: str, why: bool
) -> None:
    view = plan.preview(installation, [spec()])
    (decided,) = view.decisions
    probe = Probe(decided.offer_id, 5.0, 1, 2 * NANO_USD, "may be faster")
    decided = replace(decided, action=action, cost_nano_usd=NANO_USD, saving_nano_usd=2 * NANO_USD)
    for shown, than in ((decided, compared), (replace(decided, probe=probe), "without the probe")):
        text = rendered(replace(view, decisions=(shown,)), Screen(why=why))
        assert re.search(rf"\$2\.00\s+less\s+than\s+{than.replace(' ', chr(92) + 's+')}\b", text)


def test_a_preview_asks_for_prices_when_the_last_answer_is_old(installation: Installation, clock: VirtualClock) -> None:
    assert plan.preview(installation, [spec()]).price_age_s == 0
    clock.advance(plan.STALE_AFTER_S)
    assert plan.preview(installation, [spec()]).price_age_s == plan.STALE_AFTER_S
    clock.advance(1)
    assert plan.preview(installation, [spec()]).price_age_s == 0


def test_a_preview_asks_again_where_there_was_nothing_to_rent(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Perhaps the list of instance types was wrong, and has been corrected."""
    with monkeypatch.context() as wrong:
        wrong.setattr(FakeProvider, "offers", lambda self: [])
        wrong.setattr(FakeProvider, "prices", lambda self: [])
        empty = plan.preview(installation, [spec()])
        assert empty.decisions[0].offer_id is None
        assert empty.no_offers == ("fake",)
    again = plan.preview(installation, [spec()])
    assert again.decisions[0].offer_id is not None
    assert again.no_offers == ()


def test_a_plan_that_is_unlikely_to_keep_its_promises_says_so_and_yes_is_not_enough(installation: Installation) -> None:
    sure = plan.preview(installation, [spec()])
    safe = sure.decisions[0]
    assert safe.chance is None
    feasible.require_accepted_risk(sure)
    assert safe.cost_nano_usd is not None
    risky = plan.preview(installation, [spec(budget_nano_usd=safe.cost_nano_usd)])
    (decided,) = risky.decisions
    assert decided.chance is not None
    assert decided.chance < feasible.LIKELY_ENOUGH
    assert f"{decided.chance:.0%}" in decided.reason
    reported = f"^budget may not be met: .* {decided.chance:.0%} likely; --yes requires 80%"
    with pytest.raises(LimitError, match=reported) as caught:
        feasible.require_accepted_risk(risky)
    assert "--accept-risk" in caught.value.hint


def test_submitting_writes_the_job_its_event_and_its_plan_at_once(
    installation: Installation, clock: VirtualClock
) -> None:
    view = plan.preview(installation, [spec(deadline_s=864_000.0)])
    clock.advance(100)
    job = submit.submit(installation, view, caller=ME)
    assert job.state == "queued"
    assert job.submitted_at_ms == clock.now_ms()
    assert job.deadline_at_ms == clock.now_ms() + 864_000_000  # counts from the submission, not from the preview
    with installation.store.read() as tx:
        (event,) = tx.events(job_id=job.id)
        assert (event.kind, event.plan_id) == ("job.submitted", view.id)
        assert event.actor.startswith("user:")
        latest = tx.latest_plan(job.id)
        assert latest is not None
        assert latest.id == view.id


def test_a_job_that_no_offer_can_ever_take_is_refused_with_the_reasons(installation: Installation) -> None:
    view = plan.preview(installation, [spec(resources=Resources(gpus=(GpuRequest("T4"),)))])
    with pytest.raises(InfeasibleError, match=r"gpt: no offer fits(.|\n)*is not in resources.gpu"):
        submit.submit(installation, view, caller=ME)
    with installation.store.read() as tx:
        assert tx.jobs() == []


def test_a_job_whose_budget_buys_it_nowhere_is_refused_with_one_that_does_even_if_some_offers_are_shut(
    installation: Installation,
) -> None:
    plan.freshen(installation)
    with installation.store.write() as tx:
        tx.add_availability(next(offer for offer in tx.offers()).id, installation.clock.now_ms(), "refused")
    poor = spec(budget_nano_usd=usd("0.01"))
    with pytest.raises(InfeasibleError, match=r"gpt: no offer fits") as caught:
        submit.submit(installation, plan.preview(installation, [poor]), caller=ME)
    (enough,) = re.findall(r"a budget of \$(\d+\.\d\d) would be enough", str(caught.value))
    rich = replace(poor, budget_nano_usd=usd(enough))
    assert caught.value.hint.startswith("raise the budget in the job file")
    assert submit.submit(installation, plan.preview(installation, [rich]), caller=ME).state == "queued"


def test_a_job_that_only_lacks_capacity_now_is_queued(installation: Installation) -> None:
    plan.freshen(installation)
    with installation.store.write() as tx:
        for offer in tx.offers():
            tx.add_availability(offer.id, installation.clock.now_ms(), "refused")
    view = plan.preview(installation, [spec()])
    assert view.decisions[0].action == "wait"
    assert submit.submit(installation, view, caller=ME).state == "queued"


def test_submitting_needs_the_secrets_and_planning_lists_those_that_are_missing(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = TrainSpec("train:main", None, {}, "/", {}, ("TW_TEST_SECRET",), 10, None)
    monkeypatch.delenv("TW_TEST_SECRET", raising=False)
    without = plan.preview(installation, [spec(train=train)])
    assert without.missing_secrets == ("TW_TEST_SECRET",)
    with pytest.raises(UsageError, match="TW_TEST_SECRET"):
        submit.submit(installation, without, caller=ME)
    with pytest.raises(UsageError, match="TW_TEST_SECRET"):
        apply.check(installation, without)
    monkeypatch.setenv("TW_TEST_SECRET", "hush")
    view = plan.preview(installation, [spec(train=train)])
    assert view.missing_secrets == ()
    assert "hush" not in repr(view)


def test_unbuilt_fields_and_a_plan_for_nothing_are_refused(installation: Installation) -> None:
    with pytest.raises(SpecError, match="not supported yet"):
        plan.preview(installation, [spec(outputs=(OutputSpec("model", "best"),))])
    with pytest.raises(UsageError, match="no jobs to plan"):
        plan.preview(installation, [])


def test_a_plan_shows_the_price_of_a_spare_in_another_zone(installation: Installation) -> None:
    (decided,) = plan.preview(installation, [spec(standby="warm")]).decisions
    assert decided.standby is not None
    assert decided.offer_id is not None
    assert decided.standby.offer_id.split("/")[:3] != decided.offer_id.split("/")[:3]
    chosen = next(choice for choice in decided.choices if choice.role == "choose")
    assert chosen.duration_s is not None
    expected = decided.standby.nano_usd_per_hour * chosen.duration_s / 3600
    assert decided.standby.cost_nano_usd == pytest.approx(expected, rel=1e-6)
    assert plan.preview(installation, [spec()]).decisions[0].standby is None


def test_a_saved_plan_is_applied_exactly_with_the_same_job_id(installation: Installation, tmp_path: Path) -> None:
    reviewed = plan.preview(installation, [spec(train=program(tmp_path))])
    apply.save(reviewed, tmp_path / "plan.json")
    loaded = apply.load(installation, tmp_path / "plan.json")
    assert loaded == reviewed
    accepted = apply.apply(installation, loaded, caller=ME)
    assert accepted.job_ids == (reviewed.new_jobs[0].id,)
    assert accepted.control_plane is False
    with installation.store.read() as tx:
        (command,) = tx.open_commands()
        assert (command.kind, command.args) == ("apply", {"plan_id": reviewed.id})
        assert tx.plan(reviewed.id) == reviewed.plan
        assert tx.job(reviewed.new_jobs[0].id).state == "queued"


def test_a_stale_plan_is_refused_and_says_which_prices_moved(
    installation: Installation, cloud: FakeCloud, clock: VirtualClock
) -> None:
    cloud.set_price(SPOT, usd("0.50"))
    plan.freshen(installation)
    reviewed = plan.preview(installation, [spec()])
    assert reviewed.decisions[0].offer_id == SPOT
    clock.advance(plan.STALE_AFTER_S + 1)
    cloud.set_price(SPOT, usd("2.50"))
    with pytest.raises(StalePlanError) as refused:
        apply.apply(installation, reviewed, caller=ME)
    assert f"planned: start on {SPOT}, now: start on " in str(refused.value)
    assert f"{SPOT} rose from $0.5000/h to $2.5000/h" in str(refused.value)
    with installation.store.read() as tx:
        assert tx.jobs() == []
        assert tx.open_commands() == []


@pytest.mark.parametrize(("price", "refused"), [("0.505", False), ("0.52", True), ("0.30", False)])
def test_the_chosen_offer_may_become_cheaper_but_not_more_expensive(
    installation: Installation, cloud: FakeCloud, clock: VirtualClock, price: str, refused: bool
) -> None:
    cloud.set_price(SPOT, usd("0.50"))
    reviewed = plan.preview(installation, [spec()])
    clock.advance(plan.STALE_AFTER_S + 1)
    cloud.set_price(SPOT, usd(price))
    if refused:
        with pytest.raises(StalePlanError, match="rose from"):
            apply.check(installation, reviewed)
    else:
        apply.check(installation, reviewed)


def test_a_plan_is_applied_once(installation: Installation) -> None:
    reviewed = plan.preview(installation, [spec()])
    apply.apply(installation, reviewed, caller=ME)
    with pytest.raises(StalePlanError, match="was already submitted"):
        apply.apply(installation, reviewed, caller=ME)


def test_a_plan_for_a_job_that_has_ended_is_stale(installation: Installation) -> None:
    job = submit_job(installation, "gpt")
    reviewed = plan.preview(installation, [], all_jobs=True)
    assert [decision.job_id for decision in reviewed.decisions] == [job.id]
    with installation.store.write() as tx:
        tx.set_job_state(job.id, "cancelled")
    with pytest.raises(StalePlanError, match="gpt is cancelled"):
        apply.apply(installation, reviewed, caller=ME)


def test_a_plan_for_all_says_whether_it_would_change_anything(installation: Installation, past: Past) -> None:
    view = plan.preview(installation, [], all_jobs=True)
    actions = {decision.name: decision.action for decision in view.decisions}
    assert actions["lstm"] == "place"
    assert actions["conv"] in ("stay", "move")
    assert view.changes
    assert "gpt" not in actions


@pytest.mark.parametrize(
    "text", ["", "[]", "\xff", '{"schema": "tradewind/plan/v9"}', '{"schema": "tradewind/plan/v1"}']
)
def test_a_file_that_is_not_a_plan_is_a_spec_error(installation: Installation, tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(SpecError, match=r"plan\.json"):
        apply.load(installation, path)


@pytest.mark.parametrize(
    ("place", "path"),
    [(("plan", "at_ms"), "plan.at_ms"), (("plan", "placements", 0, "offer_id"), "plan.placements[0].offer_id")],
)
def test_a_manually_changed_plan_file_is_refused_with_the_place_and_the_remedy(
    installation: Installation, tmp_path: Path, place: tuple[str | int, ...], path: str
) -> None:
    apply.save(plan.preview(installation, [spec()]), tmp_path / "plan.json")
    document = inner = json.loads((tmp_path / "plan.json").read_text())
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = ["7"]
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(SpecError) as caught:
        apply.load(installation, tmp_path / "plan.json")
    (problem,) = caught.value.problems
    assert problem.field == path
    assert "tradewind plan" in problem.hint


def test_a_missing_or_unwritable_plan_file_is_reported(installation: Installation, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        apply.load(installation, tmp_path / "none.json")
    with pytest.raises(UsageError, match="cannot be written"):
        apply.save(plan.preview(installation, [spec()]), tmp_path / "no" / "plan.json")


def test_a_plan_document_is_json_with_numbers_alone(installation: Installation, tmp_path: Path) -> None:
    reviewed = plan.preview(installation, [spec()])
    apply.save(reviewed, tmp_path / "plan.json")
    assert apply.PLAN_FILE.loads((tmp_path / "plan.json").read_text()) == reviewed
    document = json.loads((tmp_path / "plan.json").read_text())
    assert document["schema"] == "tradewind/plan/v1"
    choice = document["decisions"][0]["choices"][0]
    assert "usd_per_hour" not in choice
    assert isinstance(choice["nano_usd_per_hour"], int)
    assert {OTHER_SPOT, ON_DEMAND} <= {each["offer_id"] for each in document["decisions"][0]["choices"]}


def test_the_same_submission_with_the_same_token_is_the_same_job(installation: Installation) -> None:
    first = submit.submit(installation, plan.preview(installation, [spec("gpt")]), token="nightly-17", caller=ME)
    again = submit.submit(installation, plan.preview(installation, [spec("gpt")]), token="nightly-17", caller=ME)
    assert again.id == first.id
    before = submit.submitted_before(installation, spec("gpt"), "nightly-17")
    assert before is not None
    assert before.id == first.id
    assert submit.submitted_before(installation, spec("gpt"), "nightly-18") is None
    elsewhere = submit.submit(
        installation, plan.preview(installation, [spec("gpt", project="vision")]), token="nightly-17", caller=ME
    )
    assert elsewhere.id != first.id
    with installation.store.read() as tx:
        assert len(tx.jobs()) == 2


def test_a_token_of_another_submission_is_a_named_conflict_and_nothing_is_submitted(installation: Installation) -> None:
    first = submit.submit(installation, plan.preview(installation, [spec("gpt")]), token="nightly-17", caller=ME)
    other = plan.preview(installation, [spec("gpt", steps=7)])
    for attempt in (
        lambda: submit.submit(installation, other, token="nightly-17", caller=ME),
        lambda: submit.submitted_before(installation, spec("gpt", steps=7), "nightly-17"),
    ):
        with pytest.raises(TokenConflictError, match=f"nightly-17 .*{first.id}") as caught:
            attempt()
        assert "another token" in caught.value.hint
    with installation.store.read() as tx:
        assert [job.id for job in tx.jobs()] == [first.id]


@pytest.mark.parametrize("token", ["", "two words", "x" * 201, "\x1b[2J", "t\u00f6ken"])
def test_a_token_that_is_none_is_refused(installation: Installation, token: str) -> None:
    with pytest.raises(UsageError, match="token"):
        submit.submit(installation, plan.preview(installation, [spec("gpt")]), token=token, caller=ME)
    with installation.store.read() as tx:
        assert tx.jobs() == []


def test_a_project_whose_budget_does_not_pay_for_the_new_jobs_is_named_with_what_is_left(
    installation: Installation, past: Past
) -> None:
    with installation.store.read() as tx:
        spent = tx.project_nano_usd("vision")
    (decided,) = plan.preview(installation, [spec(project="vision")]).decisions
    assert decided.cost_nano_usd is not None
    assert spent > 0

    def shown(budget_usd: float, project: str = "vision") -> str:
        table = {"projects": {"vision": {"budget": budget_usd}}, "state_dir": str(installation.state_dir)}
        config = load_config({**table, "providers.enabled": "fake"}, environ={}, cwd=installation.state_dir)
        view = plan.preview(replace(installation, config=config), [spec(project=project)])
        for each in view.short_projects:
            assert each.cost_nano_usd == pytest.approx(decided.cost_nano_usd, rel=1e-3)
        return " ".join(rendered(view, Screen()).split())

    enough = (spent + decided.cost_nano_usd) / 1e9
    assert "project vision" not in shown(enough * 2)
    wanted = r"project vision has \$0\.00 left, less than the \$[\d.]+ of this plan, so its jobs will wait or be paused"
    assert re.search(wanted, shown(spent / 2e9))
    assert "raise projects.vision.budget" in shown(enough * 0.9)
    assert "project" not in shown(0.01, project="another")


def limited(installation: Installation, **settings: object) -> Installation:
    table = {"state_dir": str(installation.state_dir), "providers.enabled": "fake", **settings}
    config = load_config(table, environ={}, cwd=installation.state_dir)
    return replace(installation, config=config)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"limits.max_instances": 0}, "the job needs a machine, but limits.max_instances is 0"),
        (
            {"projects": {"vision": {"max_instances": 0}}},
            "the job needs a machine, but projects.vision.max_instances is 0",
        ),
        ({"limits.max_usd_per_hour": 0.05}, "/h is more than limits.max_usd_per_hour ($0.05)"),
    ],
)
def test_a_job_that_the_limits_never_allow_is_refused_with_the_setting(
    installation: Installation, settings: dict[str, object], named: str
) -> None:
    there = limited(installation, **settings)
    view = plan.preview(there, [spec(project="vision")])
    (decided,) = view.decisions
    assert (decided.action, decided.offer_id) == ("wait", None)
    assert named in decided.reason
    with pytest.raises(InfeasibleError) as caught:
        submit.submit(there, view, caller=ME)
    assert named in str(caught.value)
    assert caught.value.hint == f"raise that limit in tradewind.toml {RESTART}, or relax these in the job file"
    with installation.store.read() as tx:
        assert tx.jobs() == []


def test_a_refusal_that_names_no_limit_does_not_ask_to_raise_that_limit(installation: Installation) -> None:
    there = limited(installation, **{"limits.max_usd_per_hour": 2})
    view = plan.preview(there, [spec(project="vision", budget_nano_usd=usd("0.01"))])
    assert {each.topic for each in view.decisions[0].rejected} >= {OVER_LIMITS, FOR_MONEY}
    with pytest.raises(InfeasibleError) as caught:
        feasible.require_feasible(view)
    assert "limits." not in str(caught.value)
    assert caught.value.hint == (
        f"raise the limits on machines in tradewind.toml {RESTART}, or raise the budget in the job file"
    )


def test_a_plan_says_which_limit_has_no_room_for_all_its_jobs_at_once(installation: Installation) -> None:
    three = [spec(f"job-{number}", project="vision") for number in range(3)]

    def full(**settings: object) -> dict[str, tuple[int, int, int]]:
        view = plan.preview(limited(installation, **settings), three)
        assert all(each.action == "place" for each in view.decisions)
        text = " ".join(rendered(view, Screen()).split())
        assert all(f"{each.setting} is " in text for each in view.full_limits)
        return {each.setting: (each.most, each.used, each.wanted) for each in view.full_limits}

    assert full() == {}
    assert full(**{"limits.max_instances": 3}) == {}
    assert full(**{"limits.max_instances": 2}) == {"limits.max_instances": (2, 0, 3)}
    assert full(projects={"vision": {"max_instances": 1}}) == {"projects.vision.max_instances": (1, 0, 3)}
    assert full(projects={"speech": {"max_instances": 1}}) == {}
    (alone,) = plan.preview(limited(installation, **{"limits.max_instances": 1}), [spec(standby="warm")]).full_limits
    assert (alone.most, alone.wanted) == (1, 2)
    ((most, used, wanted),) = full(**{"limits.max_usd_per_hour": 3.0}).values()
    assert (most, used) == (usd(3), 0)
    assert wanted > most
