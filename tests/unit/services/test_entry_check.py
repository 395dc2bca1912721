"""A function that the source does not settle is loaded here, in a child process, before anything is rented."""

from __future__ import annotations

import os
import select
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.model import JobSpec, TrainSpec
from orchestrator.services.speed import entry_check
from orchestrator.services.speed.entry_check import check_entry

WRAPPED = """
import functools
import pathlib

pathlib.Path(__file__).with_name("imported").touch()


def traced(function):
    @functools.wraps(function)
    def inner(**given):
        return function(**given)

    return inner


@traced
def main(steps, width=64):
    raise AssertionError("it is only called when it is to train")


def plain(steps, width=64):
    raise AssertionError("it is only called when it is to train")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(WRAPPED)
    return tmp_path


def job(folder: Path, entry: str = "train:main", secrets: tuple[str, ...] = (), **args: int) -> JobSpec:
    return JobSpec("small", TrainSpec(entry, None, args, str(folder), {}, secrets, 1000, None))


def program(folder: Path, source: str) -> None:
    (folder / "train.py").write_text(textwrap.dedent(source) + "\nmain = eval('lambda steps: None')\n")


def test_a_decorated_function_that_fits_is_imported_and_not_called(folder: Path) -> None:
    assert check_entry(job(folder, width=8)) is None
    assert (folder / "imported").exists()


def test_where_the_source_settles_it_nothing_is_run(folder: Path) -> None:
    assert check_entry(job(folder, "train:plain")) is None
    assert not (folder / "imported").exists()


def test_arguments_that_do_not_fit_a_decorated_function_are_refused_with_what_it_takes(folder: Path) -> None:
    with pytest.raises(SpecError) as caught:
        check_entry(job(folder, wide=8))
    reported = str(caught.value)
    assert reported == (
        "small: train.entry: train:main cannot be used (nothing was rented):\n"
        "train.args do not fit train:main(steps, width=64): got an unexpected keyword argument 'wide' "
        "(correct train.args)"
    )


TYPED = """
from __future__ import annotations
import functools
from pathlib import Path
from typing import Literal

def main(steps: int, lr: float = 0.1, layers: list[int] = (), mode: Literal["a", "b"] = "a", to: Path | None = None,
         seed: int = None): ...

class Trainer:
    def __init__(self, steps: int, lr: float = 0.1): ...

@functools.wraps(main)
def converts(**given): ...

