"""What documents say exists: commands parse, snippets compile, files and links and make's targets are there."""

from __future__ import annotations

import contextlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
import typer
import yaml
from typer.main import get_command

from orchestrator.cli.app import app
from scripts.gen_docs import PAGES, ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
WRITTEN = [path for path in DOCUMENTS if str(path.relative_to(ROOT)) not in dict(PAGES)]
PROMPT = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?tradewind\s")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, *languages: str) -> Iterator[str]:
    for indent, language, text in re.findall(r"^( *)```(\w+)\n(.*?)^\1```", path.read_text(), re.DOTALL | re.MULTILINE):
        if language in languages:
            yield dedent(text) if indent else text


def commands(path: Path) -> Iterator[str]:
    """Every `tradewind ...` of a document, in blocks and in the text; not those that leave something open."""
    for block in blocks(path, "sh", "console"):
        lines = block.splitlines()
        yield from (PROMPT.sub("", f"{line} ").strip() for line in lines if PROMPT.match(f"{line} "))
    prose = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    for span in re.findall(r"`tradewind (.*?)`", prose, re.DOTALL):
        if "..." not in span and "[OPTIONS]" not in span:
            yield " ".join(span.split())


def parse(arguments: list[str]) -> None:
    """Raises what the command line would complain of; runs nothing. A command without arguments is only named."""
    command, name = get_command(app), "tradewind"
    if arguments in (["--install-completion"], ["--show-completion"]):
        return  # typer acts on these while it parses
    with contextlib.suppress(typer.Exit):  # --help and its like
        while arguments:
            context = command.make_context(name, arguments)
            if not hasattr(command, "resolve_command"):
                return
            arguments = [*getattr(context, "_protected_args", []), *context.args]
            name, command, arguments = command.resolve_command(context, arguments)


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_every_command_of_a_document_is_one(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    for line in commands(document):
        try:
            parse(shlex.split(line, comments=True))
        except Exception as error:
            wrong.append(f"tradewind {line}: {error}")
    assert wrong == []


def test_a_command_that_is_none_is_noticed() -> None:
    for line in ("submitt x.yaml", "submit x.yaml --yess", "config shw", "queue x"):
        with pytest.raises(Exception, match=r"No such|unexpected"):
            parse(shlex.split(line))


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_every_snippet_of_a_document_is_well_formed(document: Path) -> None:
    for text in blocks(document, "python"):
        compile(text, named(document), "exec")
    for text in blocks(document, "yaml"):
        assert yaml.safe_load(text) is not None
    for text in blocks(document, "toml"):
        assert tomllib.loads(text)


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_every_link_of_a_document_leads_somewhere_here(document: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if not re.match(r"https?:", link) and not (document.parent / link.partition("#")[0]).exists():
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("document", WRITTEN, ids=named)
def test_every_file_and_target_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text()
    files = re.findall(r"`((?:orchestrator|providers|trainers|tests|examples|benchmarks|scripts|docs)/[\w./-]+)`", text)
    unknown = {"providers/NAME/", "tests/contract/test_mine.py"}  # of the reader, once he has written them
    assert [name for name in files if name not in unknown and not (ROOT / name).exists()] == []
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE)) <= targets


def test_the_architecture_fits_on_two_pages() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 130


def test_the_python_of_the_training_page_needs_only_what_trainers_exports() -> None:
    import trainers

    used = set(re.findall(r"trainers\.(\w+)\(", (ROOT / "docs/training-code.md").read_text()))
    assert used
    assert used <= set(trainers.__all__)


def test_every_test_that_the_table_of_traps_names_exists() -> None:
    named_there = set(re.findall(r"`(test_\w+)`", (ROOT / "tests/clouds/README.md").read_text()))
    found = re.findall(
        r"^def (test_\w+)", "".join(path.read_text() for path in ROOT.glob("tests/**/*.py")), re.MULTILINE
    )
    assert len(named_there) > 50
    assert named_there <= set(found), sorted(named_there - set(found))
