"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from orchestrator.errors import StoreError, UsageError
from orchestrator.formats.whole_file import write_whole
from orchestrator.jobfile.convert.task_file import Conversion, write_conversion
from orchestrator.services.setup.answers import Answers
from orchestrator.services.setup.file import write_settings
from tests.disks import mounted

TOO_MUCH = "x" * 2_000_000


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A folder on a disk without space."""
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder


def fill(folder: Path) -> None:
    with (folder / "filling").open("wb", buffering=0) as file:
        while shutil.disk_usage(folder).free:
            file.write(b"x" * 4096)


def test_on_a_full_disk_the_former_content_stays_and_no_part_of_the_new(full: Path) -> None:
    with mounted(full, "size=1m"):
        (full / "report.html").write_text("before")
        for name in ("report.html", "new.html"):
            with pytest.raises(OSError, match="No space left"):
                write_whole(full / name, TOO_MUCH)
        assert {each.name: each.read_text() for each in full.iterdir()} == {"report.html": "before"}


def test_settings_on_a_full_disk_leave_no_file_and_say_what_helps(full: Path) -> None:
    with mounted(full, "size=64k"):
        fill(full)
        with pytest.raises(StoreError, match=r"tradewind.toml cannot be written: No space left") as refused:
            write_settings(Answers(("local",), None, 5.0), full, {})
        assert refused.value.hint == "free some space"
        assert [each.name for each in full.iterdir()] == ["filling"]


@pytest.mark.parametrize("force", [False, True])
def test_a_conversion_on_a_full_disk_leaves_no_part_so_that_it_can_be_repeated(full: Path, force: bool) -> None:
    with mounted(full, "size=64k"):
        fill(full)
        for _ in range(2):
            with pytest.raises(UsageError, match=r"job\.yaml cannot be written: No space left"):
                write_conversion(
                    Conversion("task.yaml", "skypilot", {}, TOO_MUCH, (), ()), full / "job.yaml", force=force
                )
        assert [each.name for each in full.iterdir()] == ["filling"]


def test_a_link_stays_a_link_and_keeps_its_permissions_and_a_device_or_pipe_is_written_to(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before")
    target.chmod(0o640)
    link.symlink_to(target)
    write_whole(link, "after")
    assert (link.is_symlink(), target.read_text(), target.stat().st_mode & 0o777) == (True, "after", 0o640)
    write_whole(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()
    os.mkfifo(tmp_path / "pipe")
    got = list[str]()
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()))
    reader.start()
    write_whole(tmp_path / "pipe", "through")
    reader.join(30)
    assert got == ["through"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "pipe", "target"]


def test_a_name_of_the_greatest_length_can_be_written(tmp_path: Path) -> None:
    write_whole(tmp_path / ("n" * 255), "long")
    assert (tmp_path / ("n" * 255)).read_text() == "long"
