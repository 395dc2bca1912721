"""The head of this host's site as a file: of this boot or of one before; in a folder that cannot be written."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.engine.site.environment import END_IF_UNUSED, Head, SiteFiles, alive, ask_to_end, end_head
from orchestrator.engine.site.keeper import HeadKeeper
from orchestrator.engine.site.runtime import RayRuntime
from orchestrator.errors import SiteError
from providers.clock import boot_id
from providers.procfs import process_start


@pytest.mark.parametrize("boot", ["this one", "one before"])
def test_a_head_of_a_boot_before_has_left_nothing_that_could_be_ended(boot: str) -> None:
    process = subprocess.Popen(["sleep", "100"], start_new_session=True)
    try:
        started = process_start(process.pid)
        assert started is not None
        head = Head("127.0.0.1:1", process.pid, started, boot_id() if boot == "this one" else "another")
        assert alive(head) is (boot == "this one")
        end_head(head)
        assert (process_start(process.pid) is not None) is (boot == "one before")
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("which", ["the head", "one that has its number now", "nobody"])
def test_a_head_is_asked_to_end_and_no_other_process(which: str) -> None:
    process = subprocess.Popen(["sleep", "100"], start_new_session=True)
    try:
        started = process_start(process.pid)
        assert started is not None
        if which == "nobody":
            process.kill()
            process.wait()
        ask_to_end(Head("127.0.0.1:1", process.pid, started + (which == "one that has its number now"), boot_id()))
        if which == "the head":
            assert process.wait(timeout=60) == -END_IF_UNUSED
        assert (process_start(process.pid) is not None) is (which == "one that has its number now")
    finally:
        process.kill()
        process.wait()


def test_a_site_that_is_not_needed_starts_nothing(tmp_path: Path) -> None:
    runtime = RayRuntime(SiteFiles(tmp_path / "site", tmp_path / "ray"), tmp_path / "runs", lease_s=60.0)
    runtime.release()
    runtime.kill("run_1")
    runtime.close()
    assert not list(tmp_path.iterdir())


def test_a_site_that_cannot_be_written_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "site").write_text("a file where a folder should be")
    with pytest.raises(SiteError, match="site cannot be written") as caught:
        HeadKeeper(SiteFiles(tmp_path / "site", tmp_path / "ray")).head()
    assert "free some space" in caught.value.hint
