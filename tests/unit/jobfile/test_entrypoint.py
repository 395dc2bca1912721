"""The job's code is found without running any of it."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

from orchestrator.jobfile.program.entrypoint import _LOADED_BY_NONE, entry_problem, script_problem

CODE = """
from os.path import join as glue
import json
other = lambda: 0
if True:
    def inside(): pass
try:
    import fast
except ImportError:
    def slow(): pass
def main(): pass
class Trainer: pass
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(CODE)
    (tmp_path / "starred.py").write_text("from os.path import *\n")
    (tmp_path / "broken.py").write_text("x = 1\ndef main(:\n")
    (tmp_path / "nul.py").write_bytes(b"x = '\0'\n")
    (tmp_path / "warns.py").write_text("x = '\\d'\ndef main(): pass\n")
    package = tmp_path / "package" / "inner"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def main(): pass\n")
    (package / "loop.py").write_text("def main(): pass\n")
    return tmp_path


@pytest.mark.parametrize(
    "entry",
    [
        "train:main",
        "train:glue",
        "train:json",
        "train:other",
        "train:inside",
        "train:slow",
        "train:Trainer",
        "starred:join",
        "warns:main",
        "package.inner:main",
        "package.inner.loop:main",
        "json.decoder:JSONDecoder",
        "sys:exit",
    ],
)
def test_code_that_is_there_is_found(code: Path, entry: str) -> None:
    assert entry_problem(entry, str(code)) is None


@pytest.mark.parametrize(
    ("entry", "message", "hint"),
    [
        ("train:mian", 'train.py defines no "mian"', 'did you mean "main"?'),
        ("train:zzz", 'train.py defines no "zzz"', "it defines main"),
        ("train:jsom", 'train.py defines no "jsom"', "it defines main"),  # json is a module, not a function
        ("warns:zzz", 'warns.py defines no "zzz"', "it defines main"),
        ("trian:main", 'there is no module "trian"', 'did you mean "train"?'),
        ("zzz.yyy:main", 'there is no module "zzz.yyy"', "yyy.py, or set train.workdir"),
        ("json.zzz:main", 'there is no module "json.zzz"', "create"),
        ("sys.zzz:main", 'there is no module "sys.zzz"', "create"),
        ("__main__:main", 'there is no module "__main__"', ""),
        ("broken:main", "broken.py:2: ", "correct the file"),
        ("nul:main", "nul.py", "correct the file"),
    ],
)
def test_missing_code_is_reported_with_the_remedy(code: Path, entry: str, message: str, hint: str) -> None:
    if entry.startswith("__main__"):
        sys.modules["__main__"].__spec__ = None
    problem = entry_problem(entry, str(code))
    assert problem is not None
    assert message in problem[0]
    assert hint in problem[1]


def test_no_module_is_imported_to_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "lib" / "explosive"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('was imported')\n")
    (package / "train.py").write_text("def main(): pass\nraise RuntimeError('was imported')\n")
    monkeypatch.syspath_prepend(tmp_path / "lib")
    assert entry_problem("explosive.train:main", str(tmp_path)) is None
    assert "explosive" not in sys.modules


def test_a_script_must_be_a_file_below_the_folder(code: Path) -> None:
    assert script_problem("train.py", str(code)) is None
    assert script_problem("./package/../train.py", str(code)) is None
    for script, message, hint in (
        ("trian.py", "there is no file", 'did you mean "train.py"?'),
        ("none/zzz.py", "there is no file", "create it"),
        ("package", "there is no file", "create it"),
        ("../train.py", "must be inside train.workdir", str(code)),
        ("/etc/hostname", "must be inside train.workdir", str(code)),
    ):
        problem = script_problem(script, str(code))
        assert problem is not None
        assert message in problem[0]
        assert hint in problem[1]


def test_links_that_lead_nowhere_beside_a_misspelt_script_are_no_candidates(code: Path) -> None:
    (code / "train1.py").symlink_to("train1.py")
    (code / "train2.py").symlink_to("nowhere.py")
    problem = script_problem("train3.py", str(code))
    assert problem is not None
    assert 'did you mean "train.py"?' in problem[1]


@pytest.mark.parametrize(
    ("module", "file", "owner"),
    [
        ("numbers", "numbers.py", "Python"),
        ("queue.job", "queue/job.py", "Python"),
        ("statistics", "statistics.py", "Python"),
        ("trainers", "trainers.py", "Tradewind"),
        ("torch.job", "torch/job.py", "PyTorch"),
    ],
)
def test_a_module_of_the_name_of_one_that_is_loaded_anyway_is_refused(
    tmp_path: Path, module: str, file: str, owner: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("def main(): pass\n")
    first = module.partition(".")[0]
    assert entry_problem(f"{module}:main", str(tmp_path)) == (
        f'"{first}" is also a module of {owner}, and only one of the two can be loaded: {path}',
        "rename yours",
    )


@pytest.mark.parametrize("name", ["test", "trace", "sched", "this"])
def test_a_module_of_the_name_of_one_that_nothing_loads_is_accepted(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("def main(): pass\n")
    assert entry_problem(f"{name}:main", str(tmp_path)) is None


def test_nothing_that_a_job_runs_with_loads_a_module_whose_name_a_job_may_have() -> None:
    """Their sources are searched, because some modules are only imported when they are needed."""
    names = "|".join(sorted(_LOADED_BY_NONE))
    line = rf"^\s*(?:import\s+(?:{names})\b|from\s+(?:{names})(?:\.\w+)*\s+import\b)"
    imported, packages = re.compile(line.encode(), re.MULTILINE), []
    for package in ("trainers", "torch", "numpy", "ray"):
        spec = find_spec(package)
        assert spec is not None
        packages += [Path(each) for each in spec.submodule_search_locations or ()]
    python = Path(sysconfig.get_path("stdlib"))
    skipped = {"site-packages", "dist-packages", "test", "tests", "idlelib", "turtledemo", "lib2to3", "__pycache__"}
    found = []
    for root in (python, *packages):
        for folder, folders, files in os.walk(root):
            folders[:] = [each for each in folders if each not in skipped]
            for name in files:
                path = Path(folder, name)
                if path.suffix == ".py" and imported.search(path.read_bytes()):
                    found.append(path)
    for_its_own_tests = python / "multiprocessing" / "util.py"
    themselves = {python / f"{name}.py" for name in _LOADED_BY_NONE}
    assert set(found) - themselves <= {for_its_own_tests}
