"""What a run with secrets writes about itself, by real processes: nothing of it holds a value, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.disks import mounted

SECRET = "correct/horse+battery 4711"


def holding(folder: Path) -> list[str]:
    """Files that hold the value in one of the forms in which it was written."""
    files = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    parts = (SECRET.encode(), b"Y29ycmVjdC9ob3JzZS", b"correct%2Fhorse", SECRET.encode().hex().encode(), b"battery")
    return [name for name, data in files.items() if any(part in data for part in parts)]


def test_no_file_about_a_run_that_raises_holds_its_secret_in_any_form(job):
    outcome = job.run(spec={"entry": "talkative:raises"}, secrets={"TOKEN": SECRET, "SHORT": "abc"})
    assert (outcome.status, outcome.progress.state) == ("failed", "failed")
    assert holding(job.folder) == []
    assert "401 for https://me:[secret TOKEN]@host with [secret TOKEN]" in outcome.progress.error
    assert "ValueError: 401" in outcome.log
    for line in ("plain [secret TOKEN]", "in pieces [secret TOKEN]", "child [secret TOKEN]", "from C [secret TOKEN]"):
        assert f"{line}\n" in outcome.log
    log = job.folder / "run-1" / "log"
    subprocess.run(["sh", "-c", f'until grep -q "at exit .secret TOKEN." {log}; do sleep 0.05; done'], timeout=60)
    assert holding(job.folder) == []


def test_what_a_run_says_before_it_is_killed_is_in_its_log_to_the_last_byte(job):
    outcome = job.run(spec={"entry": "talkative:dies"}, secrets={"TOKEN": SECRET})
    assert outcome.status == "killed 9"
    log = job.folder / "run-1" / "log"
    subprocess.run(["sh", "-c", f'until grep -q "last word .* end" {log}; do sleep 0.05; done'], timeout=60)
    assert holding(job.folder) == []
    text = log.read_text()
    assert [line for line in text.splitlines() if line.startswith("line ")] == [f"line {n}" for n in range(2000)]
    assert text.endswith("last word [secret TOKEN] end")


def test_a_full_disk_stops_no_run_and_is_said(tmp_path):
    with mounted(tmp_path, "size=64k") as disk:
        log = disk / "log"
        script = (
            "import os, pathlib\n"
            "from trainers.process.log_pump import MaskedLog\n"
            f"log = MaskedLog(pathlib.Path({str(log)!r}), {{'TOKEN': 'topsecret'}})\n"
            "os.write(log.descriptor, b'x' * 300_000 + b'\\n')\n"
            "log.settle()\n"
            f"os.truncate({str(log)!r}, 0)\n"
            "os.write(log.descriptor, b'topsecret\\n')\n"
            "log.settle()\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
        text = log.read_text()
    assert "bytes of output lost: the disk was full]\n[secret TOKEN]\n" in text


def test_the_value_is_in_no_argument_and_not_in_the_environment_of_the_process_that_masks(tmp_path):
    script = (
        "import os, pathlib\n"
        "from trainers.process.log_pump import MaskedLog\n"
        f"log = MaskedLog(pathlib.Path({str(tmp_path / 'log')!r}), {{'TOKEN': os.environ['TOKEN']}})\n"
        "pump = pathlib.Path(f'/proc/self/task/{os.getpid()}/children').read_text().split()[0]\n"
        "print([os.environ['TOKEN'].encode() in pathlib.Path(f'/proc/{pump}/{name}').read_bytes()\n"
        "       for name in ('cmdline', 'environ')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {"TOKEN": SECRET}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[False, False]\n"
