"""What a job writes about itself, and what a node says of it: any bytes are a checked word or a MalformedMessage."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.engine.machines.reports import report_of
from orchestrator.engine.runtime import RunReport
from trainers import checked_json
from trainers.control import PROGRESS, ControlDirectory, Notice, Progress, QuiesceOrder, Risk
from trainers.errors import MalformedMessage, TrainerError
from trainers.loop.training_loop import Parts, TrainingLoop

FILES = ("progress.json", "lease.json", "quiesce.json", "notice.json", "risk.json")
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just(10**30) | st.just(-1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [field.name for field in dataclasses.fields(Progress)] + [
    "until_monotonic_s",
    "successor",
    "kind",
    "deadline_monotonic_s",
]
ANY_WORDS = st.dictionaries(st.sampled_from(FIELDS), ANY_JSON) | ANY_JSON
ANY_BYTES = st.binary(max_size=60) | ANY_WORDS.map(lambda words: json.dumps(words).encode())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("control")


def ask_everything(control: ControlDirectory) -> list[object]:
    answers: list[object] = []
    for question in (control.progress, control.lease_until, control.quiesce, control.notice, control.risk):
        try:
            answers.append(question())
        except MalformedMessage as error:
            answers.append(error)
    return answers


@given(name=st.sampled_from(FILES), raw=ANY_BYTES)
@settings(max_examples=150, deadline=None)
def test_a_control_file_of_any_bytes_is_read_or_is_malformed(folder: Path, name: str, raw: bytes) -> None:
    (folder / name).write_bytes(raw)
    progress, lease_s, quiesce, notice, risk = ask_everything(ControlDirectory(folder))
    assert isinstance(progress, Progress | MalformedMessage | None)
    assert isinstance(notice, Notice | MalformedMessage | None)
    assert isinstance(quiesce, QuiesceOrder | MalformedMessage | None)
    assert isinstance(risk, Risk | MalformedMessage | None)
    assert isinstance(lease_s, float | MalformedMessage | None)
    if isinstance(progress, Progress):
        assert 0 <= progress.step <= checked_json.LARGEST_COUNT
        assert report_of("run_A", dataclasses.asdict(progress)).state == progress.state


@given(said=ANY_WORDS | st.dictionaries(st.sampled_from([f.name for f in dataclasses.fields(RunReport)]), ANY_JSON))
@settings(max_examples=200, deadline=None)
def test_whatever_a_node_says_is_a_report_that_every_database_can_hold(said: object) -> None:
    report = report_of("run_A", said)
    assert report.run_id == "run_A"
    for name, value in dataclasses.asdict(report).items():
        if type(value) is int and name != "exit_status":
            assert 0 <= value <= 2**53
        if isinstance(value, str):
            assert len(value) <= checked_json.LONGEST_TEXT


def test_every_field_of_a_progress_and_of_a_report_is_checked() -> None:
    assert PROGRESS.keys() == {field.name for field in dataclasses.fields(Progress)}
    reported = {**dataclasses.asdict(Progress()), "silent_s": 0.0, "exit_status": -9, "still_s": 1.0}
    for field in dataclasses.fields(RunReport):
        if field.name != "run_id":
            assert report_of("run_A", {**reported, "state": "training", field.name: [["odd"]]}).state == "malformed"


@pytest.mark.parametrize(
    ("words_said", "why"),
    [
        ({"state": "training", "step": 10**30}, f"step is {10**30}, not a whole number"),
        ({"state": "training", "step": 10**3000}, "step is a number of more than 60 digits, not"),
        ({"state": "training", "step": "s" * 60}, f"step is '{'s' * 60}', not"),
        ({"state": "training", "step": "s" * 61}, "step is a text of 61 characters, not"),
        ({"state": "training", "step": ["s"]}, "step is a list of 1, not"),
        ({"state": "training", "step": {"s": "t"}}, "step is a mapping of 1, not"),
        ({"state": "winning"}, "state is 'winning', not one of absent, silent"),
        ({"state": "training", "step": True}, "step is True"),
        ({"state": "training", "useful_s": float("inf")}, "useful_s is inf"),
        ({"state": "training", "manifest": "../../etc"}, "manifest is '../../etc', not a checkpoint's name"),
        ({"state": "training", "manifest": f"1-{10**30}-1"}, "not a checkpoint's name"),
        ({"step": 3}, "no state"),
        ([], "its report is not an object"),
    ],
)
def test_what_makes_no_sense_is_named(words_said: object, why: str) -> None:
    report = report_of("run_A", words_said)
    assert report.state == "malformed"
    assert why in str(report.error)


def test_a_longer_traceback_keeps_its_end_and_unknown_fields_are_left_out() -> None:
    reported = "line of it\n" * 10**5 + "ValueError: here"
    report = report_of("run_A", {"state": "failed", "error": reported, "of_tomorrow": 1})
    assert report.error is not None
    assert report.error.startswith("line of it\n")  # a part of a secret would not be known as one
    assert report.error.endswith("line of it\nValueError: here")
    assert checked_json.LONGEST_TEXT - 20 < len(report.error) <= checked_json.LONGEST_TEXT
    one_line = report_of("run_A", {"state": "failed", "error": "x" * 10**6})
    assert one_line.error == "(a line of more than 20000 characters)"


def test_a_step_past_a_loaders_length_means_that_nobody_knows_the_end() -> None:
    report = report_of("run_A", {"state": "training", "step": 12, "total_steps": 10})
    assert (report.state, report.step, report.total_steps) == ("training", 12, None)


def test_a_pipe_a_folder_and_a_huge_file_in_place_of_a_control_file_are_malformed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "progress.json")
    (tmp_path / "lease.json").mkdir()
    (tmp_path / "quiesce.json").write_bytes(b"[" * (checked_json.MOST_BYTES + 1))
    (tmp_path / "notice.json").write_bytes(b"[" * 100_000)  # deeper than the parser goes
    (tmp_path / "risk.json").write_text('{"losses_per_h": 1e999, "charge_s": null}')
    assert [type(answer) for answer in ask_everything(ControlDirectory(tmp_path))] == [MalformedMessage] * 5


@pytest.mark.parametrize("steps", [10**19, 0, -5, 2.5, "many", True, float("nan")])
def test_attach_refuses_a_number_of_steps_that_is_none(tmp_path: Path, steps: Any) -> None:
    with pytest.raises(TrainerError, match=r"steps=.* must be a whole number from 1"):
        TrainingLoop(Parts(None, None), steps=steps, epochs=None, seed=0, output_dir=tmp_path)
