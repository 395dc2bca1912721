"""What users hand over, on real processes: programs, scripts, secrets, outputs; and programs that fail."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from tests.disks import mounted
from tests.e2e.living import SECRET, STEPS, Reference, Tradewind, until
from tests.wheels import wheel
from trainers.checkpoint.store import manifests

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One with room for a little."""
    with mounted(tmp_path_factory.mktemp("full"), "size=24k") as folder:
        yield folder


@pytest.fixture(scope="module")
def submitted(tradewind: Tradewind) -> Callable[[str], str]:
    """The jobs of this module, each submitted a little before it is asked for, so that no test waits for a machine."""

    def train(**fields: object) -> dict[str, object]:
        return {"train": {"steps": 1, **fields}, "retries": 0}

    files: dict[str, dict[str, object]] = {
        "paused": {},
        "raising": train(entry="tiny:raises") | {"retries": 1},
        "plain": train(script="plain_script.py", args={"lr": 0.5}, secrets=["E2E_SECRET", "E2E_UNSET"]),
        "attached": train(script="attached_script.py", steps=5),
        "cancelled": {},
    }
    ids: dict[str, str] = {}
    names = list(files)

    def submitted(name: str) -> str:
        for due in names[: names.index(name) + 3]:
            if due not in ids:
                ids[due] = tradewind.submit(due, **files[due])
        return ids[name]

    return submitted


def test_a_paused_job_gives_its_machine_back_and_resumes_from_the_newest_checkpoint_that_is_whole(
    tradewind: Tradewind, submitted: Callable[[str], str], reference: Reference
) -> None:
    job = submitted("paused")
    first = tradewind.training(job)
    earlier = tradewind.reported(first)
    (node,) = json.loads(tradewind.command("nodes", job, "--output", "json").stdout)["nodes"]
    later = tradewind.reported(first)
    assert (node["run_id"], node["instance_id"], node["offer_id"]) == (first.id, first.instance_id, first.offer_id)
    assert (node["state"], node["listed"], node["heard"]["said"]) == ("training", True, "training")
    assert node["heard"]["boot"] == earlier.boot == later.boot
    assert earlier.beat <= node["heard"]["beat"] <= later.beat
    tradewind.command("pause", job)
    until("the job is paused", lambda: tradewind.job(job).state == "paused" and not tradewind.unsettled(job))
    assert not tradewind.processes(first)
    assert tradewind.client.nodes.list(job).nodes == ()
    folder = tradewind.state / "checkpoints" / job
    *_, before, newest = manifests(tradewind.state / "checkpoints", job)
    (folder / "manifests" / f"{newest}.json").write_text("{}")

    tradewind.client.jobs.resume(job)
    second = tradewind.training(job, after=first)
    assert second.start_step == before.step
    reported = tradewind.events(job, "migration.checkpoint")[-1]
    assert "skipped" in reported
    assert str(newest) in reported, "no event names the damaged checkpoint"
    tradewind.finish(job)
    assert tradewind.losses(job) == reference.losses()
    assert tradewind.weights_hash(job) == reference.weights_hash()


def test_the_outputs_of_a_job_are_fetched(tradewind: Tradewind, submitted: Callable[[str], str]) -> None:
    tradewind.command("fetch", submitted("paused"), "--to", "here")
    assert (tradewind.work / "here" / "notes.txt").read_text() == "trained\n"
    assert (tradewind.work / "here" / "model" / "weights.pt").stat().st_size > 0


def test_a_function_that_raises_is_tried_again_then_failed_with_its_traceback_in_the_logs(
    tradewind: Tradewind, submitted: Callable[[str], str]
) -> None:
    job = submitted("raising")
    waited = tradewind.command("wait", job, code=8)
    assert "raising failed" in waited.stderr
    assert [run.end for run in tradewind.runs(job)] == ["failed", "failed"]
    assert len({run.instance_id for run in tradewind.runs(job)}) == 1, "its second attempt was not on its machine"
    logs = tradewind.command("logs", job).stdout
    assert logs.count("ZeroDivisionError: the loss is not a number") == 2
    assert "in raises" in logs


def test_an_unknown_function_is_refused_at_once_with_the_one_that_was_meant(tradewind: Tradewind) -> None:
    with pytest.raises(SpecError, match=r'tiny.py defines no "mian" \(did you mean "main"\?\)'):
        tradewind.submit("unknown", train={"entry": "tiny:mian", "steps": 1})


