"""The generated fleet fills every page, with what the product itself computes and keeps."""

from __future__ import annotations

from orchestrator.policy import online
from orchestrator.web.demo.fleet import WITH_FILES_DAYS
from orchestrator.web.demo.lives import DAY_MS
from orchestrator.web.demo.opening import NOW_MS
from tests.web.dashboard import Served


def test_its_back_tests_were_played_by_the_back_tester_and_say_that_they_are_generated(fleet: Served) -> None:
    kept = fleet.client.reports.backtests()
    assert kept.unreadable == ()
    assert len(kept.backtests) == 2
    for each in (of.result for of in kept.backtests):
        assert each.name.startswith("generated market")
        assert each.failures == ()
        assert 0 < each.optimum_nano_usd < each.on_demand_nano_usd
        assert all(row.runs == each.runs and row.cost_nano_usd >= each.optimum_nano_usd for row in each.policies)
        assert len({row.cost_nano_usd for row in each.policies}) > 3
    page = fleet.get("/policies")[2].decode()
    assert page.count('<tr class="ours">') == 2
    assert f"<b>{online.NAME}</b>" in page


def test_its_jobs_have_logs_that_go_on_from_run_to_run(fleet: Served) -> None:
    ended = [each for each in fleet.client.reports.jobs(limit=1000).jobs if each.state == "finished"]
    with fleet.installation.store.read() as tx:
        since_ms = NOW_MS - WITH_FILES_DAYS * DAY_MS
        recent = [each for each in ended if (tx.job_facts(each.id).finished_at_ms or 0) > since_ms]
    moved = max(recent, key=lambda each: each.migrations)
    lines = list(fleet.client.jobs.logs(moved.id))
    numbers = [each.number for each in lines]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(1, len(fleet.client.reports.get(moved.id).jobs[0].runs) + 1))
    assert "generated log" in lines[0].text
    assert "finished" in lines[-1].text
    page = fleet.get(f"/jobs/{moved.id}")[2].decode()
    assert "generated log" in page or lines[-1].text in page
