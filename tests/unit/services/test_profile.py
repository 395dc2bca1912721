"""`tradewind profile`: the job's own program is counted in a child process, kept for plans, and nothing else is."""

from __future__ import annotations

import importlib.util
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli.render.screens import profiles as screens
from orchestrator.cli.render.text import Screen
from orchestrator.engine.inputs.snapshot import perf
from orchestrator.errors import MissingExtraError, PartialFailure, UsageError
from orchestrator.formats.documents import to_json
from orchestrator.model import Job, JobSpec, Resources, TrainSpec
from orchestrator.services.speed.profile import profile
from orchestrator.services.speed.views import ProfileRow, ProfileView

PROGRAM = """
import pathlib
import time

import torch

import trainers


def main(steps, width=64):
    pathlib.Path(__file__).with_name("length").write_text(f"{steps} steps")
    model = torch.nn.Linear(width, width, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = trainers.attach(model=model, optimizer=optimizer, steps=1_000_000)
    for _ in run.batches():
        optimizer.zero_grad()
        loss = model(torch.ones(8, width)).square().mean()
        loss.backward()
        optimizer.step()
        run.step(loss)
    (run.output_dir / "model.pt").write_text("trained")


def waits(steps):
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = trainers.attach(model=model, optimizer=optimizer)
    for _ in run.batches():
        time.sleep(0.05)  # for its data
        loss = model(torch.ones(8, 64)).square().mean()
        loss.backward()
        optimizer.step()
        run.step(loss)


def parallel(steps, narrow=0):
    kind = torch.bfloat16 if narrow else torch.float32
    torch.distributed.init_process_group("gloo")
    assert torch.distributed.get_world_size() == 1
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64, bias=False, dtype=kind))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = trainers.attach(model=model, optimizer=optimizer)
    for _ in run.batches():
        optimizer.zero_grad()
        model(torch.ones(8, 64, dtype=kind)).square().mean().backward()
        optimizer.step()
        run.step(0.0)
"""
BROKEN = """
import os


def main():
    raise RuntimeError("no data for " + os.environ["PROFILE_TOKEN"])
"""


@pytest.fixture
def spec(tmp_path: Path):
    (tmp_path / "train.py").write_text(PROGRAM)

    def of(entry: str = "main", *, secrets: tuple[str, ...] = (), **args: int) -> JobSpec:
        return JobSpec("small", TrainSpec(f"train:{entry}", None, args, str(tmp_path), {}, secrets, 1000, None))

    return of


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def v100(view: ProfileView) -> ProfileRow:
    return next(row for row in view.kinds if row.gpu == "V100")


def test_a_profile_counts_predicts_and_is_found_by_plans(installation, spec, scratch, tmp_path):
    view = profile(installation, spec())
    assert (tmp_path / "length").read_text() == "1000 steps"  # the job's, although it is ended long before
    assert view.flops == 2 * 2 * 8 * 64 * 64
    assert (view.parameters, view.resident_bytes) == (64 * 64, 2 * 4 * 64 * 64)
    assert (view.precision, view.computes, view.sharding) == ("fp32", "matrices", "none")
    assert view.gpu_memory_bytes > 10**9
    assert view.step_wall_s > 0
    by_kind = {(row.gpu, row.gpu_count): row for row in view.kinds}
    assert {("H100", 1), ("K80", 1)} <= by_kind.keys()
    assert all(row.steps_per_s_low < row.steps_per_s < row.steps_per_s_high for row in view.kinds)
    priced = [row.nano_usd_per_step for row in view.kinds if row.nano_usd_per_step is not None]
    assert priced == sorted(priced)
    assert priced
    assert to_json(view)["schema"] == "tradewind/profile/v1"
    shown = screens.profile(view, Screen())
    assert "131 kFLOP, " in shown
    assert " operations, 4.1 k parameters; " in shown
    assert "32.8 kB weights, gradients and optimizer" in shown
    assert "1 real second is" not in shown
    fast = screens.profile(replace(view, simulated=True, clock_factor=60.0), Screen())
    assert "steps/s of SIM kinds are per second of market time: 1 real second is 60 market seconds" in fast
    assert list(scratch.iterdir()) == []

    with installation.store.read() as tx:
        book = perf(tx, installation.clock.now_ms())
    job = Job("job_new", spec(), "me", 0, "queued")
    assert book.estimate_kind(job, "V100", 1).value == by_kind["V100", 1].steps_per_s
    assert "a profile of its step" in book.estimate_kind(job, "V100", 1).provenance
    other = Job("job_new", spec(width=128), "me", 0, "queued")
    assert book.estimate_kind(other, "V100", 1).provenance.startswith("prior")


