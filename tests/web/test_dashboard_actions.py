"""Orders from the browser: only with the token, only from our own pages, and carried to the control plane as a
command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, Page

from orchestrator.client import Client
from orchestrator.config import load_config
from orchestrator.installation import Installation
from orchestrator.services.caller import Caller
from orchestrator.store import Store
from orchestrator.web.actions import sealed
from orchestrator.web.demo.fleet import Size
from orchestrator.web.demo.opening import demo_installation
from orchestrator.web.serve import serving
from orchestrator.web.site import Site
from providers.clock import VirtualClock
from providers.fake import FakeCloud, FakeProvider
from tests.unit.services.recorded_history import submit_job
from tests.web.dashboard import Served

TOKEN = "a-token-that-is-printed-once"


@pytest.fixture(scope="module")
def acting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with demo_installation(tmp_path_factory.mktemp("acting") / "fleet", Size(jobs=30, days=20, starts=1)) as made:
        made.store.resign(_leadership(made.store))  # nobody answers orders: none is waited for
        client = Client.over(made, Caller("ann"))
        with serving(Site(client, token=TOKEN, acts=True)) as url:
            yield Served(url, client, made)


def _leadership(store):
    made = store.campaign(_holder(store))
    assert made is not None
    return made


def _holder(store) -> str:
    return store.leader().holder


@pytest.fixture
def job_id(acting: Served) -> str:
    return next(each.id for each in acting.client.reports.jobs(limit=1000).jobs if each.state == "running")


def orders(acting: Served) -> list[tuple[str, str | None, str]]:
    with acting.installation.store.read() as tx:
        return [(each.kind, each.job_id, each.actor) for each in tx.open_commands()]


def test_an_order_needs_the_token_and_a_form_of_ours(acting: Served, job_id: str) -> None:
    def post(body: str, cookie: str = "") -> tuple[str, str]:
        asked = Request(f"{acting.url}/jobs/{job_id}/act", body.encode(), {"Cookie": cookie} if cookie else {})
        try:
            with urlopen(asked) as answer:
                return answer.url, answer.read().decode()
        except OSError as error:
            return "refused", str(error)

    assert post("action=pause")[0].endswith("/enter")
    assert post("action=pause", "tradewind_token=wrong")[0].endswith("/enter")
    assert post("action=pause", f"tradewind_token={TOKEN}")[0] == "refused"
    assert post("action=pause&csrf=0", f"tradewind_token={TOKEN}")[0] == "refused"
    assert orders(acting) == []


def test_a_person_enters_the_token_and_pauses_a_job(browser: Browser, acting: Served, job_id: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(f"{acting.url}/enter")
        page.fill("input[name=token]", "wrong")
        page.click("text=Enter >> nth=-1")
        assert "not the token" in page.inner_text("main")
        page.fill("input[name=token]", TOKEN)
        page.locator("form button").click()
        assert page.url == f"{acting.url}/"
        page.goto(f"{acting.url}/jobs/{job_id}")
        page.get_by_role("button", name="Pause").click()
        assert "will pause at its next step" in page.locator("[role=status]").inner_text()
        assert "Requested: pause. The control plane will carry it out." in page.inner_text("main")
        page.goto(f"{acting.url}/jobs?state=running")
        assert page.get_by_text("pause requested").count() == 1
    finally:
        context.close()
    assert orders(acting) == [("pause", job_id, "user:ann")]
    with acting.installation.store.write() as tx:
        tx.close_command(tx.open_commands()[0].id, "done")


@pytest.fixture
def deciding(tmp_path: Path) -> Iterator[Served]:
    """A dashboard of an installation that can rent machines, with one job that waits."""
    clock = VirtualClock(1_700_000_000_000)
    config = load_config({"state_dir": str(tmp_path), "providers.enabled": "fake"}, environ={}, cwd=tmp_path)
    cloud = FakeCloud(clock, seed=1)
    provider = FakeProvider(clock, cloud=cloud)
    with closing(Installation(config, clock, Store.open(config.store_url, clock), {"fake": provider})) as made:
        submit_job(made, "waiting")
        client = Client.over(made, Caller("ann"))
        with serving(Site(client, token=TOKEN, acts=True)) as url:
            yield Served(url, client, made)


@pytest.fixture
def reviewed(browser: Browser, deciding: Served) -> Iterator[Page]:
    """The page of a new plan, without scripts, after the token was entered."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{deciding.url}/enter")
    page.fill("input[name=token]", TOKEN)
    page.locator("form button").click()
    page.goto(f"{deciding.url}/plans")
    page.get_by_role("button", name="Make a plan").click()
    yield page
    context.close()


