"""Rank: the position of a process among the processes of a run, and the environment variables that describe it.

The variables are the same as torchrun's, so that a program written for torchrun runs unchanged.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from pathlib import Path

from trainers.errors import TrainerError
from trainers.spec import TrainerSpec

_LOCALHOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Rank:
    """The process `local_rank` of the machine on which `spec` runs."""

    spec: TrainerSpec
    local_rank: int

    @property
    def rank(self) -> int:
        """The number of this process in the whole run."""
        return self.spec.node_rank * self.spec.processes + self.local_rank

    @property
    def folder(self) -> Path:
        """The folder for files of this process only: `<run>/ranks/<rank>`."""
        return Path(self.spec.control_dir).parent / "ranks" / str(self.rank)

    def __str__(self) -> str:
        where = f" (machine {self.spec.node_rank})" if self.spec.nodes > 1 else ""
        return f"rank {self.rank} of {self.spec.world_size}{where}"

    def variables(self) -> dict[str, str]:
        """The variables that torchrun sets. Rank 0, not an agent, serves the store at MASTER_ADDR:MASTER_PORT."""
        spec = self.spec
        world_size, rank = str(spec.world_size), str(self.rank)
        return {
            "RANK": rank,
            "WORLD_SIZE": world_size,
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(spec.processes),
            "GROUP_RANK": str(spec.node_rank),
            "GROUP_WORLD_SIZE": str(spec.nodes),
            "ROLE_NAME": "default",
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": world_size,
            "MASTER_ADDR": spec.master_addr,
            "MASTER_PORT": str(spec.master_port),
            "TORCHELASTIC_RUN_ID": spec.run_id,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        }


def ranks_of(spec: TrainerSpec) -> list[Rank]:
    """The processes of this machine. Raises TrainerError if the spec describes none."""
    if spec.nodes < 1 or spec.processes < 1 or not 0 <= spec.node_rank < spec.nodes:
        raise TrainerError(
            f"machine {spec.node_rank} of {spec.nodes} with {spec.processes} processes does not exist",
            hint="machines are numbered from 0, and each has one process or more",
        )
    if spec.nodes > 1 and not (spec.master_addr and spec.master_port):
        raise TrainerError(
            "the processes of several machines cannot find each other",
            hint="set master_addr and master_port to an address of machine 0 that all machines can reach",
        )
    placed = replace(spec, master_addr=spec.master_addr or _LOCALHOST, master_port=spec.master_port or _free_port())
    return [Rank(placed, local_rank) for local_rank in range(spec.processes)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOCALHOST, 0))
        return int(probe.getsockname()[1])