def broken(steps: int, lr: nowhere.Type = 1, width: int = 3): ...
"""


@pytest.mark.parametrize(
    ("entry", "args", "expected"),
    [
        ("train:main", {"lr": "fast"}, [("train.args.lr", "is 'fast', but train:main takes a number")]),
        ("train:main", {"layers": ["a"]}, [("train.args.layers", "is ['a'], but train:main takes a list (list[int])")]),
        ("train:main", {"mode": "c"}, [("train.args.mode", "is 'c', but train:main takes 'a' or 'b'")]),
        (
            "train:main",
            {"seed": "x", "lr": None},
            [
                ("train.args.seed", "is 'x', but train:main takes a whole number or null"),
                ("train.args.lr", "is None, but train:main takes a number"),
            ],
        ),
        ("train:Trainer", {"lr": []}, [("train.args.lr", "is [], but train:Trainer takes a number")]),
        ("train:small", {"lr": []}, [("train.args.lr", "is [], but train:small takes a number")]),
    ],
)
def test_values_that_an_imported_function_does_not_take_are_named_as_those_of_a_source_are(
    folder: Path, entry: str, args: dict[str, object], expected: list[tuple[str, str]]
) -> None:
    (folder / "impl.py").write_text(TYPED)
    (folder / "train.py").write_text(
        "from functools import partial\nfrom impl import Trainer, main\nsmall = partial(main, layers=[1])\n"
    )
    with pytest.raises(SpecError) as caught:
        check_entry(job(folder, entry, **args))  # type: ignore[arg-type]
    assert [(each.field, each.message) for each in caught.value.problems] == expected


@pytest.mark.parametrize(
    ("entry", "args"),
    [
        ("train:main", {"lr": 1, "layers": [1, 2], "mode": "b", "to": "folder", "seed": None}),
        ("train:converts", {"lr": "0.1"}),
        ("train:Model", {"lr": "0.1"}),
        ("train:broken", {"lr": "0.1", "width": 3}),
    ],
)
def test_what_an_imported_function_takes_or_may_convert_is_let_pass(
    folder: Path, entry: str, args: dict[str, object]
) -> None:
    (folder / "impl.py").write_text(TYPED)
    (folder / "train.py").write_text(
        "from impl import broken, converts, main\n"
        "class Meta(type):\n    def __call__(cls, **given): return None\n"
        "class Model(metaclass=Meta):\n    def __init__(self, lr: float = 1): ...\n"
    )
    assert check_entry(job(folder, entry, **args)) is None  # type: ignore[arg-type]


def test_a_module_that_calls_something_else_a_list_is_not_taken_at_its_word(folder: Path) -> None:
    (folder / "impl.py").write_text("class list(dict): ...\n\ndef main(steps, layers: list[int]): ...")
    (folder / "train.py").write_text("from impl import main\n")
    assert check_entry(job(folder, layers=3)) is None


def test_an_import_error_is_shown_with_its_traceback(folder: Path) -> None:
    program(folder, "import transformres")
    with pytest.raises(SpecError, match="ModuleNotFoundError: No module named 'transformres'") as caught:
        check_entry(job(folder))
    assert f'File "{folder}/train.py", line 1, in <module>' in str(caught.value)
    assert "process/entry_check.py" not in str(caught.value)


def test_a_module_that_it_takes_its_function_from_and_that_lacks_it_is_shown(folder: Path) -> None:
    (folder / "train.py").write_text("from other import *\n")
    (folder / "other.py").write_text("def mian(): ...\n")
    with pytest.raises(SpecError, match="has no function main"):
        check_entry(job(folder))


def test_an_error_that_may_be_this_machines_alone_keeps_no_job_back(folder: Path) -> None:
    program(folder, "raise RuntimeError('no CUDA device')")
    assert check_entry(job(folder)) == "train:main was not checked here: RuntimeError: no CUDA device"


def test_a_module_that_takes_all_memory_or_ends_the_process_keeps_no_job_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_check, "memory_limit_bytes", lambda: 256 << 20)
    program(folder, "kept = bytearray(1 << 30)")
    assert check_entry(job(folder)) == "train:main was not checked here: MemoryError"
    program(folder, "import os; os._exit(0)")
    assert check_entry(job(folder)) == "train:main was not checked here: its modules ended the process"


def test_a_module_that_never_ends_is_ended_with_all_that_it_started(folder: Path) -> None:
    program(
        folder,
        """
        import pathlib, subprocess, threading
        child = subprocess.Popen(["sleep", "1000"])
        pathlib.Path(__file__).with_name("child").write_text(str(child.pid))
        threading.Event().wait()
        """,
    )
    reported = check_entry(job(folder), timeout_s=5)
    assert reported == "train:main was not checked here: importing it takes longer than 5 s"
    with suppress(ProcessLookupError):  # gone already
        end = os.pidfd_open(int((folder / "child").read_text()))
        try:
            assert select.select([end], [], [], 30)[0], "what the module started lives on"
        finally:
            os.close(end)


def test_what_its_modules_print_and_say_of_secrets_is_not_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTRY_TOKEN", "correct horse battery")
    program(folder, "import os\nprint('x' * 10_000_000)\nraise ImportError('no ' + os.environ['ENTRY_TOKEN'])")
    with pytest.raises(SpecError, match=r"ImportError: no \[secret ENTRY_TOKEN\]"):
        check_entry(job(folder, secrets=("ENTRY_TOKEN",)))
