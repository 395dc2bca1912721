"""Runs the same queries on the same offers with other tools, each in a temporary virtual environment.

A peer is a separate program (`_peer_NAME.py`). It reads the offers and the requests from a file, answers each request
for spot and for on-demand, first to warm up and then timed, and writes CPU seconds and the cheapest prices.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

INSTALL_S, ASK_S = 900, 900


class Peer(Enum):
    """A tool: the program that queries it, and what pip installs for it."""

    GPUHUNT = ("gpuhunt", "gpuhunt==0.1.34")
    SKYPILOT = ("skypilot", "skypilot==0.14.1")


@dataclass(frozen=True, slots=True)
class Answer:
    """CPU seconds of each query, and the cheapest price by (request, spot) among the offers of `clouds`; or why the
    tool could not be queried."""

    name: str
    seconds: list[float] = field(default_factory=list)
    cheapest_usd: dict[tuple[int, bool], float] = field(default_factory=dict)
    clouds: tuple[str, ...] = ("aws", "gcp", "azure")
    skipped: str = ""


def ask(peer: Peer, rows: Sequence[tuple[object, ...]], requests: Sequence[tuple[str, int]]) -> Answer:
    """Install a tool, query it and remove it. Failures are reported, not raised."""
    name, requirement = peer.value
    with tempfile.TemporaryDirectory(prefix="peer-") as folder:
        home = Path(folder)
        try:
            venv.create(home / "venv", with_pip=True)
            python = home / "venv" / "bin" / "python"
            _run([str(python), "-m", "pip", "install", "--quiet", requirement], INSTALL_S, home)
            question = home / "question.json"
            question.write_text(json.dumps({"rows": rows, "requests": requests}))
            program = Path(__file__).with_name(f"_peer_{name}.py")
            answer = json.loads(_run([str(python), str(program), str(question)], ASK_S, home).splitlines()[-1])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
            said = getattr(error, "stderr", None) or str(error)
            return Answer(requirement, skipped=str(said).strip().splitlines()[-1][:160])
    cheapest = {(int(number), bool(spot)): float(usd) for number, spot, usd in answer["cheapest"]}
    clouds = tuple(answer.get("clouds", ("aws", "gcp", "azure")))
    return Answer(requirement, [float(each) for each in answer["seconds"]], cheapest, clouds)


def _run(command: list[str], limit_s: int, home: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment |= {"HOME": str(home), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=limit_s, check=True, env=environment, cwd=home
    )
    return done.stdout
