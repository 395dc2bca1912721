"""What the job gives to its function is checked against the source of that, without importing it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import SpecError
from orchestrator.jobfile import load_job
from orchestrator.jobfile.program.arguments import misfit, misfits


def found(source: str, args: dict[str, object], **length: int) -> list[tuple[str | None, str]]:
    problems = list(misfits(ast.parse(source), "train:main", {"args": args, **length}))
    assert all(each.hint for each in problems)
    return [(each.name, each.message.replace("train:main", "it")) for each in problems]


@pytest.mark.parametrize(
    ("source", "args", "expected"),
    [
        ("def main(lr): ...", {"lr": 1, "layer": 2}, [("layer", "it has no such argument")]),
        ("def main(lr): ...", {}, [(None, 'it needs "lr"')]),
        ("def main(*, lr): ...", {}, [(None, 'it needs "lr"')]),
        ("def main(lr, /): ...", {"lr": 1}, [("lr", "it has no such argument")]),
        ("def main(data, /): ...", {}, [(None, 'it needs "data"')]),
        ("async def main(lr): ...", {}, [(None, 'it needs "lr"')]),
        ("class main:\n def __init__(self, lr): ...", {}, [(None, 'it needs "lr"')]),
        (
            "class main:\n def __init__(self, lr): ...",
            {"self": 1, "lr": 2},
            [("self", "it has no such argument")],
        ),
        ("def main(n: int): ...", {"n": "5"}, [("n", "is '5', but it takes a whole number")]),
        ("def main(n: int): ...", {"n": 5.5}, [("n", "is 5.5, but it takes a whole number")]),
        ("def main(x: float): ...", {"x": "3e-4"}, [("x", "is '3e-4', but it takes a number")]),
        ("def main(x: 'float | None'): ...", {"x": "a"}, [("x", "is 'a', but it takes a number or null")]),
        ("def main(x: Optional[int]): ...", {"x": []}, [("x", "is [], but it takes a whole number or null")]),
        (
            "def main(x: t.Union[int, str]): ...",
            {"x": {}},
            [("x", "is {}, but it takes a whole number or text")],
        ),
        ("def main(x: list[int]): ...", {"x": 1}, [("x", "is 1, but it takes a list (list[int])")]),
        ("def main(x: bool): ...", {"x": 1}, [("x", "is 1, but it takes true or false")]),
        ("def main(x: str): ...", {"x": None}, [("x", "is None, but it takes text")]),
        (
            "def main(x: dict[str, int] = {}): ...",
            {"x": [1]},
            [("x", "is [1], but it takes a mapping (dict[str, int])")],
        ),
        (
            "def main(x: list[int]): ...",
            {"x": [1, "2"]},
            [("x", "is [1, '2'], but it takes a list (list[int])")],
        ),
        ("def main(x: t.List['int']): ...", {"x": [1.5]}, [("x", "is [1.5], but it takes a list (t.List['int'])")]),
        (
            "def main(x: Sequence[float] | None): ...",
            {"x": ["a"]},
            [("x", "is ['a'], but it takes a list (Sequence[float]) or null")],
        ),
        (
            "def main(x: tuple[float, float]): ...",
            {"x": [0.9]},
            [("x", "is [0.9], but it takes a list (tuple[float, float])")],
        ),
        ("def main(x: tuple[int, ...]): ...", {"x": ["a"]}, [("x", "is ['a'], but it takes a list (tuple[int, ...])")]),
        (
            "def main(x: dict[str, float]): ...",
            {"x": {"a": "b"}},
            [("x", "is {'a': 'b'}, but it takes a mapping (dict[str, float])")],
        ),
        ("def main(x: Literal['a', 1]): ...", {"x": "b"}, [("x", "is 'b', but it takes 'a' or 1")]),
        ("def main(x: Literal[1]): ...", {"x": True}, [("x", "is True, but it takes 1")]),
        ("def main(x: Annotated[int, 5]): ...", {"x": "b"}, [("x", "is 'b', but it takes a whole number")]),
    ],
)
def test_what_does_not_fit_is_reported(source: str, args: dict[str, object], expected: list[tuple[str, str]]) -> None:
    assert found(source, args, steps=5)[: len(expected)] == expected


@pytest.mark.parametrize(
    ("source", "args"),
    [
        ("def main(steps, lr=1): ...", {}),
        ("def main(steps: int = 3, *, epochs=2): ...", {}),
        ("def main(*rest, lr=1): ...", {"lr": 2}),
        ("def main(**anything): ...", {"lr": 2, "deep": {"a": 1}}),
        ("def main(lr, /, **anything): ...", {"other": 2, "lr": 1})
        if False
        else ("def main(a, **b): ...", {"a": 1, "c": 2}),
        ("def main(x: int = None): ...", {"x": None}),
        ("def main(x: float): ...", {"x": 3}),
        ("def main(x: int): ...", {"x": True}),
        ("def main(x: Path): ...", {"x": "folder"}),
        ("def main(x: int | Path): ...", {"x": "folder"}),
        ("def main(x: Literal['a']): ...", {"x": "a"}),
        ("def main(x: Literal[MODE, 'a']): ...", {"x": "b"}),
        ("def main(x: Annotated[Path, 5]): ...", {"x": "b"}),
        ("def main(x: list[Path]): ...", {"x": ["b"]}),
        ("def main(x: list[float]): ...", {"x": [1, 2.5]}),
        ("def main(x: tuple[float, float]): ...", {"x": [1, 2.5]}),
        ("def main(x: tuple[int, ...]): ...", {"x": []}),
        ("def main(x: dict[str, list]): ...", {"x": {"a": [1]}}),
        ("class list: ...\ndef main(x: list[int]): ...", {"x": "b"}),
        ("def main(x: int[3]): ...", {"x": "b"}),
        ("def main(x: list[f()]): ...", {"x": [1]}),
        *((f"def main(x: {outer}[()]): ...", {"x": 3}) for outer in ("tuple", "list", "dict", "Optional", "Literal")),
        ("def main(x: 'not [python'): ...", {"x": "b"}),
        ("class int: ...\ndef main(x: int): ...", {"x": "b"}),
        (f"def main(x: {' | '.join(['int'] * 900)}): ...", {"x": "b"}),
        ("def main(x: some.int): ...", {"x": "b"}),
        ("@wrapped\ndef main(lr): ...", {"other": 2}),
        ("@dataclass\nclass main:\n lr: int", {"lr": "2"}),
        ("class main(Base): ...", {"lr": "2"}),
        ("class main(metaclass=M):\n def __init__(self): ...", {"lr": 2}),
        ("class main:\n def __new__(cls, lr): ...\n def __init__(self): ...", {"lr": 2}),
        ("def main(): ...\nmain = wrapped(main)", {"lr": 2}),
        ("if gpu:\n def main(): ...\nelse:\n def main(lr): ...", {"lr": 2}),
        ("def main(): ...\ndef main(lr): ...", {"lr": 2}),
        ("from elsewhere import main", {"lr": 2}),
        ("main = lambda: 0", {"lr": 2}),
    ],
)
def test_what_fits_and_what_the_source_does_not_settle_is_let_pass(source: str, args: dict[str, object]) -> None:
    assert found(source, args, steps=5) == []


NAMES = st.sampled_from(
    (
        *("int", "float", "str", "bool", "None", "list", "t.List", "tuple", "dict", "Mapping", "Optional", "Union"),
        *("Literal", "Annotated", "Path", "x.int", "'a'", "1", "...", "()", "f()"),
    )
)
ANNOTATIONS = st.recursive(
    NAMES,
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3).map(" | ".join)
        | st.builds(lambda outer, of: f"{outer}[{', '.join(of)}]", NAMES, st.lists(inner, min_size=1, max_size=3))
    ),
    max_leaves=8,
)
VALUES = st.sampled_from([1, 1.5, "a", True, None, [], [1], ["a"], {}, {"a": 1}, {"a": "b"}])


@given(ANNOTATIONS, VALUES)
def test_law_no_annotation_is_too_odd_to_be_read(annotation: str, value: object) -> None:
    assert isinstance(misfit(annotation, value), str)


def test_without_a_length_in_the_job_the_function_must_be_given_it() -> None:
    assert found("def main(steps): ...", {}, epochs=3) == [(None, 'it needs "steps"')]


def test_a_job_file_names_the_line_of_the_argument(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "raise RuntimeError('was imported')\ndef main(steps, data, lr: float = 1.0): ...\n"
    )
    text = "name: x\ntrain:\n  entry: train:main\n  steps: 5\n  args:\n    lr: fast\n    layer: 2\n"
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load_job(tmp_path / "job.yaml")
    assert [(each.line, each.field, each.hint) for each in caught.value.problems] == [
        (5, "train.args", "add data to train.args"),
        (6, "train.args.lr", "correct the value"),
        (7, "train.args.layer", "it takes steps, data, lr"),
    ]
