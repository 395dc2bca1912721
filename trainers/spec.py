"""TrainerSpec: the settings of a trainer process, as JSON in the file that $TRADEWIND_SPEC names.

Written by the process that starts the trainer.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SPEC_VARIABLE = "TRADEWIND_SPEC"
CONTROL_VARIABLE = "TRADEWIND_CONTROL_DIR"
OUTPUT_VARIABLE = "TRADEWIND_OUTPUT_DIR"
CHECKPOINT_VARIABLE = "TRADEWIND_CHECKPOINT_DIR"


@dataclass(frozen=True, slots=True)
class SetupSpec:
    """What a job needs on its machine before its trainer starts.

    `command` is a shell command; `requirements` are packages by name, `requirement_files` files that list them;
    `python` is a version such as "3.12" (None: the site's). Paths are relative to `workdir`; `root` is the machine's
    folder of environments, `log` the file for the output. `timeout_s` is wall seconds.
    """

    root: str
    log: str
    workdir: str
    command: str | None = None
    requirements: Sequence[str] = ()
    requirement_files: Sequence[str] = ()
    python: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 1800.0

    def to_json(self) -> dict[str, object]:
        """All fields as a dict for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> SetupSpec:
        """The spec in a dict. Raises TypeError if a field is missing or unknown."""
        return cls(**data)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class TrainerSpec:
    """The settings of one run of a job.

    `throttle` in (0, 1]: the speed of the simulated machine as a fraction of this host's; the session sleeps for the
    rest of each step. `generation`: the run trains and commits only after `fence/<generation>` exists. `manifest` names
    the checkpoint to start from (None: the newest valid one, or from the beginning), `fetched` a folder of the machine
    with chunks of it that were fetched ahead ("": none). `max_overhead` is the fraction of training time that saves may
    take, `keep` the number of kept checkpoints (with `keep_hourly` and `keep_best`: see
    trainers.checkpoint.retention.Keep), `threads` the CPU threads of each process. `max_upload_bytes_per_s`: the
    machine's bandwidth that checkpoints may use while training continues; None: no limit. `max_in_flight`: the number
    of periodic checkpoints that may be written at a time while training continues (in a run of several processes: one);
    with 0, training waits until they are written.

    A run may have several processes (ranks): `processes` on each of `nodes` machines; `node_rank` is this machine's
    number, from 0. Rank 0 listens on `master_addr`:`master_port`, which every machine must reach; for a run of one
    machine, both may be empty. With `torchrun`, a single process is started like several. Each machine has its own
    `control_dir`; machine 0's has the progress of the run.
    """

    job_id: str
    run_id: str
    generation: int
    attempt: int
    checkpoint_root: str  # folder or s3://bucket/prefix; the job's checkpoints are below <root>/<job_id>
    control_dir: str
    output_dir: str
    workdir: str
    entry: str | None = None  # "module:function"
    script: str | None = None
    args: Mapping[str, object] = field(default_factory=dict)
    argv: Sequence[str] = ()  # the exact arguments of a script, instead of args
    env: Mapping[str, str] = field(default_factory=dict)
    steps: int | None = None
    epochs: int | None = None
    keep: int = 3
    keep_hourly: int = 0
    keep_best: int = 0
    max_overhead: float = 0.035
    max_in_flight: int = 0
    max_upload_bytes_per_s: float | None = None
    threads: int = 1
    deterministic: bool = True
    seed: int = 0
    throttle: float = 1.0
    manifest: str | None = None
    fetched: str = ""
    nodes: int = 1
    node_rank: int = 0
    processes: int = 1
    torchrun: bool = False
    master_addr: str = ""
    master_port: int = 0

    @property
    def world_size(self) -> int:
        """The number of processes on all machines."""
        return self.nodes * self.processes

    @property
    def distributed(self) -> bool:
        """Whether the program is started as torchrun starts it, with RANK and so on."""
        return self.torchrun or self.world_size > 1

    def to_json(self) -> dict[str, object]:
        """All fields as a dict for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> TrainerSpec:
        """The spec in a dict. Raises TypeError if a field is missing or unknown."""
        return cls(**data)  # type: ignore[arg-type]

    def save(self, path: Path) -> None:
        """Write the spec as JSON. Raises OSError."""
        path.write_text(json.dumps(self.to_json()))

    @classmethod
    def load(cls, path: Path) -> TrainerSpec:
        """Read a spec. Raises OSError, ValueError and TypeError."""
        return cls.from_json(json.loads(path.read_text()))
