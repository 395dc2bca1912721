"""Pruning deletes what belongs to jobs that ended long ago, and nothing else, in a folder and in S3."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import NotFoundError, UsageError
from orchestrator.installation import Installation
from orchestrator.services.caller import Caller
from orchestrator.services.jobs import fetch, logs
from orchestrator.services.store.pruning import prune
from providers.clock import VirtualClock
from tests.clouds.s3 import KEY_ID, S3, SECRET
from tests.clouds.server import LoopbackServer
from tests.unit.services.recorded_history import Past
from trainers.objects.base import ObjectStore
from trainers.objects.bucket import BucketStore
from trainers.objects.opening import open_store

DAY_S = 86_400
DIGEST = "0123456789abcdef" * 2
ME = Caller("me")


@pytest.fixture(params=["folder", "bucket"])
def installation(
    request: pytest.FixtureRequest,
    installation: Installation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Installation]:
    if request.param == "folder":
        yield replace(installation, config=replace(installation.config, store_root=tmp_path / "objects"))
        return
    s3 = S3()
    server = LoopbackServer(s3)
    server.start()
    for name, value in {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    yield replace(installation, config=replace(installation.config, store_root=f"s3://{s3.bucket}/root"))
    server.stop()


class Objects:
    """What is in the store, by key below its root."""

    def __init__(self, installation: Installation, clock: VirtualClock) -> None:
        self.root = open_store(str(installation.config.store_root))
        self.install = installation.store.install_id
        self._clock = clock

    def put(self, job_id: str, name: str, size_bytes: int = 10, install: str = "") -> str:
        key = f"jobs/{install or self.install}/{job_id}/{name}"
        self.root.put(key, b"x" * size_bytes)
        return key

    @property
    def keys(self) -> set[str]:
        return {key for key in self.root.keys("") if not key.startswith("control/")}


@pytest.fixture
def objects(installation: Installation, clock: VirtualClock) -> Objects:
    return Objects(installation, clock)


def job_of(objects: Objects, job_id: str) -> tuple[str, str, str, str]:
    return (
        objects.put(job_id, "workdir/abc.tar.gz", 1000),
        objects.put(job_id, "logs/run_1/0/0", 200),
        objects.put(job_id, "logs/run_1/0/metrics/0", 50),
        objects.put(job_id, "outputs/1/a/result.txt", 7),
    )


def test_what_a_job_left_is_deleted_when_it_ended_long_ago(
    installation: Installation, past: Past, objects: Objects, clock: VirtualClock
) -> None:
    code, log, metrics, output = job_of(objects, past.gpt)
    running = {*job_of(objects, past.conv), *job_of(objects, past.lstm)}
    assert prune(installation, "30d", caller=ME).jobs == ()
    clock.advance(31 * DAY_S)
    previewed = prune(installation, "30d", dry_run=True, caller=ME)
    assert objects.keys == {code, log, metrics, output} | running
    done = prune(installation, "30d", caller=ME)
    assert replace(done, dry_run=True) == previewed
    assert objects.keys == {output} | running
    assert (done.freed_bytes, done.kept_bytes) == (1250, 7)
    (job,) = done.jobs
    assert (job.job, job.code_bytes, job.log_bytes, job.output_bytes, job.objects) == ("gpt", 1000, 250, 0, 3)
    done = prune(installation, "30d", outputs=True, caller=ME)
    assert (done.freed_bytes, done.kept_bytes) == (7, 0)
    assert objects.keys == running
    assert prune(installation, "30d", outputs=True, caller=ME).jobs == ()
    shutil.rmtree(installation.state_dir / "runs")
    shutil.rmtree(installation.state_dir / "outputs", ignore_errors=True)
    with pytest.raises(NotFoundError, match="the logs of gpt were deleted by"):
        list(logs.logs(installation, "gpt"))
    with pytest.raises(NotFoundError, match="the outputs of gpt were deleted by"):
        fetch.fetch(installation, "gpt")
    with installation.store.read() as tx:
        said = [event.message for event in tx.events(past.gpt, kinds=["store.pruned"])]
    assert said == [
        "deleting its code and logs from the store: 1,250 bytes",
        "deleting its outputs from the store: 7 bytes",
    ]


def test_a_job_whose_machine_may_still_write_is_left_alone(
    installation: Installation, past: Past, objects: Objects, clock: VirtualClock
) -> None:
    kept = set(job_of(objects, past.gpt))
    with installation.store.write() as tx:
        last = tx.runs(job_id=past.gpt)[-1]
        tx.update_run(last.id, billed_to_ms=None)
    clock.advance(31 * DAY_S)
    assert prune(installation, "30d", outputs=True, caller=ME).jobs == ()
    assert objects.keys == kept


def test_nothing_of_others_is_touched(
    installation: Installation, past: Past, objects: Objects, clock: VirtualClock
) -> None:
    clock.advance(100 * 365 * DAY_S)
    others = set(job_of(replace_install(objects, "another"), past.gpt))
    for name in ("runtime/notes.txt", f"runtime/{DIGEST}/mine.zip", f"checkpoints/{past.gpt}/manifests/1", "jobs/x"):
        objects.root.put(name, b"x")
        others.add(name)
    others.add(objects.put(past.gpt, "workdir"))
    done = prune(installation, "1d", outputs=True, caller=ME)
    assert (done.jobs, done.runtimes, done.freed_bytes) == ((), (), 0)
    assert objects.keys == others


def replace_install(objects: Objects, install: str) -> Objects:
    other = object.__new__(Objects)
    other.root, other.install = objects.root, install
    return other


def test_an_upload_without_a_job_goes_when_it_is_old(
    installation: Installation, past: Past, objects: Objects, clock: VirtualClock
) -> None:
    key = objects.put("job_unknown", "workdir/abc.tar.gz")
    far = clock.now_ms() - objects.root.head(key).modified_ms
    clock.advance(-far / 1000 + DAY_S)
    assert prune(installation, "1s", caller=ME).jobs == ()  # it may be a submission of just now
    clock.advance(1.1 * DAY_S)
    (job,) = prune(installation, "1s", caller=ME).jobs
    assert (job.job, job.job_id, job.code_bytes) == ("", "job_unknown", 10)
    assert objects.keys == set()


def test_a_runtime_goes_when_no_launch_has_used_it_for_long(
    installation: Installation, past: Past, objects: Objects, clock: VirtualClock
) -> None:
    key = f"runtime/{DIGEST}/runtime.zip"
    objects.root.put(key, b"x" * 99)
    far = clock.now_ms() - objects.root.head(key).modified_ms
    clock.advance(-far / 1000 + 1.9 * DAY_S)
    assert prune(installation, "1s", caller=ME).runtimes == ()
    clock.advance(0.2 * DAY_S)
    assert prune(installation, "3d", caller=ME).runtimes == ()
    done = prune(installation, "1s", caller=ME)
    assert [(each.digest, each.size_bytes) for each in done.runtimes] == [(DIGEST, 99)]
    assert (done.freed_bytes, objects.keys) == (99, set())


def test_a_prune_that_is_killed_is_completed_by_the_next_and_resurrects_no_old_output(
    installation: Installation, past: Past, objects: Objects, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrator.services.store import pruning

    for generation in range(1, 12):
        objects.put(past.gpt, f"outputs/{generation}/result.txt", generation)
    clock.advance(31 * DAY_S)
    monkeypatch.setattr(pruning, "AT_ONCE", 1)
    left = [4]

    class Killed(BaseException):
        pass

    kind = type(objects.root)
    delete = kind.delete

    def dying(store: ObjectStore, *keys: str) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        delete(store, *keys)

    monkeypatch.setattr(kind, "delete", dying)
    with pytest.raises(Killed):
        prune(installation, "30d", outputs=True, caller=ME)
    monkeypatch.setattr(kind, "delete", delete)
    assert sorted(int(key.split("/")[4]) for key in objects.keys) == [5, 6, 7, 8, 9, 10, 11]
    prune(installation, "30d", outputs=True, caller=ME)
    assert objects.keys == set()


def test_no_folder_and_no_half_written_file_stays_on_a_disk(
    installation: Installation, past: Past, objects: Objects, clock: VirtualClock
) -> None:
    if isinstance(objects.root, BucketStore):
        return
    *_, output = job_of(objects, past.gpt)
    root = Path(str(installation.config.store_root))
    (root / output).with_name(".result.txt.0123456789ab").write_bytes(b"half")
    clock.advance(31 * DAY_S)
    prune(installation, "30d", outputs=True, caller=ME)
    assert list((root / "jobs" / objects.install).iterdir()) == []


@pytest.mark.parametrize("older_than", ["", "30", "-1d", "0d", "x"])
def test_a_duration_that_is_none(installation: Installation, older_than: str) -> None:
    with pytest.raises(UsageError, match="--older-than"):
        prune(installation, older_than, caller=ME)
