"""What `trainers` exports and what importing it costs; the examples and what they are made of."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import trainers
import trainers.data
import trainers.models
from trainers.data.images import CLASSES, Shapes
from trainers.data.text import VOCABULARY, CharacterWindows, standard_library_text
from trainers.models import GPT, LSTM, ConvNet

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("package", [trainers, trainers.data, trainers.models])
def test_exports_are_sorted_and_exist(package):
    assert list(package.__all__) == sorted(package.__all__, key=lambda name: (not name.isupper(), name))
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing


def test_importing_the_light_part_loads_nothing_heavy():
    light = "trainers, trainers.spec, trainers.control, trainers.checkpoint.store, trainers.runner, trainers.models"
    heavy = "{'torch', 'numpy', 'ray', 'sqlalchemy', 'typer', 'xxhash', 'boto3', 'orchestrator', 'providers'}"
    code = f"import sys, {light}, trainers.data; print(sorted({heavy} & sys.modules.keys()))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_the_text_is_the_standard_librarys_and_always_the_same():
    text = standard_library_text(50_000)
    assert 40_000 < len(text) <= 50_000
    assert text.endswith("\n")
    assert text == standard_library_text(50_000)
    data = CharacterWindows(text, context=16)
    tokens, targets = data[3]
    assert tokens[1:].tolist() == targets[:-1].tolist()
    assert int(torch.stack([data[i][1] for i in range(len(data))]).max()) < VOCABULARY
    assert CharacterWindows("ab\u00e9\u4e00\n" * 9, context=4)[0][0].tolist()[2] == 0
    assert len(CharacterWindows("abc", context=4)) == 0


def test_images_are_a_function_of_seed_and_index():
    data = Shapes(20, seed=1)
    image, kind = data[13]
    assert image.shape == (1, 24, 24)
    assert CLASSES[kind] == "ring"
    assert torch.equal(image, Shapes(100, seed=1)[13][0])
    assert not torch.equal(image, Shapes(20, seed=2)[13][0])
    with pytest.raises(IndexError):
        _ = data[20]


def test_the_models_map_their_inputs_to_logits():
    tokens = torch.zeros(2, 8, dtype=torch.int64)
    assert GPT(50, 8)(tokens).shape == (2, 8, 50)
    assert LSTM(50, layers=2, width=16)(tokens).shape == (2, 8, 50)
    assert ConvNet(8, width=4)(torch.zeros(2, 1, 24, 24)).shape == (2, 8)


def test_a_gpt_sees_no_future():
    model = GPT(50, 8).eval()
    tokens = torch.arange(8)[None]
    changed = tokens.clone()
    changed[0, 5] = 40
    same = (model(tokens) == model(changed)).all(dim=-1)[0]
    assert same.tolist() == [True] * 5 + [False] * 3


@pytest.mark.parametrize("name", ["gpt", "convnet", "lstm"])
def test_an_example_adds_at_most_five_lines_and_runs_without_tradewind(name, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    module.main(steps=2)
    assert (tmp_path / "model.pt").stat().st_size > 1000
    marked = [line for line in (EXAMPLES / f"{name}.py").read_text().splitlines() if "# <-" in line]
    assert len(marked) <= 5
