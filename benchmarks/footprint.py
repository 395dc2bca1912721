"""Tradewind's footprint: start-up time, base install, memory of all its processes without jobs and with one. Offline.

    python benchmarks/footprint.py [--quick] [--json]

Times are CPU seconds of the child process (user + system, minimum of N runs), which depend less on load than wall time.
The base install is the closure of its dependencies as installed in this environment, byte code included.
Memory is the sum of proportional shares (PSS): pages that processes share are counted once.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from benchmarks._claims import Claim, show
from tests.e2e.living import Tradewind, until

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


@dataclass(frozen=True, slots=True)
class Memory:
    """Of some processes together: how many, and their proportional shares of memory."""

    processes: int
    size_bytes: int

    @classmethod
    def of(cls, pids: Iterable[int]) -> Memory:
        """Without those that have ended meanwhile."""
        shares = [share for pid in pids if (share := _share_bytes(pid)) is not None]
        return cls(len(shares), sum(shares))


def memory(*, with_job: bool) -> dict[str, Memory]:
    """All processes without jobs; `with_job`, also while one trains, and when its machine has ended."""
    found: dict[str, Memory] = {}
    with tempfile.TemporaryDirectory(prefix="tw-footprint-") as folder:
        home = Tradewind(Path(folder))
        try:
            home.command("up")
            time.sleep(IDLE_S)
            found["idle after `tradewind up`"] = Memory.of(_pids(home))
            if with_job:
                job = home.submit("job")
                machine = home.processes(home.training(job)).keys()
                found["while a job trains, without its machine"] = Memory.of(_pids(home) - machine)
                found["the machine of that job"] = Memory.of(machine)
                home.finish(job)
                until("the machine has ended", lambda: _pids(home) == {home.leader_pid})
                found["idle again after the job"] = Memory.of(_pids(home))
        finally:
            home.close()
    return found


def _pids(home: Tradewind) -> set[int]:
    return {int(left.split()[0]) for left in home.left_behind()}


def _share_bytes(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return None
    return int(dict(line.split(":", 1) for line in lines)["Pss"].split()[0]) * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs and no job, under 50 seconds")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    options = parser.parse_args()
    runs = 3 if options.quick else 10
    bare = cpu_s(BARE, "--help", runs=runs)
    ours = cpu_s(COMMAND, "--help", runs=runs)
    empty = cpu_s("pass", runs=runs)
    sdk = cpu_s("import orchestrator", runs=runs)
    sizes = base_install()
    sums = memory(with_job=not options.quick)
    claims = [
        Claim("CPU of a bare typer program's --help", bare, "s"),
        Claim("CPU of `tradewind --help`", ours, "s"),
        Claim("`tradewind --help` relative to the bare typer program", ours / bare, "x", 2.0),
        Claim("CPU of `import orchestrator`, without the interpreter", max(0.0, sdk - empty), "s"),
        Claim("base install", sum(sizes.values()) / 1e6, "MB"),
        *(Claim(f"memory {when}", each.size_bytes / 1e6, "MB") for when, each in sums.items()),
        *(Claim(f"processes {when}", each.processes, "") for when, each in sums.items()),
    ]
    biggest = sorted(sizes.items(), key=lambda item: -item[1])[:5]
    notes = [
        f"CPU: minimum of {runs} runs. Base install: {len(sizes)} distributions, largest "
        + ", ".join(f"{name} {size / 1e6:.1f}" for name, size in biggest)
        + " MB; files of the dependency closure installed here, byte code included.",
        "Memory: without jobs the control plane alone. Ray runs on the machines of jobs, and ends with them.",
    ]
    return show("Footprint", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
