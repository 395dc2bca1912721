"""The files of others: unchanged, licensed, and all there is."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

from orchestrator.reports.html.render import FOLDER
from orchestrator.web.page_frame import STATIC
from orchestrator.web.routes.frame import FILES

VENDORED = (STATIC / "vendor", Path(__file__).parent / "vendor")


@pytest.mark.parametrize("folder", VENDORED, ids=("served", "tests"))
def test_every_vendored_file_is_the_one_that_its_list_names(folder: Path) -> None:
    named = tomllib.loads((folder / "vendor.toml").read_text())["file"]
    assert {each["path"] for each in named} == {
        path.name for path in folder.iterdir() if path.suffix in (".js", ".css")
    }
    for each in named:
        assert hashlib.sha256((folder / each["path"]).read_bytes()).hexdigest() == each["sha256"], each["path"]
        assert each["licence"]
        assert (folder / f"{each['path'].split('.')[0]}.LICENSE").is_file()


def test_no_page_style_or_script_of_ours_names_another_host() -> None:
    ours = [*FOLDER.rglob("*.html"), *FOLDER.rglob("*.css"), *STATIC.glob("*.js"), *STATIC.glob("*.svg")]
    assert len(ours) > 5
    for path in ours:
        found = set(re.findall(r"https?://[^\s\"'<>)]+", path.read_text(encoding="utf-8")))
        assert found <= {"http://www.w3.org/2000/svg"}, path


def test_every_file_that_is_served_exists() -> None:
    from orchestrator.web.page_frame import static_file

    assert [name for name in FILES if not static_file(name).is_file()] == []
