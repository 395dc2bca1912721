"""Secrets that a control plane lacks, as a user sees them on the command line, beside virtual time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from typer.testing import CliRunner, Result

from orchestrator.cli.app import app
from orchestrator.model import Job, JobSpec
from orchestrator.services.secrets.socket import SecretLine
from tests.sim.harness import SimulatedInstallation, check_truth, train_spec

NAME, VALUE = "WANDB_API_KEY", "correct horse battery staple"
Tradewind = Callable[..., Result]


@pytest.fixture
def job(home: SimulatedInstallation) -> Job:
    train = replace(train_spec(80), secrets=(NAME,))
    return home.submit_job(JobSpec("secretive", train, retries=0))


@pytest.fixture
def tradewind(home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch) -> Tradewind:
    """The command, while the control plane goes on."""
    settings = {"STATE_DIR": str(home.config.state_dir), "STORE_URL": home.database.url, "PROVIDERS_ENABLED": "fake"}
    for name, value in settings.items():
        monkeypatch.setenv(f"TRADEWIND_{name}", value)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv(NAME, VALUE)

    def run(*arguments: str) -> Result:
        done: list[Result] = []
        thread = threading.Thread(target=lambda: done.append(CliRunner().invoke(app, arguments)))
        thread.start()
        while thread.is_alive():
            home.tick()
            thread.join(0.01)
        (result,) = done
        assert result.exit_code == 0, result.output
        return result

    return run


@contextmanager
def listening(home: SimulatedInstallation) -> Iterator[None]:
    """The present control plane takes secrets."""
    said: list[str] = []
    with SecretLine(home.config.state_dir, home.secrets, said.append):
        yield
    assert said == []


def waits_and_says_so(home: SimulatedInstallation, job: Job, tradewind: Tradewind) -> None:
    runs = len(home.runs(job))
    home.run_for(60)
    assert home.job(job).state == "queued"
    assert len(home.runs(job)) == runs
    facts = home.read(lambda tx: tx.job_facts(job.id))
    assert (facts.failures, home.cloud.quota_used(home.clock.now_ms())) == (0, 0)
    for command in (("queue",), ("status", "secretive"), ("events", "secretive"), ("explain", "secretive")):
        assert "tradewind secrets give secretive" in " ".join(tradewind(*command).stdout.split()), command


def finishes_without_a_trace_of_it(home: SimulatedInstallation, job: Job) -> None:
    home.settle()
    assert home.job(job).state == "finished"
    assert home.read(lambda tx: tx.job_facts(job.id)).failures == 0
    held = [path for path in home.config.state_dir.rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()]
    assert held == []
    check_truth(home)


def test_a_job_that_never_had_its_secret_waits_and_says_so_until_it_is_given(
    home: SimulatedInstallation, job: Job, tradewind: Tradewind
) -> None:
    waits_and_says_so(home, job, tradewind)
    with listening(home):
        assert f"the control plane has received {NAME}" in tradewind("secrets", "give", "secretive").stdout
    finishes_without_a_trace_of_it(home, job)


def test_a_job_that_is_resumed_under_a_new_control_plane_waits_and_says_so(
    home: SimulatedInstallation, job: Job, tradewind: Tradewind
) -> None:
    with listening(home):
        tradewind("secrets", "give", "secretive")
        home.until_step(job, 5)
        tradewind("pause", "secretive")
        home.until_state(job, "paused")
        home.until(lambda: not home.cloud.quota_used(home.clock.now_ms()))
    home.start()
    tradewind("resume", "secretive")
    waits_and_says_so(home, job, tradewind)
    with listening(home):
        tradewind("secrets", "give", "secretive")
        finishes_without_a_trace_of_it(home, job)


def test_a_job_whose_machine_is_lost_after_a_standby_took_over_waits_and_says_so(
    home: SimulatedInstallation, job: Job, tradewind: Tradewind
) -> None:
    with listening(home):
        tradewind("secrets", "give", "secretive")
    run = home.until_step(job, 5)
    home.take_over()
    home.until(lambda: len(home.events(job, "job.missing_secrets")) == 1)
    assert "cannot restart elsewhere" in tradewind("events", "secretive").stdout
    assert run.instance_id is not None
    home.cloud.crash(run.instance_id)
    home.until_state(job, "queued")
    home.until(lambda: not home.cloud.quota_used(home.clock.now_ms()))
    waits_and_says_so(home, job, tradewind)
    with listening(home):
        tradewind("secrets", "give", "secretive")
    finishes_without_a_trace_of_it(home, job)