def test_a_script_that_knows_nothing_of_tradewind_runs_with_its_arguments(
    tradewind: Tradewind, submitted: Callable[[str], str]
) -> None:
    job = tradewind.ended(submitted("plain"), "finished")
    assert "arguments: --lr 0.5" in tradewind.log(job.id)
    tradewind.client.jobs.fetch(job.id, tradewind.work / "plain")
    assert (tradewind.work / "plain" / "result.txt").read_text() == "done by a script\n"


def test_a_script_that_attaches_is_trained_for_the_steps_of_the_job_file(
    tradewind: Tradewind, submitted: Callable[[str], str]
) -> None:
    job = tradewind.ended(submitted("attached"), "finished")
    assert list(tradewind.losses(job.id)) == [1, 2, 3, 4, 5]


def test_a_secret_reaches_the_trainer_and_no_file(tradewind: Tradewind, submitted: Callable[[str], str]) -> None:
    job = tradewind.ended(submitted("plain"), "finished")
    digest = tradewind.installation.output_dir(job.id) / "E2E_SECRET"
    assert digest.read_text() == hashlib.sha256(SECRET.encode()).hexdigest()
    log = tradewind.command("logs", job.id).stdout
    assert "in the log: [secret E2E_SECRET] " in log
    assert log.count("[secret E2E_SECRET]") == 3
    # by another process: closing a file of an open SQLite store gives up this process's locks on it
    folders = [str(tradewind.state), str(tradewind.config.site.temp_dir)]
    forms = [f"--regexp={form}" for form in (SECRET, SECRET.encode().hex(), "Y29ycmVjdC1ob3JzZ")]
    found = subprocess.run(
        ["grep", "--recursive", "--files-with-matches", "--devices=skip", "--fixed-strings", *forms, *folders],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (found.returncode, found.stdout) == (1, "")


def test_a_secret_comes_from_the_submitter_and_not_from_the_user_who_started_the_control_plane(
    tradewind: Tradewind, submitted: Callable[[str], str]
) -> None:
    job = tradewind.ended(submitted("plain"), "finished")
    digest = tradewind.installation.output_dir(job.id) / "E2E_UNSET"
    assert digest.read_text() == hashlib.sha256(b"known to whoever submits, and to no control plane").hexdigest()


def test_what_a_job_needs_is_set_up_once_and_a_set_up_that_fails_is_the_jobs_failure(
    tradewind: Tradewind, tmp_path: Path
) -> None:
    wheel(tmp_path, "tinydep")
    (tmp_path / "uses.py").write_text("import sys, tinydep, torch\nprint('with', tinydep.VERSION, 'in', sys.prefix)\n")
    program = {"workdir": str(tmp_path), "script": "uses.py"}
    train = {**program, "setup": "pip install --quiet --no-index --no-deps ./tinydep-1.0-py3-none-any.whl"}
    needs = {"requirements": ["nonexistent-tinydep"], "env": {"PIP_NO_INDEX": "1"}}
    jobs = [tradewind.submit(name, train=train, retries=0) for name in ("prepared", "prepared-too")]
    failing = tradewind.submit("unprepared", train={**program, **needs}, retries=0)
    logs = [tradewind.log(tradewind.ended(job, "finished").id) for job in jobs]
    assert sorted("[set-up] pip install" in log for log in logs) == [False, True], "two at once build it once"
    places = {log.partition("with 1.0 in ")[2].split()[0] for log in logs}
    assert len(places) == 1
    assert places.pop().startswith(str(tradewind.state / "environments"))
    error = tradewind.error(tradewind.ended(failing, "failed").id)
    assert "No matching distribution found for nonexistent-tinydep" in error
    assert "train.requirements" in error


def test_a_disk_that_is_full_fails_the_job_and_is_named(tradewind: Tradewind, small_disk: Path) -> None:
    job = tradewind.ended(tradewind.submit("full", checkpoint={"to": str(small_disk)}, retries=0), "failed")
    error = tradewind.error(job.id)
    assert "No space left" in error
    assert str(small_disk) in error


def test_a_cancelled_job_lets_go_of_its_machine(tradewind: Tradewind, submitted: Callable[[str], str]) -> None:
    job = submitted("cancelled")
    run = tradewind.training(job)
    tradewind.command("cancel", job, "--yes")
    tradewind.ended(job, "cancelled")
    assert not tradewind.processes(run)
    assert tradewind.step(run) < STEPS
