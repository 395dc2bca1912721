"""Which programs certainly start over in each run: no false alarm, whatever a program does to continue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.jobfile.program import saved_state
from orchestrator.model import Setup, TrainSpec

LOOP = """\
import argparse, math, sys
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets

def main(steps=100):
    '''Trains a model. It keeps no checkpoint, so it cannot resume.'''
    loader = DataLoader(datasets.MNIST("data", download=True), batch_size=32)
    model = nn.Linear(2, 2)
    with open("loss.txt", "w") as log:
        for step in range(steps):
            log.write(f"{step}\\n")
    torch.save(model.state_dict(), "model.pt")

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    main()
"""


def train(folder: Path, **changes: object) -> TrainSpec:
    spec = TrainSpec(None, "train.py", {}, str(folder), {}, (), 100, None)
    return replace(spec, **changes)  # type: ignore[arg-type]


def written(folder: Path, text: str, name: str = "train.py") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_a_plain_loop_starts_over_as_a_script_and_as_a_function(tmp_path: Path) -> None:
    written(tmp_path, LOOP)
    assert saved_state.starts_over(train(tmp_path))
    assert saved_state.starts_over(train(tmp_path, script=None, entry="train:main"))


@pytest.mark.parametrize(
    "line",
    [
        "import trainers",
        "from trainers import attach",
        "from trainers.frameworks.lightning import TradewindCallback",
        "import lightning",
        "from transformers import Trainer",
        "import accelerate",
        "import wandb",
        "import unknown_module",
        "import pickle",
        "import sqlite3",
        "import subprocess",
        "import importlib",
        "from torch import load as l",
        "import torch.distributed.checkpoint as dcp",
        "state = torch.load('model.pt')",
        "state = open('state.json')",
        "state = open('state.json', 'r+')",
        "state = open('state.json', mode='rb')",
        "state = open('state.json', sys.argv[1])",
        "state = pathlib.Path('x').open()",
        "state = pathlib.Path('x').read_text()",
        "state = pathlib.Path('x').exists()",
        "state = os.listdir('.')",
        "state = os.path.getsize('log')",
        "model.load_state_dict(state)",
        "state = numpy.fromfile('x')",
        "state = numpy.memmap('x')",
        "folder = os.environ['TRADEWIND_CHECKPOINT_DIR']",
        "parser.add_argument('--resume')",
        "parser.add_argument('--ckpt-dir')",
        "f = getattr(torch, 'lo' + 'ad')",
        "exec('x')",
        "os.system('python other.py')",
        "sys.path.insert(0, '/other')",
        "f = open",
        "resume_from(3)",
    ],
)
def test_a_program_that_may_continue_is_not_called_one_that_starts_over(tmp_path: Path, line: str) -> None:
    written(tmp_path, f"import os, pathlib, numpy\n{LOOP}\ndef more():\n    {line}\n")
    assert not saved_state.starts_over(train(tmp_path))


@pytest.mark.parametrize(
    ("importing", "name"),
    [
        ("import helper", "helper.py"),
        ("from helper import save", "helper.py"),
        ("import pack.helper", "pack/helper.py"),
        ("from pack import helper", "pack/helper.py"),
        ("from pack.helper import save", "pack/helper.py"),
        ("import tqdm", "tqdm.py"),
        ("import pack", "pack/__init__.py"),
    ],
)
def test_the_local_modules_that_it_imports_count(tmp_path: Path, importing: str, name: str) -> None:
    written(tmp_path, f"{importing}\n{LOOP}")
    written(tmp_path, "import torch\ndef save(): torch.save({}, 'x')\n", name)
    assert saved_state.starts_over(train(tmp_path))
    written(tmp_path, "import torch\ndef state(): return torch.load('x')\n", name)
    assert not saved_state.starts_over(train(tmp_path))


def test_relative_imports_and_modules_that_import_one_another(tmp_path: Path) -> None:
    written(tmp_path, "", "pack/__init__.py")
    written(tmp_path, f"from . import one\nfrom .two import b\nfrom .. import three\n{LOOP}", "pack/inner/main.py")
    written(tmp_path, "", "pack/inner/__init__.py")
    written(tmp_path, "from pack.inner import two\n", "pack/inner/one.py")
    written(tmp_path, "from pack.inner import one\nb = 1\n", "pack/inner/two.py")
    written(tmp_path, "c = 1\n", "pack/three.py")
    spec = train(tmp_path, script=None, entry="pack.inner.main:main")
    assert saved_state.starts_over(spec)
    written(tmp_path, "import trainers\n", "pack/three.py")
    assert not saved_state.starts_over(spec)


def test_what_cannot_be_known_is_not_said(tmp_path: Path) -> None:
    assert not saved_state.starts_over(train(tmp_path))  # no file
    written(tmp_path, "def main(): pass\n")
    assert not saved_state.starts_over(train(tmp_path))  # no loop
    written(tmp_path, "for (\n")
    assert not saved_state.starts_over(train(tmp_path))
    written(tmp_path, LOOP, "train.sh")
    assert not saved_state.starts_over(train(tmp_path, script="train.sh"))
    written(tmp_path, LOOP)
    assert not saved_state.starts_over(train(tmp_path, setup=Setup("make")))
    assert not saved_state.starts_over(train(tmp_path, env={"PYTHONPATH": "other"}))
    assert not saved_state.starts_over(train(tmp_path, script=None, entry="installed.module:main"))
    written(tmp_path, f"from pack.missing import x\n{LOOP}")
    written(tmp_path, "", "pack/__init__.py")
    assert not saved_state.starts_over(train(tmp_path))


def test_no_example_is_called_a_program_that_starts_over() -> None:
    root = Path(__file__).parents[3] / "examples"
    for file in root.rglob("*.py"):
        assert not saved_state.starts_over(train(file.parent, script=file.name)), file
