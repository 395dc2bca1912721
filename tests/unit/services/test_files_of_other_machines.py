"""Logs and outputs of machines that do not have this host's folders: read through the store, also afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from orchestrator.errors import NotFoundError, PartialFailure, StoreError, UsageError
from orchestrator.installation import Installation
from orchestrator.model import Member
from orchestrator.nodes.log_pieces import PieceWriter, log_prefix, metrics_prefix
from orchestrator.nodes.outputs import OutputWriter
from orchestrator.reports.report import report
from orchestrator.services.jobs import fetch, logs, run_files
from providers import traits
from providers.clock import VirtualClock
from tests.unit.services.recorded_history import Past
from trainers.errors import StoreUnavailable
from trainers.objects.base import ObjectStore
from trainers.objects.folder import FolderStore
from trainers.objects.opening import open_store


@dataclass
class ScriptedClock(VirtualClock):
    """Runs the next act of its script at each pause."""

    script: list[Callable[[], object]] = field(default_factory=list)
    paused_s: list[float] = field(default_factory=list)

    def sleep(self, wall_s: float) -> None:
        super().sleep(wall_s)
        self.paused_s.append(wall_s)
        assert self.script, "nothing more will happen, and yet somebody waits"
        self.script.pop(0)()


@pytest.fixture
def clock() -> ScriptedClock:
    return ScriptedClock()


class Far:
    """The machines of the job `gpt`, and this host without any file of theirs."""

    def __init__(self, installation: Installation, past: Past, folder: Path) -> None:
        self.installation, self.past, self.folder = installation, past, folder
        shutil.rmtree(installation.state_dir / "runs", ignore_errors=True)
        shutil.rmtree(installation.state_dir / "outputs", ignore_errors=True)
        with installation.store.read() as tx:
            self.runs = tx.runs(job_id=past.gpt)
        self._trails: dict[tuple[str, str], PieceWriter] = {}

    @property
    def store(self) -> ObjectStore:
        return open_store(self.installation.job_root(self.past.gpt))

    def append(self, number: int, text: str, name: str = "log") -> None:
        run_id = self.runs[number].id
        path = self.folder / run_id / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(text)
        prefix = log_prefix(run_id) if name == "log" else metrics_prefix(run_id)
        self._trails.setdefault((run_id, name), PieceWriter(self.store, prefix, path)).ship()

    def write(self, files: dict[str, bytes], generation: int = 1) -> None:
        folder = self.folder / f"outputs {generation}"
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        OutputWriter(self.store, folder, generation, pytest.fail, lambda: None).ship()

    def lines(self, *, follow: bool = False) -> list[tuple[int, str]]:
        return [(line.number, line.text) for line in logs.logs(self.installation, "gpt", follow=follow)]

    def end(self, state: str = "finished") -> None:
        with self.installation.store.write() as tx:
            tx.set_job_state(self.past.gpt, state)  # type: ignore[arg-type]


@pytest.fixture
def far(installation: Installation, past: Past, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Far:
    monkeypatch.setitem(traits._OF, "fake", replace(traits.traits_of("fake"), shares_host=False))
    return Far(installation, past, tmp_path / "far")


def test_the_log_of_every_run_is_read_when_its_machine_is_gone(far: Far) -> None:
    far.append(0, "first\nunfinished")
    far.append(1, "second\n")
    assert far.lines() == [(1, "first"), (2, "second"), (1, "unfinished")]


def test_following_reads_what_arrives_also_late_and_ends_with_the_job(far: Far, clock: ScriptedClock) -> None:
    last = len(far.runs) - 1
    far.append(last, "begin\nhalf")
    with far.installation.store.write() as tx:
        tx.set_job_state(far.past.gpt, "running")
        tx.update_run(far.runs[last].id, state="training", end=None, training_to_ms=None, billed_to_ms=None)

    def finish() -> None:
        far.append(last, "end\n")
        far.end()

    late = "late, of a machine that was lost\n"
    clock.script = [lambda: far.append(last, " line\n"), lambda: far.append(0, late), finish]
    assert far.lines(follow=True) == [
        (last + 1, "begin"),
        (last + 1, "half line"),
        (1, "late, of a machine that was lost"),
        (last + 1, "end"),
    ]
    assert min(clock.paused_s) >= logs.POLL_WALL_S


def test_following_a_cancelled_job_waits_for_the_last_words_of_its_machine(far: Far, clock: ScriptedClock) -> None:
    last = len(far.runs) - 1
    far.append(last, "begin\n")

    def booked(at_ms: int | None) -> None:
        with far.installation.store.write() as tx:
            tx.update_run(far.runs[last].id, end="cancelled", billed_to_ms=at_ms)

    booked(None)
    far.end("cancelled")
    clock.script = [lambda: far.append(last, "why it was cancelled\n"), lambda: booked(1)]
    assert [text for _, text in far.lines(follow=True)] == ["begin", "why it was cancelled"]
    booked(None)  # and never again: nobody waits for ever
    clock.script = [lambda: clock.advance(logs.LAST_WORDS_WALL_S)] * 2
    assert [text for _, text in far.lines(follow=True)] == ["begin", "why it was cancelled"]


@pytest.mark.parametrize("remote", [True, False])
def test_the_logs_of_all_machines_of_a_run_are_read(
    far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    run = far.runs[0]
    if not remote:
        monkeypatch.setitem(traits._OF, "fake", replace(traits.traits_of("fake"), shares_host=True))
    with far.installation.store.write() as tx:
        tx.set_machines(run.id, [replace(run.machines[0], instance_id=f"machine-{rank}") for rank in range(2)])
    for rank, folder in enumerate(("", "machines/1")):
        path = far.installation.run_dir(run.id) / folder / "log" if not remote else tmp_path / f"log {rank}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"of rank {rank}\n")
        if remote:
            PieceWriter(far.store, log_prefix(run.id, rank), path).ship()
    assert far.lines() == [(1, "of rank 0"), (1, "of rank 1")]


def test_following_a_bucket_asks_no_more_often_than_it_should(
    far: Far, clock: ScriptedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FolderStore, "poll_s", 1.0)
    with far.installation.store.write() as tx:
        tx.set_job_state(far.past.gpt, "running")
    clock.script = [lambda: None, far.end]
    far.lines(follow=True)
    assert clock.paused_s == [1.0, 1.0]


def test_a_store_that_does_not_answer_is_an_error_with_a_remedy(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_args: object) -> None:
        raise StoreUnavailable("s3://bucket does not answer", hint="check the network")

    monkeypatch.setattr(FolderStore, "get_range", silent)
    monkeypatch.setattr(FolderStore, "list", silent)
    for read in (far.lines, lambda: fetch.fetch(far.installation, "gpt", far.folder)):
        with pytest.raises(StoreError, match="does not answer") as failed:
            read()
        assert failed.value.hint == "check the network"


def test_outputs_are_fetched_of_the_newest_generation_and_only_what_is_named(far: Far, tmp_path: Path) -> None:
    far.write({"weights/final.pt": b"old", "weights/first.pt": b"first", "scratch": b"x"})
    far.write({"weights/final.pt": b"weights"}, generation=2)
    reported: list[tuple[str, int, int]] = []
    fetched = fetch.fetch(far.installation, "gpt", tmp_path / "out", progress=lambda *now: reported.append(now))
    assert [(each.path, each.size_bytes) for each in fetched.files] == [
        ("weights/final.pt", 7),
        ("weights/first.pt", 5),
    ]
    assert (tmp_path / "out/weights/final.pt").read_bytes() == b"weights"
    assert not (tmp_path / "out/scratch").exists()
    assert reported[-1] == ("weights/first.pt", 12, 12)
    fetched = fetch.fetch(far.installation, "gpt", tmp_path / "some", ["scratch", "weights/first.pt", "none/"])
    assert [each.path for each in fetched.files] == ["scratch", "weights/first.pt"]
    assert fetched.missing == ("none",)
    assert sorted(path.name for path in (tmp_path / "some").rglob("*")) == ["first.pt", "scratch", "weights"]


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", ".."])
def test_paths_that_lead_out_are_refused(far: Far, tmp_path: Path, path: str) -> None:
    far.write({"a": b"a"})
    with pytest.raises(UsageError, match="not a path below"):
        fetch.fetch(far.installation, "gpt", tmp_path / "out", [path])


def test_nothing_is_written_outside_the_folder(far: Far, tmp_path: Path) -> None:
    far.write({"weights/final.pt": b"weights"})
    (tmp_path / "private").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "weights").symlink_to(tmp_path / "private")
    with pytest.raises(PartialFailure, match="leads out of"):
        fetch.fetch(far.installation, "gpt", tmp_path / "out")
    assert list((tmp_path / "private").iterdir()) == []
    far.store.put("outputs/9/%2E%2E/weights", b"of a malicious machine")
    (tmp_path / "out" / "weights").unlink()
    fetch.fetch(far.installation, "gpt", tmp_path / "out", ["."])
    assert sorted(path.name for path in tmp_path.iterdir() if path.name == "weights") == []


def test_files_that_cannot_be_written_hold_up_no_others(far: Far, tmp_path: Path) -> None:
    far.write({"weights/a": b"a", "weights/b": b"b", "weights/c": b"c"})
    deep = "/".join(["%FF" * 60] * 4)
    far.store.put(f"outputs/9/weights/{deep}", b"of a malicious machine")
    (tmp_path / "x" / "weights" / "a" / "mine").mkdir(parents=True)
    with pytest.raises(PartialFailure, match=r"weights/a cannot be written: .* \(1 of 4 files were not fetched\)"):
        fetch.fetch(far.installation, "gpt", tmp_path / "x")
    assert [path.name for path in (tmp_path / "x" / "weights").iterdir() if path.is_file()] == ["b", "c"]


def test_what_was_a_file_and_is_a_folder_is_fetched_as_it_was_last(far: Far, tmp_path: Path) -> None:
    far.write({"latest": b"a file", "run/1": b"below a folder"})
    far.write({"latest/x": b"below a folder", "run": b"a file"}, generation=2)
    fetch.fetch(far.installation, "gpt", tmp_path / "out", ["."])
    found = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert found == {"latest/x", "run"}
    here = far.installation.output_dir(far.past.gpt)
    here.mkdir(parents=True)
    (here / "latest").write_text("a file on this host, before")
    fetched = fetch.fetch(far.installation, "gpt", tmp_path / "both", ["."])
    assert [each.path for each in fetched.files] == ["latest/x", "run"]


def test_a_file_that_changes_while_it_is_read_is_read_again(
    far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far.write({"weights/final.pt": b"before"})
    get_range, changes = FolderStore.get_range, [b"changed once", b"changed twice"]

    def changing(self: FolderStore, key: str, begin: int, end: int) -> bytes | None:
        found = get_range(self, key, begin, end)
        if changes:
            self.put(key, changes.pop(0))
        return found

    monkeypatch.setattr(FolderStore, "get_range", changing)
    fetch.fetch(far.installation, "gpt", tmp_path / "out")
    assert (tmp_path / "out/weights/final.pt").read_bytes() == b"changed twice"


def test_a_job_that_was_also_here_has_the_outputs_of_both_and_of_the_last_machine_first(
    far: Far, tmp_path: Path
) -> None:
    here = far.installation.output_dir(far.past.gpt)
    here.mkdir(parents=True)
    (here / "a").write_text("here")
    (here / "b").write_text("here")
    far.write({"b": b"there", "c": b"there"})
    fetch.fetch(far.installation, "gpt", tmp_path / "out", ["."])
    found = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert found == {"a": "here", "b": "there", "c": "there"}


def test_a_job_without_outputs_anywhere_says_so(far: Far, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no outputs"):
        fetch.fetch(far.installation, "gpt", tmp_path / "out")


def test_the_loss_curve_is_that_of_the_machines_and_is_kept_here_when_they_have_ended(far: Far) -> None:
    far.append(0, '{"step": 1, "loss": 2.0}\n', "metrics.jsonl")
    far.append(1, '{"step": 2, "loss": 1.0}\n', "metrics.jsonl")
    (row,) = report(far.installation, "gpt").jobs
    assert row.losses == ((1, 2.0), (2, 1.0))
    ended = [run for run in far.runs[:2] if run.end is not None]
    assert ended
    assert all((far.installation.run_dir(run.id) / run_files.METRICS).exists() for run in ended)
    far.store.delete(*far.store.keys())
    (row,) = report(far.installation, "gpt").jobs
    assert len(row.losses) == len(ended)


def test_metrics_without_end_fill_neither_memory_nor_the_disk(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "MOST_METRICS_BYTES", 100_000)
    for step in range(1, 4):
        far.append(0, f'{{"step": {step}, "loss": 2.0}}\n' + " " * 60_000 + "\n", "metrics.jsonl")
    (row,) = report(far.installation, "gpt").jobs
    assert row.losses == ((1, 2.0), (2, 2.0))
    assert (far.installation.run_dir(far.runs[0].id) / run_files.METRICS).stat().st_size == 100_000


def test_files_of_one_name_from_several_machines_are_named_and_can_be_fetched(far: Far, tmp_path: Path) -> None:
    with far.installation.store.write() as tx:
        tx.set_machines(far.runs[0].id, [Member("m-0"), Member("m-1")])
    far.write({"notes": b"of 0", "own": b"own"})
    folder = far.folder / "outputs of machine 1"
    folder.mkdir(parents=True)
    (folder / "notes").write_bytes(b"of 1")
    OutputWriter(far.store, folder, 1, pytest.fail, lambda: None, 1).ship()
    fetched = fetch.fetch(far.installation, "gpt", tmp_path / "all", ["."])
    assert {file.path for file in fetched.files} == {"notes", "own"}
    assert fetched.aside == ("machine-1/notes",)
    assert (tmp_path / "all" / "notes").read_bytes() == b"of 0"
    fetched = fetch.fetch(far.installation, "gpt", tmp_path / "one", ["machine-1"])
    assert (tmp_path / "one" / "machine-1" / "notes").read_bytes() == b"of 1"
    assert (fetched.aside, fetched.missing) == ((), ())
