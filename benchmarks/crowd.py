"""Claim: of 50 processes that submit a job at once on a fresh machine all succeed, on SQLite and on Postgres.

    python -m benchmarks.crowd            50 processes, and each tries again with its token: still 50 jobs
    python -m benchmarks.crowd --quick    16 processes

Each process is forked from one that has loaded the SDK, opens the store by itself (which the first of them makes), asks
for prices, plans and submits. Postgres is one that tests/postgres.py starts, with its 57 connections for clients, which
is fewer than 50 processes want; where none is installed its rows are missing, and a note says so.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks._claims import Claim, show
from orchestrator.client import Client
from orchestrator.config import Config, load_config
from orchestrator.errors import TradewindError
from orchestrator.model import JobSpec
from tests.postgres import AS_INSTALLED, server
from tests.rig import train_spec

PROCESSES, QUICK_PROCESSES = 50, 16


def spec(number: int) -> JobSpec:
    return JobSpec(f"job-{number}", train_spec(10 + number))


def submit(config: Config, number: int) -> str:
    """The job's id, or what went wrong."""
    try:
        with Client(config) as client:
            first = client.jobs.submit(spec(number), token=f"crowd-{number}")
            again = client.jobs.submit(spec(number), token=f"crowd-{number}")
            return first.id if first.id == again.id else f"failed: twice, as {first.id} and {again.id}"
    except TradewindError as error:
        return f"failed: {error}"


def crowd(config: Config, processes: int) -> list[str]:
    """What each of so many processes got that begin together."""
    starting, start = os.pipe()
    answers, answer = os.pipe()
    children = []
    for number in range(processes):
        child = os.fork()
        if child == 0:
            try:
                os.close(start)
                os.read(starting, 1)  # ends when everybody is there
                os.write(answer, f"{submit(config, number)}\n".encode())
            finally:
                os._exit(0)
        children.append(child)
    os.close(start)
    os.close(answer)
    said = b""
    while part := os.read(answers, 65536):
        said += part
    for child in children:
        os.waitpid(child, 0)
    return said.decode().splitlines()


def measure(name: str, processes: int, store_url: str | None) -> tuple[list[Claim], list[str]]:
    with tempfile.TemporaryDirectory(prefix="tw-bench-") as made:
        settings: dict[str, object] = {"state_dir": str(Path(made) / "state"), "providers.enabled": "fake"}
        if store_url is not None:
            settings["store_url"] = store_url
        config = load_config(settings, environ={}, cwd=Path(made))
        said = crowd(config, processes)
        with Client(config) as client:
            stored = len(client.jobs.list(ended=True, limit=None).jobs)
    failed = [line for line in said if line.startswith("failed")]
    claims = [
        Claim(f"{name}: of {processes} submitted at once", len(said) - len(failed), "jobs", processes, least=True),
        Claim(f"{name}: stored, each tried twice with its token", stored, "jobs", processes),
    ]
    return claims, [f"{name}: {line}" for line in sorted(set(failed))[:3]]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_PROCESSES} processes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    processes = QUICK_PROCESSES if options.quick else PROCESSES
    claims, notes = measure("SQLite", processes, None)
    try:
        with server(AS_INSTALLED) as postgres:
            more, noted = measure("Postgres", processes, postgres.create("crowd"))
            claims, notes = claims + more, notes + noted
    except RuntimeError as error:
        notes.append(str(error))
    return show("Many submit at once", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