def test_what_open_jobs_will_cost_is_not_known_before_anything_was_decided(deciding: Served) -> None:
    _, _, body = deciding.get("/")
    shown = " ".join(re.sub(r"<[^>]*>", " ", body.decode()).split())
    assert "Expected for 1 open job unknown $0.00 paid so far" in shown


def test_a_person_makes_a_plan_reviews_and_applies_it(reviewed: Page, deciding: Served) -> None:
    assert reviewed.url.endswith("/review")
    assert "1 of 1 job would start or move" in reviewed.inner_text("main")
    assert orders(deciding) == []
    reviewed.get_by_role("button", name="Apply this plan").click()
    assert "1 to start or move, 0 unchanged" in reviewed.locator("[role=status]").inner_text()
    assert orders(deciding) == [("apply", None, "user:ann")]
    reviewed.goto(f"{deciding.url}/plans/plan_0/review")
    assert "make a new one" in reviewed.inner_text("main")


def test_a_plan_that_is_stale_by_now_is_refused_with_what_changed(reviewed: Page, deciding: Served) -> None:
    with deciding.installation.store.write() as tx:
        for job in tx.jobs():
            tx.set_job_state(job.id, "cancelled")
    reviewed.get_by_role("button", name="Apply this plan").click()
    assert "waiting is cancelled" in reviewed.inner_text("main")
    assert orders(deciding) == []


def test_plans_are_made_and_applied_only_with_the_token_and_a_form_of_ours(deciding: Served) -> None:
    for path in ("/plans/new", "/plans/plan_0/review"):
        with urlopen(Request(deciding.url + path, b"")) as answer:
            assert answer.url.endswith("/enter")
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(deciding.url + path, b"csrf=0", {"Cookie": f"tradewind_token={TOKEN}"}))
        assert refused.value.code == 400
        refused.value.close()
    assert orders(deciding) == []


def test_no_link_makes_a_page_say_something(acting: Served, job_id: str) -> None:
    for path in ("/plans", f"/jobs/{job_id}"):
        for said in ("pay+me", f"{'0' * 64}.pay+me", quote(sealed("pay me", "another token"))):
            status, _, body = acting.get(f"{path}?said={said}")
            assert status == 200
            assert b"pay me" not in body
        assert b"pay me" in acting.get(f"{path}?said={quote(sealed('pay me', TOKEN))}")[2]


def test_no_page_contains_the_token(acting: Served, job_id: str) -> None:
    for path in ("/", "/jobs", f"/jobs/{job_id}", "/enter", "/health.json"):
        _, _, body = acting.get(path, Cookie=f"tradewind_token={TOKEN}")
        assert TOKEN.encode() not in body


def test_a_dashboard_that_only_reads_has_no_buttons_and_takes_no_orders(fleet: Served) -> None:
    job = next(each for each in fleet.client.reports.jobs(limit=1000).jobs if each.state == "running")
    _, _, body = fleet.get(f"/jobs/{job.id}")
    assert not re.search(rb"<form[^>]*method=.post", body)
    assert fleet.get(f"/jobs/{job.id}/act")[0] in (404, 405)


def test_a_dashboard_for_other_machines_shows_nothing_without_the_token(acting: Served) -> None:
    with serving(Site(acting.client, token=TOKEN, guarded=True)) as url:
        guarded = Served(url, acting.client, acting.installation)
        for path in ("/", "/jobs.json", "/ledger.csv", "/live"):
            _, _, body = guarded.get(path, Host="tradewind.example")
            assert b"Enter the token" in body
        status, _, body = guarded.get("/jobs.json", Host="tradewind.example", Cookie=f"tradewind_token={TOKEN}")
        assert status == 200
        assert b"job-table" in body
