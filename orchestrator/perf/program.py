"""Program: identifies jobs that inform each other's speed: those of one program, above all with equal settings.
Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass

from orchestrator.model import TrainSpec

_encode = json.JSONEncoder(sort_keys=True).encode


@dataclass(frozen=True, slots=True)
class Program:
    """`name`: the code that runs; `settings`: its arguments except paths, which do not change the amount of work;
    `nodes`: the number of machines at once, since a step on several machines is different work."""

    name: str
    settings: str
    nodes: int = 1


def program_of(train: TrainSpec, nodes: int = 1) -> Program:
    """The program of a job on this many machines. Jobs with equal Programs are assumed to be equally fast on the same
    hardware."""
    named = {name: value for name, value in train.args.items() if not (isinstance(value, str) and "/" in value)}
    reported = [word for word in train.argv if "/" not in word] if train.argv else named
    return Program(f"{train.workdir}:{train.entry or train.script}", _encode(reported), nodes)
