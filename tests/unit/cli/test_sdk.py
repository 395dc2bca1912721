"""The SDK's door: its names, its laziness, what it does not do yet."""

from __future__ import annotations

from pathlib import Path

import pytest

import orchestrator


def test_exported_names_are_all_there() -> None:
    assert len(set(orchestrator.__all__)) == len(orchestrator.__all__)
    for name in orchestrator.__all__:
        assert getattr(orchestrator, name) is not None
        assert name in dir(orchestrator)
    assert {"Client", "JobSpec", "TradewindError", "load_job", "to_json"} <= set(orchestrator.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = orchestrator.nothing


def test_every_public_error_is_exported() -> None:
    from orchestrator import errors

    kinds = {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and kind.__module__ == errors.__name__
    }
    assert kinds <= set(orchestrator.__all__)


def test_a_client_of_an_address_is_not_yet() -> None:
    with pytest.raises(orchestrator.UsageError, match="not yet: a client of http://host:1"):
        orchestrator.Client("http://host:1")


def test_a_client_converts_a_task_file_and_plans_the_result(environment: dict[str, str]) -> None:
    Path("task.yaml").write_text("workdir: .\nresources: {accelerators: V100}\nrun: python train.py --lr 0.1\n")
    with orchestrator.Client() as client:
        conversion = client.job_files.convert("task.yaml", "converted.yaml")
        assert conversion.job["train"]["script"] == "train.py"
        assert {note.outcome for note in conversion.notes} == {"changed", "to do"}
        assert not conversion.problems
        plan = client.plans.create("converted.yaml")
        assert plan.decisions[0].name == "task"
        with pytest.raises(orchestrator.UsageError, match="exists already"):
            client.job_files.convert("task.yaml", "converted.yaml")


def test_a_client_plans_submits_and_tells(environment: dict[str, str]) -> None:
    with orchestrator.Client() as client:
        plan = client.plans.create("job.yaml")
        job = client.jobs.submit(plan)
        assert client.jobs.get(job.id).state == "queued"
        assert client.jobs.explain(job.id).plan_id == plan.id
        assert client.jobs.pause(job.name).control_plane is False
        assert [each.kind for each in client.events.list(job.id).events] == ["job.submitted"]
        assert orchestrator.to_json(client.jobs.get(job.id))["schema"] == "tradewind/job/v1"
        with pytest.raises(orchestrator.UsageError, match="cannot be written"):
            client.reports.write_html(client.reports.get(job.id), "no/where.html")
        with pytest.raises(orchestrator.UsageError, match="one job at a time"):
            client.jobs.submit(client.plans.create("job.yaml", "job.yaml"))
