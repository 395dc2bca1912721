"""The Client: whose installation it opens, as whom it acts, what it takes for a job, from how many threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest
import yaml

from orchestrator import Caller, Client, NotFoundError, SpecError, TokenConflictError, UsageError, load_config
from orchestrator.config.store_url import file_of_url
from orchestrator.installation import anchored_clock, open_installation
from orchestrator.reports.incidents import incidents
from providers.clock import AcceleratedClock

THREADS = 6


def together(count: int, do: Callable[[int], Any]) -> list[Any]:
    """What `do` returns in `count` threads that begin at the same moment. Raises what one of them raised."""
    ready = Barrier(count)

    def run(number: int) -> Any:
        ready.wait(60)
        return do(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_a_state_folder_is_all_that_a_client_needs(work: dict[str, Any], tmp_path: Path) -> None:
    with Client(state_dir=tmp_path / "one") as client:
        assert client.config.state_dir == tmp_path / "one"
        job = client.jobs.submit(work)
    with Client(load_config({"state_dir": str(tmp_path / "one")})) as client:
        assert client.jobs.get("gpt").id == job.id
    with Client(state_dir=str(tmp_path / "two")) as client:
        assert client.jobs.list().jobs == ()
    with pytest.raises(UsageError, match="already names a state folder"):
        Client(load_config(), state_dir=tmp_path)


@pytest.mark.parametrize("name", ["50%25 off", "a?timeout=1", "a#b", "with spaces", "\u00e9t\u00e9"])
def test_a_state_folder_may_have_any_name(work: dict[str, Any], tmp_path: Path, name: str) -> None:
    with Client(state_dir=tmp_path / name) as client:
        client.jobs.submit(work)
        assert file_of_url(client.config.store_url) == tmp_path / name / "tradewind.db"
    assert (tmp_path / name / "tradewind.db").is_file()
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} - {"__pycache__"} == {name}


def test_arguments_of_another_type_are_refused(client: Client, work: dict[str, Any], tmp_path: Path) -> None:
    anything: Any
    for anything in (5, b"job.yaml", None, [work]):
        with pytest.raises(UsageError, match="is not a job"):
            client.plans.create(anything)
    for anything in ({"state_dir": 5}, {"state_dir": b"state"}, {"state_dir": tmp_path, "caller": "ann"}):
        with pytest.raises(UsageError, match="must be a path"):
            Client(**anything)
    for anything in ({"group_by": "gpus"}, {"max_price": "5"}, {"max_price": float("nan")}):
        with pytest.raises(UsageError, match=r"way to group|max_price of"):
            client.offers.list(**anything)


def test_a_client_that_was_closed_opens_again(client: Client, work: dict[str, Any]) -> None:
    job = client.jobs.submit(work)
    client.close()
    client.close()
    assert client.jobs.get(job.id).name == "gpt"


def test_jobs_events_and_orders_carry_their_caller(work: dict[str, Any], tmp_path: Path) -> None:
    ann = Client(state_dir=tmp_path / "state", caller=Caller("ann", project="vision"))
    bob = Client(state_dir=tmp_path / "state", caller=Caller("bob"))
    with ann, bob:
        plan = ann.plans.create(work)
        job = bob.jobs.submit(plan)  # no matter who looked at the plan: it is Bob's job
        assert (job.owner, job.project) == ("bob", "vision")
        mine = ann.jobs.submit(work | {"project": "speech"})
        assert (mine.owner, mine.project) == ("ann", "speech")
        assert bob.jobs.submit(work | {"name": "lstm"}).project == "default"
        ann.jobs.pause(job.id)
        bob.plans.apply(bob.plans.create(work | {"name": "conv"}))
        assert {each.name: each.owner for each in ann.jobs.list().jobs} == {
            "gpt": "ann",
            "lstm": "bob",
            "conv": "bob",
        } | {job.name: "ann"}
        events = ann.events.list(job.id).events
        assert [(each.kind, each.actor, each.owner, each.project) for each in events] == [
            ("job.submitted", "user:bob", "bob", "vision")
        ]
    installation = open_installation(load_config({"state_dir": str(tmp_path / "state")}))
    with installation.store.read() as tx:
        orders = [(each.kind, each.actor) for each in tx.open_commands()]
    installation.close()
    assert orders == [("pause", "user:ann"), ("apply", "user:bob")]


def test_a_caller_is_the_user_of_this_process_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "carol")
    assert Client().caller == Caller("carol", "default")
    assert Caller("carol").actor == "user:carol"
    for odd, name in ((" c\tarol\n", "carol"), ("\x1b", "unknown"), ("x" * 300, "x" * 200)):  # nobody is locked out
        monkeypatch.setenv("LOGNAME", odd)
        assert Caller.from_environment().owner == name


@pytest.mark.parametrize("name", ["", " ann", "ann\n", "a\tb", "x" * 201, 7])
def test_an_owner_that_cannot_be_recorded_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="is not a valid owner"):
        Caller(name)
    with pytest.raises(UsageError, match="is not a valid project"):
        Caller("ann", project=name)


def test_a_job_is_a_path_a_mapping_or_a_spec_wherever_one_is_taken(
    client: Client, work: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(work))
    spec = client.job_files.load(work)
    assert spec.train.workdir == str(tmp_path)
    forms = (work, "job.yaml", Path("job.yaml"), spec)
    assert all(client.job_files.load(form) == spec for form in forms)
    for form in forms:
        assert client.plans.create(form).decisions[0].name == "gpt"
        assert client.offers.list(work=form).job == "gpt"
        assert client.job_files.check_entry(form) is None
        assert client.jobs.submitted(form, "nightly") is None
    first = [client.jobs.submit(form, token="nightly").id for form in forms]
    assert len(set(first)) == 1
    with pytest.raises(TokenConflictError):
        client.jobs.submit(work | {"retries": 7}, token="nightly")


def test_a_mapping_that_is_wrong_names_each_field(client: Client, work: dict[str, Any]) -> None:
    wrong = work | {"budget": "much", "train": {"entry": "train:main", "steps": "many"}}
    calls: list[Callable[[], object]] = [
        lambda: client.plans.create(wrong),
        lambda: client.jobs.submit(wrong),
        lambda: client.offers.list(work=wrong),
        lambda: client.speed.profile(wrong),
    ]
    for call in calls:
        with pytest.raises(SpecError) as raised:
            call()
        assert {each.field for each in raised.value.problems} == {"budget", "train.steps"}


def test_threads_share_one_client(client: Client, work: dict[str, Any]) -> None:
    def use(number: int) -> str:
        job = client.jobs.submit(work | {"name": f"job-{number}"}, token=f"job-{number}")
        assert client.jobs.get(job.id).name == f"job-{number}"
        client.jobs.set_budget(job.id, 100 + number)
        client.jobs.pause(job.id)
        assert client.plans.create(work).decisions[0].offer_id is not None
        assert client.reports.get(job.id).paid_nano_usd == 0
        assert client.prices.history(provider="local", limit=1).series
        return job.id

    made = together(THREADS, use)
    assert sorted(each.id for each in client.jobs.list().jobs) == sorted(made)
    assert len([each for each in client.events.list(limit=1000).events if each.kind == "job.submitted"]) == THREADS


def test_the_same_submission_from_many_threads_is_one_job(client: Client, work: dict[str, Any]) -> None:
    assert len(set(together(THREADS, lambda _: client.jobs.submit(work, token="once").id))) == 1


def clock_of(path: Path, _thread: int) -> AcceleratedClock:
    return anchored_clock(path, 60.0)


def test_a_new_state_folder_that_threads_open_at_once_has_one_clock(work: dict[str, Any], tmp_path: Path) -> None:
    for path in (tmp_path / f"clock-{number}.json" for number in range(20)):
        clocks = together(THREADS, partial(clock_of, path))
        assert len({(clock.epoch_ms, clock.anchor_s) for clock in clocks}) == 1
    assert not list(tmp_path.glob("*.tmp"))

    def opened(_number: int) -> str:
        with Client(state_dir=tmp_path / "fresh") as client:
            return client.jobs.submit(work).id

    made = together(THREADS, opened)
    with Client(state_dir=tmp_path / "fresh") as client:
        assert {each.id for each in client.jobs.list().jobs} == set(made)


def test_a_client_may_be_closed_while_others_use_it(client: Client, work: dict[str, Any]) -> None:
    client.jobs.submit(work)
    over = Event()

    def use(number: int) -> int:
        if number == 0:
            for _ in range(20):
                client.close()
            over.set()
            return 1
        seen = len(client.jobs.list().jobs)
        while not over.is_set():
            seen = len(client.jobs.list().jobs)
        return seen

    assert together(4, use) == [1, 1, 1, 1]


def test_advice_about_one_of_two_jobs_of_a_name_gives_its_id(
    client: Client, work: dict[str, Any], tmp_path: Path
) -> None:
    alone = client.jobs.submit(work)
    with pytest.raises(NotFoundError, match="gpt has no machine now") as caught:
        client.nodes.shell(alone.id)
    assert caught.value.hint == "tradewind status gpt"
    later = client.jobs.submit(work, token="later")
    for job in (alone, later):
        with pytest.raises(NotFoundError, match="gpt has no machine now") as caught:
            client.nodes.shell(job.id)
        assert caught.value.hint == f"tradewind status {job.id}"
        with pytest.raises(NotFoundError, match="no checkpoint that can be exported") as caught:
            client.checkpoints.export(job.id, tmp_path / "x.pt")
        assert caught.value.hint == f"tradewind checkpoints verify {job.id}"
        faulty = replace(client.jobs.get(job.id), quarantine="it broke", warnings=("stuck at step 3",))
        with closing(open_installation(client.config)) as installation, installation.store.read() as tx:
            remedies = {each.remedy for each in incidents(installation, tx, [faulty]) if each.job_id == job.id}
        assert remedies == {f"tradewind resume {job.id}", f"tradewind logs {job.id}"}
