"""Job files: all that is right becomes a JobSpec, and any text or mapping is either that or a list of problems."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import SpecError
from orchestrator.jobfile import job_from_mapping, load_job, parse_job
from orchestrator.model import (
    CHEAPEST,
    FASTEST,
    CheckpointSpec,
    DataSource,
    GpuRequest,
    JobSpec,
    Objective,
    OutputSpec,
    Reproducible,
    Resources,
    Setup,
    TrainSpec,
    Where,
)
from providers.offer import CapacityType
from tests.unit.jobfile.conftest import one_problem, problems_of


def test_the_whole_job_file_becomes_a_spec(folder: Path, whole: str) -> None:
    (folder / "job.yaml").write_text(whole)
    assert load_job(folder / "job.yaml") == JobSpec(
        name="gpt-small",
        train=TrainSpec(
            entry="train:main",
            script=None,
            args={"layers": 4, "lr": 0.0003},
            workdir=str(folder),
            env={"HF_HOME": "/data/hf"},
            secrets=("WANDB_API_KEY",),
            steps=20000,
            epochs=None,
        ),
        project="research",
        labels={"cost-center": "ml-42"},
        data=(DataSource("s3://bucket/set", "/data", 120 * 10**9),),
        outputs=(OutputSpec("runs/", "best"),),
        resources=Resources((GpuRequest("H100", 8), GpuRequest("A100-80GB", 8)), None, None, 64 * 10**9, 1),
        objective=CHEAPEST,
        deadline_s=172_800.0,
        deadline_at_ms=None,
        budget_nano_usd=250 * 10**9,
        capacity=(CapacityType.SPOT, CapacityType.ON_DEMAND),
        where=Where(("aws", "gcp"), ("eu-*",)),
        checkpoint=CheckpointSpec("s3://bucket/ck", 3, max_overhead=0.035, max_upload_bytes_per_s=50_000_000),
        reproducible=Reproducible(1, True, 0),
        standby="none",
        probe=True,
        retries=5,
        max_duration_s=259_200.0,
        precision="bf16",
        sharding="fsdp",
    )


def test_the_least_job_has_the_defaults_of_the_model(folder: Path) -> None:
    spec = parse_job("name: x\ntrain: {script: train.py}\n", folder / "job.yaml")
    assert spec == JobSpec("x", TrainSpec(None, "train.py", {}, str(folder), {}, (), None, None))


def test_a_length_may_be_given_twice_if_it_is_the_same(folder: Path) -> None:
    text = "name: x\ntrain: {entry: 'train:main', steps: 5, args: {steps: 5, epochs: 2}}\n"
    assert parse_job(text, folder / "job.yaml").train.args == {"steps": 5, "epochs": 2}


def test_yaml_and_python_give_the_same_spec(folder: Path) -> None:
    mapping = {
        "name": "x",
        "train": {"entry": "train:main", "epochs": 3, "workdir": folder},
        "resources": {"gpu": ("T4",)},
        "capacity": (CapacityType.SPOT,),
        "budget": 3,
    }
    text = "name: x\ntrain: {entry: 'train:main', epochs: 3}\nresources: {gpu: T4}\ncapacity: spot\nbudget: $3\n"
    assert job_from_mapping(mapping, "/") == parse_job(text, folder / "job.yaml")


@pytest.mark.parametrize(
    ("written", "objective"),
    [("fastest", FASTEST), ("{cost: 7, time: 3}", Objective(0.7, 0.3)), ("{cost: 1, time: 0}", CHEAPEST)],
)
def test_objectives_are_weights_that_sum_to_one(folder: Path, written: str, objective: Objective) -> None:
    text = f"name: x\ntrain: {{script: train.py}}\nobjective: {written}\n"
    assert parse_job(text, folder / "job.yaml").objective == objective


def test_aliases_that_blow_up_are_stopped(folder: Path) -> None:
    rows = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefg", "bcdefgh", strict=True):
        rows.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    assert any("too large" in problem.message for problem in problems_of("\n".join(rows), folder))


def test_aliases_are_values(folder: Path) -> None:
    text = "name: &n x\nproject: *n\ntrain: {script: train.py}\n"
    assert parse_job(text, folder / "job.yaml").project == "x"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("3e-4", 0.0003),
        ("1.5", 1.5),
        ("010", 10),
        ("0x10", 16),
        ("-3", -3),
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2030-01-31", "2030-01-31"),
        ("1_000", "1_000"),
        ("True", True),
        ("~", None),
        ("'5'", "5"),
        ("[1, a, null]", [1, "a", None]),
    ],
)
def test_plain_scalars_follow_yaml_1_2(folder: Path, written: str, value: object) -> None:
    text = f"name: x\ntrain: {{script: train.py, args: {{a: {written}}}}}\n"
    assert parse_job(text, folder / "job.yaml").train.args["a"] == value


def test_a_list_of_arguments_is_the_very_words_of_the_file(folder: Path) -> None:
    text = "name: x\ntrain:\n  script: train.py\n  args: [fit, -b, 010, --lr, 3e-4, --amp, true, '', 'two words']\n"
    train = parse_job(text, folder / "job.yaml").train
    assert train.argv == ("fit", "-b", "010", "--lr", "3e-4", "--amp", "true", "", "two words")
    assert train.args == {}
    mapping = {"name": "x", "train": {"script": "train.py", "args": ["fit", 8, 0.5]}}
    assert job_from_mapping(mapping, folder).train.argv == ("fit", "8", "0.5")


def test_what_a_job_needs_on_its_machine(folder: Path) -> None:
    (folder / "requirements.txt").touch()
    train = {"entry": "later:main", "steps": 5, "requirements": "requirements.txt", "python": "3.12"}
    spec = job_from_mapping({"name": "x", "train": train}, folder)  # `later` may come with the requirements
    assert spec.train.setup == Setup(requirement_files=("requirements.txt",), python="3.12")
    spec = job_from_mapping({"name": "x", "train": {**train, "requirements": ["tqdm>=4"], "setup": "make"}}, folder)
    assert spec.train.setup == Setup("make", ("tqdm>=4",), (), "3.12")
    assert job_from_mapping({"name": "x", "train": {"script": "train.py"}}, folder).train.setup is None
    assert one_problem("setup: pip install x", folder).hint.startswith('it belongs in train, such as "train: {setup: ')


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"name: x\nproject: caf\xe9\n")
    for path, place, message in (
        (tmp_path / "none.yaml", "none.yaml:", "cannot be read: No such file"),
        (tmp_path, f"{tmp_path.name}:", "cannot be read: Is a directory"),
        (latin, "latin.yaml:2:13:", "is not UTF-8 text"),
    ):
        with pytest.raises(SpecError) as caught:
            load_job(path)
        assert f"{place} {message}" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("trian.yaml", 'did you mean "train.yaml"?'),
        ("train.yml", 'did you mean "train.yaml"?'),
        ("train", 'did you mean "train.yaml"?'),
        ("sweep.yaml", "check the path"),
        ("none/train.yaml", "check the path"),
    ],
)
def test_a_file_that_does_not_exist_may_have_a_similar_name(tmp_path: Path, given: str, hint: str) -> None:
    for name in ("train.yaml", "group.yml", "train.py"):
        (tmp_path / name).write_text("")
    with pytest.raises(SpecError) as caught:
        load_job(tmp_path / given)
    assert [problem.hint for problem in caught.value.problems] == [hint]


def test_problems_of_a_mapping_have_no_line(folder: Path) -> None:
    loop: dict[str, Any] = {"name": "x", "train": {"script": "train.py"}}
    loop["labels"] = loop
    cases: tuple[tuple[dict[Any, Any], str], ...] = (
        ({"name": "x"}, "job: train: is required"),
        ({"name": object(), "train": {"script": "train.py"}}, "job: name: a job file cannot hold object"),
        ({"name": "x", "train": {"script": "train.py"}, 5: 6}, "the key 5 must be text"),
        ({"name": "x", "train": {"script": "train.py", "args": {"a": 2**64}}}, "is too large a number"),
        ({"name": "x", "train": {"script": "train.py", "args": {"a": math.nan}}}, "must be a finite number"),
        (loop, "nested too deeply"),
    )
    for mapping, message in cases:
        with pytest.raises(SpecError) as caught:
            job_from_mapping(mapping, folder)
        assert message in str(caught.value)


NAMES = """
name project labels train data outputs resources objective deadline budget capacity where checkpoint standby probe
precision sharding retries entry script args env secrets steps gpu gpu_memory cost time source mount path keep
"""
FIELDS = st.sampled_from(NAMES.split())
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=3),
    st.sampled_from(["48h", "40 GB..", "H100:8", "250 USD", "3.5%", "cheapest", "train:main", "2030-01-31T18:00:00Z"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(FIELDS, st.text(max_size=4)), inner, max_size=5)
    ),
    max_leaves=25,
)
MAPPINGS = st.dictionaries(st.one_of(FIELDS, st.integers()), VALUES, max_size=8)


def can_be_shown(error: SpecError, *, in_text: bool = False) -> None:
    assert str(error).encode()
    assert error.problems
    assert all((problem.line > 0 and problem.column > 0) is in_text for problem in error.problems)


ANY_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@ANY_FOLDER
@given(MAPPINGS)
def test_any_mapping_is_a_job_or_a_spec_error_that_can_be_printed(folder: Path, mapping: dict[Any, Any]) -> None:
    try:
        assert isinstance(job_from_mapping(mapping, folder, submitting=True), JobSpec)
    except SpecError as error:
        can_be_shown(error)


YAMLISH = st.lists(
    st.one_of(
        FIELDS.map(lambda name: f"{name}: "),
        st.sampled_from(
            ["\n", "\n  ", "- ", "{", "}", "[", "]", ", ", ": ", "&a ", "*a", "!!int ", '"', "'", "|\n", "? "]
        ),
        st.text(max_size=3),
        st.sampled_from(["48h", "5", "1e999", "~", "%YAML 1.1\n---\n", "#", "<<: ", "\\x", "\t"]),
    ),
    max_size=30,
).map("".join)


@ANY_FOLDER
@given(YAMLISH)
def test_any_text_is_a_job_or_a_spec_error_with_places(folder: Path, text: str) -> None:
    try:
        assert isinstance(parse_job(text, folder / "job.yaml"), JobSpec)
    except SpecError as error:
        can_be_shown(error, in_text=True)
