"""Gang: a job whose runs have several machines with several processes each, all on this host."""

import json
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from tests.unit.trainers.conftest import Job, read_losses
from trainers.checkpoint import store
from trainers.control import ControlDirectory, Progress
from trainers.spec import TrainerSpec


@dataclass
class Machine:
    """What one machine of a run has left."""

    status: str
    progress: Progress
    log: str
    losses: dict[int, dict[int, str]]  # by rank, by step


@dataclass
class Gang(Job):
    """`nodes` machines with `processes` ranks each; every machine has its own control directory."""

    nodes: int = 2
    processes: int = 2

    def machine_spec(self, node: int, port: int, **changes: object) -> TrainerSpec:
        run = self.folder / f"run-{self.generation}" / f"machine-{node}"
        placed = self.spec(
            control_dir=str(run / "control"),
            nodes=self.nodes,
            node_rank=node,
            processes=self.processes,
            master_addr="127.0.0.1",
            master_port=port,
        )
        return replace(placed, **changes)  # type: ignore[arg-type]

    def launch(self, spec: dict[str, object] | None = None, **args: object) -> list[Machine]:
        """Hand the job to a new generation and execute it on all machines to its end."""
        self.generation += 1
        start = store.newest_counting(self.root, self.job_id, self.generation)
        store.write_fence(self.root, self.job_id, self.generation, start)
        port, paths, specs = free_port(), [], []
        for node in range(self.nodes):
            specs.append(self.machine_spec(node, port, args=args, **(spec or {})))
            run = Path(specs[-1].control_dir).parent
            run.mkdir(parents=True)
            paths.append(str(run / "order.json"))
            specs[-1].save(run / "order.json")
        assert self.nursery.stdin is not None
        assert self.nursery.stdout is not None
        self.nursery.stdin.write(json.dumps({"specs": paths, "secrets": {}}) + "\n")
        self.nursery.stdin.flush()
        statuses = self.nursery.stdout.readline().strip().split(",")
        return [left_by(each, status) for each, status in zip(specs, statuses, strict=True)]


def left_by(spec: TrainerSpec, status: str) -> Machine:
    run, first = Path(spec.control_dir).parent, spec.node_rank * spec.processes
    progress = ControlDirectory(spec.control_dir).progress()
    assert progress is not None
    metrics = {first: run / "metrics.jsonl"}
    metrics |= {first + k: run / "ranks" / str(first + k) / "metrics.jsonl" for k in range(1, spec.processes)}
    losses = {rank: read_losses(path) for rank, path in metrics.items() if path.exists()}
    return Machine(status, progress, (run / "log").read_text(), losses)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
