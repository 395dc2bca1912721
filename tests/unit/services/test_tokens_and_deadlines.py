"""The same file with the same token is the same submission, whenever it comes again: before, after and at deadlines."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator import Caller, Client, SpecError
from orchestrator.installation import Installation
from providers.clock import VirtualClock

HOUR_S = 3600.0
JOB = """\
train: {entry: "train:main", steps: 500}
resources: {gpu: [V100]}
expected: {gpu: V100, steps_per_s: 4.5}
"""


def at(clock: VirtualClock, after_s: float) -> str:
    return f"'{datetime.fromtimestamp(clock.now_ms() / 1000 + after_s, UTC).isoformat()}'"


@pytest.fixture
def client(installation: Installation) -> Client:
    return Client.over(installation, Caller("ann"))


def files(folder: Path, own: str, whole: str) -> tuple[Path, Path]:
    """A job file with a deadline, and a group file whose job has that one and whose group has the other."""
    (folder / "train.py").write_text("def main(**given):\n    pass\n")
    job, group = folder / "job.yaml", folder / "group.yaml"
    job.write_text(f"name: a\ndeadline: {own}\n{JOB}")
    group.write_text(f"group: g\ndeadline: {whole}\njobs:\n  - file: job.yaml\n")
    return job, group


def test_which_deadline_is_nearer_may_change(client: Client, clock: VirtualClock, tmp_path: Path) -> None:
    _, group = files(tmp_path, at(clock, HOUR_S + 25), "1h")
    first = client.groups.submit(group, token="once")
    assert first.jobs[0].deadline_at_ms == clock.now_ms() + HOUR_S * 1000
    clock.advance(27)
    assert client.groups.submit(group, token="once").id == first.id
    later = client.groups.submit(group)
    assert later.jobs[0].deadline_at_ms == clock.now_ms() + (HOUR_S - 2) * 1000


def test_a_deadline_that_has_passed_is_that_of_the_earlier_submission(
    client: Client, clock: VirtualClock, tmp_path: Path
) -> None:
    job, group = files(tmp_path, at(clock, 3 * HOUR_S), at(clock, 2 * HOUR_S))
    one, several = client.jobs.submit(job, token="one").id, client.groups.submit(group, token="several").id
    clock.advance(4 * HOUR_S)
    assert client.jobs.submit(job, token="one").id == one
    assert client.groups.submit(group, token="several").id == several
    now = re.escape(at(clock, 0).strip("'").replace("+00:00", "Z"))
    for submit in (client.jobs.submit, client.groups.submit):
        path = job if submit == client.jobs.submit else group
        with pytest.raises(SpecError, match=f"is in the past: it is {now} in market time"):
            submit(path, token="another")
        with pytest.raises(SpecError, match="is in the past"):
            submit(path)


def test_the_nearest_of_both_deadlines_counts(client: Client, clock: VirtualClock, tmp_path: Path) -> None:
    for own, whole, hours in (("3h", "2h", 2), ("2h", "3h", 2), (at(clock, 2 * HOUR_S), "3h", 2), ("3h", "4h", 3)):
        _, group = files(tmp_path, own, whole)
        assert client.groups.submit(group).jobs[0].deadline_at_ms == clock.now_ms() + hours * HOUR_S * 1000
