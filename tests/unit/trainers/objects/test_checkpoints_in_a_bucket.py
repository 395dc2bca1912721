"""Checkpoints in a bucket: exact resume after kill -9, retention, fences, and a store that is away for a while."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from orchestrator.engine.jobs.checkpoints import CheckpointUnusable, FileCatalog
from tests.clouds.s3 import REFUSED_KEY_ID, SECRET, environment, refusal
from tests.clouds.server import Fault, LoopbackServer, Request
from tests.unit.trainers.conftest import read_losses
from trainers.checkpoint import repair, store
from trainers.checkpoint.manifest import Manifest, ManifestName, Piece, TensorEntry
from trainers.checkpoint.retention import collect
from trainers.control import ControlDirectory
from trainers.errors import DamagedCheckpoint, FencedError
from trainers.objects.base import ObjectStore
from trainers.objects.bucket import open_bucket

JOB = "job-1"


@pytest.fixture
def root(bucket_url: str) -> ObjectStore:
    opened = open_bucket(bucket_url)
    store.prepare(opened, JOB)
    store.write_fence(opened, JOB, 1, None)
    return opened


def save(root: ObjectStore, generation: int, step: int, keep: int = 1) -> str:
    """A checkpoint of two chunks; the first is the same in all checkpoints of a generation."""
    tensors = []
    for data in (b"frozen", f"{generation}-{step}".encode()):
        piece = Piece(store.write_chunk(root, JOB, data, generation), 0, len(data))
        tensors.append(TensorEntry(f"t{len(tensors)}", "uint8", (len(data),), (piece,)))
    manifest = Manifest(JOB, ManifestName(generation, step, 1), 1, None, {}, tuple(tensors), {})
    committed = store.commit(root, manifest)
    collect(root, JOB, generation, keep)
    return str(committed)


# Training


def test_a_run_that_is_killed_resumes_from_the_bucket_to_the_same_bits(
    job, tmp_path: Path, bucket_url: str, uninterrupted, server: LoopbackServer
) -> None:
    """The last run as by hand: python -m trainers.runner SPEC --standalone. The reference trained with a folder."""
    job.root = bucket_url
    losses: dict[int, str] = {}
    starts = []
    for step in (17, 31):
        killed = job.run(spec={"env": environment(server), "keep": 2}, kill_after_step=step)
        assert killed.status == "killed 9", killed.log
        starts.append(killed.progress.start_step)
        losses |= killed.losses
    job.generation += 1
    spec = job.spec(keep=2)
    control = ControlDirectory(spec.control_dir)
    control.path.mkdir(parents=True)
    spec.save(tmp_path / "spec.json")
    command = [sys.executable, "-m", "trainers.runner", str(tmp_path / "spec.json"), "--standalone"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    progress = control.progress()
    assert progress is not None, done.stderr
    assert done.returncode == 0, done.stderr
    assert starts[0] == 0 < starts[1] < progress.start_step
    losses |= read_losses(control.path.parent / "metrics.jsonl")
    assert losses == uninterrupted.losses
    assert progress.weights_hash == uninterrupted.progress.weights_hash

    opened = open_bucket(bucket_url)
    kept = store.manifests(opened, JOB)
    assert [str(name) for name in kept][-1] == progress.manifest
    assert len(kept) <= 3  # two, and the one that the newest fence names
    needed = {chunk for name in kept for chunk in store.read_manifest(opened, JOB, name).chunks()}
    assert {key.removeprefix("chunks/") for key in store.job_store(opened, JOB).keys("chunks")} == needed
    assert list(tmp_path.rglob("*chunks*")) == []


def test_training_goes_on_while_the_store_is_away_and_the_next_save_succeeds(
    job, bucket_url: str, server: LoopbackServer
) -> None:
    def chunks(request: Request) -> bool:
        return request.method == "PUT" and "/chunks/" in request.path

    job.root = bucket_url
    server.faults = [Fault(chunks, times=5, answer=refusal(503, "SlowDown"))]
    outcome = job.run(spec={"env": environment(server)})
    assert outcome.status == "finished", outcome.log
    assert outcome.log.count("is postponed: s3://") == 1


def test_a_store_that_refuses_for_a_while_fails_neither_the_restore_nor_the_last_checkpoint(
    job, bucket_url: str, server: LoopbackServer
) -> None:
    """It answers, so that several tries take no longer than some seconds."""
    job.root = bucket_url

    def needed(method: str, part: str) -> Fault:
        return Fault(lambda asked: asked.method == method and part in asked.path, 5, answer=refusal(503, "SlowDown"))

    for fault in (needed("PUT", "-40-"), needed("GET", "/chunks/")):
        next_one = job.generation + 1
        store.write_fence(job.root, job.job_id, next_one, store.newest_counting(job.root, job.job_id, next_one))
        server.faults = [fault]
        outcome = job.run(spec={"env": environment(server)}, fence=False)
        assert fault.times == 0
        assert outcome.status == "finished", outcome.log
    assert outcome.progress.start_step == 40
    assert store.newest_counting(bucket_url, JOB, 2, on_damage=pytest.fail) == outcome.progress.manifest


def test_a_key_that_is_denied_fails_the_run_with_the_url_and_the_remedy(
    job, bucket_url: str, server: LoopbackServer
) -> None:
    job.root = bucket_url
    outcome = job.run(spec={"env": environment(server, REFUSED_KEY_ID)})
    assert outcome.status == "failed"
    assert f"StoreDenied: {bucket_url}" in outcome.progress.error
    assert "s3:PutObject" in outcome.progress.error
    assert SECRET not in outcome.log + outcome.progress.error


# Ownership


def test_a_late_commit_of_a_run_that_lost_the_job_is_refused_and_what_slips_in_does_not_count(
    root: ObjectStore,
) -> None:
    save(root, 1, 5)
    slipped = Manifest(JOB, ManifestName(1, 9, 1), 1, None, {}, (), {})
    store.write_fence(root, JOB, 2, "1-5-1")
    with pytest.raises(FencedError, match="took over from 1"):
        save(root, 1, 7)
    with pytest.raises(FencedError):
        collect(root, JOB, 1, 1)
    store.job_store(root, JOB).put("manifests/1-9-1.json", slipped.to_bytes())
    assert store.newest_counting(root, JOB, 2) == "1-5-1"
    assert save(root, 2, 6) == "2-6-1"
    assert [str(name) for name in store.manifests(root, JOB)] == ["1-5-1", "2-6-1"]


def test_of_a_handover_and_its_cancellation_at_once_exactly_one_succeeds(root: ObjectStore) -> None:
    catalog = FileCatalog()
    for generation in range(2, 12):
        done: dict[str, bool] = {}

        def take(generation: int = generation, done: dict[str, bool] = done) -> None:
            done["taken"] = catalog.fence(root, JOB, generation, None)

        def void(generation: int = generation, done: dict[str, bool] = done) -> None:
            done["void"] = catalog.void(root, JOB, generation)

        threads = [Thread(target=take), Thread(target=void)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(done.values()) == [False, True]
    assert catalog.taken(root, JOB) == 11


def test_the_fence_of_a_handover_whose_answer_was_lost_is_ours(root: ObjectStore, server: LoopbackServer) -> None:
    server.faults = [Fault(lambda request: request.method == "PUT" and "/fence/" in request.path, lost=True)]
    assert FileCatalog().fence(root.url, JOB, 2, None)
    assert FileCatalog().fenced(root.url, JOB) == 2


# Damage


def test_a_damaged_chunk_is_noticed_and_an_older_checkpoint_used(root: ObjectStore) -> None:
    save(root, 1, 5, keep=9)
    save(root, 1, 6, keep=9)
    newest = store.read_manifest(root, JOB, ManifestName(1, 6, 1)).tensors[-1].pieces[0].chunk
    store.job_store(root, JOB).put(f"chunks/{newest}", b"1-X")
    damages: list[DamagedCheckpoint] = []
    assert store.newest_counting(root, JOB, 2, on_damage=damages.append) == "1-5-1"
    assert f"{root.url}/{JOB}/chunks/{newest} is truncated or altered" in str(damages[0])
    store.job_store(root, JOB).delete(f"chunks/{newest}")
    found = FileCatalog().newest(root.url, JOB, 2)
    assert found.found is not None
    assert (found.found.name, len(found.damaged)) == ("1-5-1", 1)


def test_a_damaged_fence_is_repaired_by_the_command_that_the_error_names(
    root: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    save(root, 1, 5)
    fence = store.job_store(root, JOB)
    found = fence.get("fence/1", 999)
    assert found is not None
    fence.put("fence/1", found.data.replace(b"1", b"2", 1))
    with pytest.raises(CheckpointUnusable) as error:
        FileCatalog().fenced(root.url, JOB)
    command = error.value.hint.partition("python -m trainers.checkpoint.repair ")[2]
    assert command == f"{root.url}/{JOB}"
    assert repair.main([command]) == 0
    assert "generation 1" in capsys.readouterr().out
    assert FileCatalog().fenced(root.url, JOB) == 1
    with pytest.raises(SystemExit):
        repair.main(["s3://bucket"])


def test_what_the_engine_reads_costs_few_requests(root: ObjectStore, server: LoopbackServer) -> None:
    save(root, 1, 5)
    catalog = FileCatalog()
    server.requests.clear()
    assert catalog.newest(root, JOB, 2).found is not None
    assert len(server.requests) <= 6
    server.requests.clear()
    assert catalog.fenced(root, JOB) == 1
    assert len(server.requests) <= 2


def test_a_store_that_is_away_is_reported_soon_and_with_its_url(root: ObjectStore, server: LoopbackServer) -> None:
    server.faults = [Fault(lambda _request: True, times=None, answer=refusal(503, "SlowDown"))]
    server.requests.clear()
    with pytest.raises(CheckpointUnusable, match=root.url):
        FileCatalog().newest(root.url, JOB, 2)
    assert len(server.requests) == 2