def test_a_program_that_waits_for_its_data_is_promised_no_more_steps_on_any_gpu_than_its_data_allow(installation, spec):
    view = profile(installation, spec("waits"))
    assert view.step_wall_s / 2 < view.outside_wall_s <= view.step_wall_s
    gpus = [row for row in view.kinds if row.gpu is not None and not row.gpu.startswith("SIM")]
    assert gpus
    assert all(row.steps_per_s <= 1 / view.outside_wall_s for row in gpus)


def test_a_program_for_several_processes_is_profiled_as_one_of_them_at_the_precision_that_its_file_says(
    installation, spec
):
    view = profile(installation, replace(spec("parallel"), resources=Resources(processes=1), precision="fp16"))
    assert (view.flops, view.parameters) == (2 * 2 * 8 * 64 * 64, 64 * 64)
    assert view.precision == "fp16"
    assert v100(view).throughput_source.endswith("at fp16")


def test_one_for_several_machines_is_profiled_on_one_at_the_precision_that_it_was_seen_to_compute_in(
    installation, spec
):
    resources = Resources(nodes=2, processes=2)
    view = profile(installation, replace(spec("parallel", narrow=1), resources=resources))
    assert (view.flops, view.parameters) == (2 * 2 * 8 * 64 * 64, 64 * 64)
    assert view.precision == "bf16"
    assert " at bf16; assumed: a step on 2 machines" in v100(view).throughput_source
    with installation.store.read() as tx:
        (work,) = tx.works().values()
    assert (work.precision, work.sort) == ("bf16", "matrices")
    assert (work.weight_bytes, work.gradient_bytes) == (2 * 64 * 64, 2 * 64 * 64)


def test_a_program_that_fails_says_why_without_its_secrets_and_leaves_nothing(
    installation, spec, scratch, tmp_path, monkeypatch
):
    (tmp_path / "train.py").write_text(BROKEN)
    monkeypatch.setenv("PROFILE_TOKEN", "correct horse battery")
    with pytest.raises(PartialFailure, match=r"RuntimeError: no data for \[secret PROFILE_TOKEN\]") as caught:
        profile(installation, spec(secrets=("PROFILE_TOKEN",)))
    assert caught.value.hint
    assert list(scratch.iterdir()) == []
    with installation.store.read() as tx:
        assert tx.works() == {}


def test_a_program_that_takes_its_steps_outside_of_batches_is_asked_to_iterate_them(installation, spec, tmp_path):
    program = (tmp_path / "train.py").read_text()
    (tmp_path / "train.py").write_text(program.replace("in run.batches()", "in range(1000)"))
    with pytest.raises(PartialFailure, match=r"small is unknown: it takes them outside of run\.batches\(\)") as refused:
        profile(installation, spec())
    assert "iterate run.batches()" in refused.value.hint


def test_without_torch_or_a_secret_it_says_what_is_missing(installation, spec, monkeypatch):
    with pytest.raises(UsageError, match=r"missing or empty .*: TOKEN_OF_NOBODY"):
        profile(installation, spec(secrets=("TOKEN_OF_NOBODY",)))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError) as caught:
        profile(installation, spec())
    assert caught.value.hint == "pip install 'tradewind[train]'"
