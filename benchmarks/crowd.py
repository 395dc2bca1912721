"""Claim: if 50 processes submit a job at once on a fresh machine, all succeed, on SQLite and on Postgres.

    python -m benchmarks.crowd            50 processes, and each retries with its token: still 50 jobs
    python -m benchmarks.crowd --quick    16 processes

Each process is forked from one that has loaded the SDK. It opens the store by itself (the first one creates it), polls
prices, plans and submits. tests/postgres.py starts Postgres with 57 client connections, fewer than 50 processes want.
Without Postgres, its rows are missing and a note says so.
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
    """Submit twice with one token. Returns the job's id, or the error."""
    try:
        with Client(config) as client:
            first = client.jobs.submit(spec(number), token=f"crowd-{number}")
            again = client.jobs.submit(spec(number), token=f"crowd-{number}")
            return first.id if first.id == again.id else f"failed: twice, as {first.id} and {again.id}"
    except TradewindError as error:
        return f"failed: {error}"


def crowd(config: Config, processes: int) -> list[str]:
    """The results of this many processes that start together."""
    starting, start = os.pipe()
    answers, answer = os.pipe()
    children = []
    for number in range(processes):
        child = os.fork()
        if child == 0:
            try:
                os.close(start)
                os.read(starting, 1)  # closes when all processes are ready
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
        Claim(f"{name}: submitted at once, of {processes}", len(said) - len(failed), "jobs", processes, least=True),
        Claim(f"{name}: jobs stored, each submitted twice with its token", stored, "jobs", processes),
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
    return show("Concurrent submissions", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
