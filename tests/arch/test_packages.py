"""What the three packages export, and what their files look like."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("orchestrator", "providers", "trainers")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MAX_LINES = 500


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tracked_files() -> Iterator[Path]:
    """What a clone would hold, or will once it is committed; every file where there is no git."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return (ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file())


def test_every_module_opens_with_what_it_is_and_is_short_enough_to_hold_one_idea() -> None:
    texts = {named(path): path.read_text(encoding="utf-8") for path in SOURCES}
    assert [name for name, text in texts.items() if not ast.get_docstring(ast.parse(text))] == []
    assert [name for name, text in texts.items() if len(text.splitlines()) > MAX_LINES] == []
    assert [name for name, text in texts.items() if not text.isascii()] == []


def exporting_modules() -> list[str]:
    """Every package or module with an __all__."""
    names = [*PACKAGES]
    for package in PACKAGES:
        names += [found.name for found in pkgutil.walk_packages([str(ROOT / package)], f"{package}.")]
    return [name for name in names if re.search(r"^__all__", source_of(name).read_text(), re.MULTILINE)]


def source_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@pytest.mark.parametrize("name", exporting_modules())
def test_exported_names_are_sorted_unique_importable_and_all_there_is(name: str) -> None:
    module = importlib.import_module(name)
    exported = list(module.__all__)
    assert exported == sorted(set(exported), key=_as_ruff_sorts), "sorted: constants, classes, functions"
    for member in exported:
        assert getattr(module, member) is not None
    if source_of(name).name == "__init__.py":
        assert set(exported) == public_names(source_of(name))


def public_names(init: Path) -> set[str]:
    """What an __init__ defines, or imports from our packages, be it only for type checkers."""
    body = ast.parse(init.read_text()).body
    body += [inner for node in body if isinstance(node, ast.If) for inner in node.body]
    names = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            names |= {alias.asname or alias.name for alias in node.names}
    return {name for name in names if not name.startswith("_")}


def _as_ruff_sorts(name: str) -> tuple[int, str]:
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, name


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_distribution_owns_one_of_our_packages(package: str) -> None:
    """`orchestrator` and `providers` are distributions of other people, too: side by side they would overwrite us."""
    assert set(packages_distributions().get(package, ["tradewind"])) == {"tradewind"}


MACHINE = re.compile(r"(?<![\w.}])/(?:work|home/\w+|root|Users/\w+)/|file:///[a-z]")
REGISTRY = re.compile(
    r"pypi\.(?:org|python)|files\.pythonhosted|download\.pytorch|index-url\s*[= ]\s*http|registry\.npmjs"
)


def test_no_tracked_file_names_a_registry_or_a_place_of_one_machine() -> None:
    found = []
    for path in tracked_files():
        if path == Path(__file__) or path.suffix in {".svg", ".png"}:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if MACHINE.search(line) or REGISTRY.search(line):
                found.append(f"{named(path)}:{number}: {line.strip()}")
    assert found == []


def test_no_file_is_too_big_for_a_source_tree() -> None:
    assert [named(path) for path in tracked_files() if path.stat().st_size > 1_000_000] == []


def test_commands_act_through_the_sdk_which_so_can_do_whatever_they_can() -> None:
    """A command that hands its configuration on to something else than the SDK does what the SDK cannot."""
    past_it = {
        named(path)
        for path in (ROOT / "orchestrator" / "cli").rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and "client.config" in map(ast.unparse, call.args)
    }
    assert past_it == {"orchestrator/cli/commands/system.py"}  # `daemon run`: it becomes the control plane
