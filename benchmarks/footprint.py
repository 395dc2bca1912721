"""Tradewind's footprint before it does anything: start-up time, base install, idle memory. Offline.

    python benchmarks/footprint.py [--quick] [--json]

Times are CPU seconds of the child process (user + system, minimum of N runs), which depend less on load than wall time.
The base install is the closure of its dependencies as installed in this environment, byte code included.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from benchmarks._claims import Claim, show

ROOT = Path(__file__).resolve().parent.parent
BARE = """
import typer
app = typer.Typer()

@app.command()
def hello(name: str, loud: bool = False) -> None:
    "Greet somebody."

app(prog_name="bare")
"""
COMMAND = "from orchestrator.cli import main; main()"
END_S = 30.0
IDLE_S = 2.0  # seconds of idling before its memory is read


def cpu_s(code: str, *arguments: str, runs: int) -> float:
    """CPU seconds of `python -c code arguments`, the minimum of `runs`. Raises CalledProcessError."""
    spent = []
    command = [sys.executable, "-c", code, *arguments]
    for _ in range(runs):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        spent.append(usage.ru_utime + usage.ru_stime)
    return min(spent)


def base_install() -> dict[str, int]:
    """Bytes on disk of each distribution that `pip install tradewind` installs, including Tradewind's own packages."""
    sizes = {"tradewind": sum(_bytes_of(ROOT / name) for name in ("orchestrator", "providers", "trainers"))}
    waiting = list(_required(distribution("tradewind"), frozenset()))
    while waiting:
        requirement = waiting.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in sizes:
            continue
        found = distribution(name)
        paths = [Path(str(file.locate())) for file in found.files or ()]
        sizes[name] = sum(path.stat().st_size for path in paths if path.exists())
        waiting += _required(found, frozenset(requirement.extras))
    return sizes


def _required(found: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    for line in found.requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def _bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def idle_control_plane() -> tuple[int, int]:
    """(resident, proportional) memory in bytes of an idle control plane that leads an empty store."""
    with tempfile.TemporaryDirectory(prefix="tw-footprint-") as folder:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TRADEWIND_")}
        environment |= {"TRADEWIND_STATE_DIR": folder, "XDG_CONFIG_HOME": folder}
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.daemon"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert process.stderr is not None
            if not any("leading" in line for line in process.stderr):
                raise RuntimeError("the control plane ended before it led")
            time.sleep(IDLE_S)
            return _memory_bytes(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=END_S)


def _memory_bytes(pid: int) -> tuple[int, int]:
    sums = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return int(sums["Rss"].split()[0]) * 1024, int(sums["Pss"].split()[0]) * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs, under 50 seconds")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    options = parser.parse_args()
    runs = 3 if options.quick else 10
    bare = cpu_s(BARE, "--help", runs=runs)
    ours = cpu_s(COMMAND, "--help", runs=runs)
    empty = cpu_s("pass", runs=runs)
    sdk = cpu_s("import orchestrator", runs=runs)
    sizes = base_install()
    resident, proportional = idle_control_plane()
    claims = [
        Claim("CPU of a bare typer program's --help", bare, "s"),
        Claim("CPU of `tradewind --help`", ours, "s"),
        Claim("`tradewind --help` relative to the bare typer program", ours / bare, "x", 2.0),
        Claim("CPU of `import orchestrator`, without the interpreter", max(0.0, sdk - empty), "s"),
        Claim("base install", sum(sizes.values()) / 1e6, "MB"),
        Claim("idle control plane, resident", resident / 1e6, "MB"),
        Claim("idle control plane, proportional share", proportional / 1e6, "MB"),
    ]
    biggest = sorted(sizes.items(), key=lambda item: -item[1])[:5]
    notes = [
        f"CPU: minimum of {runs} runs. Base install: {len(sizes)} distributions, largest "
        + ", ".join(f"{name} {size / 1e6:.1f}" for name, size in biggest)
        + " MB; files of the dependency closure installed here, byte code included.",
        "Idle control plane: leads an empty store; it starts Ray (a head, a bridge) only when a job needs it.",
    ]
    return show("Footprint", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
