"""Peers: the decisions that the ranks of a run make together, at the same step.

Orders reach machines at different times, and clocks differ. So between two steps, the ranks exchange what each has seen
(Seen), and all act on the same result. An exchange takes about half a millisecond, and more on a busy host, so short
steps do not all end with one: each exchange sets the number of steps until the next, so that exchanges take about SHARE
of the time. A single process needs no exchange (Alone).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from trainers.errors import PeerLost, TrainerError
from trainers.process.run_context import RunContext

SHARE = 0.02
LEAST_S, MOST_S = 0.05, 0.5  # between two exchanges, if steps are not longer
MOST_STEPS = 50  # likewise, because steps may become longer
PATIENCE = timedelta(minutes=30)  # as long as torch waits: one rank may evaluate while the others wait


@dataclass(slots=True)
class Seen:
    """What one rank sees at a step boundary; for several ranks, the greatest value of each field.

    `generation` owns the job, according to rank 0. `stop`: a request to end. Generation `successor` is about to take
    over; -1: none is. `warned`: a machine may soon be taken away; `noticed`: a machine will be; `notice_due`: the last
    moment to save, and `late_ms` the missing time for that (0: none). `rewrite`: the newest checkpoint lacks something
    that is in use. `save_due`: it is time for a periodic checkpoint. `save_over`: the result of a background checkpoint
    (trainers.checkpoint.background_together).
    """

    generation: int = 0
    lease_over: bool = False
    stop: bool = False
    successor: int = -1
    warned: bool = False
    noticed: bool = False
    notice_due: bool = False
    late_ms: int = 0
    rewrite: bool = False
    save_due: bool = False
    save_over: int = 0


class Peers(Protocol):
    """The ranks of a run, from the point of view of one rank. `leads`: it is the first rank of its machine and reads
    the machine's control directory. Every rank must call the methods at the same steps. They raise PeerLost.
    """

    rank: int
    size: int
    leads: bool

    def meets(self, step: int) -> bool:
        """Whether the ranks make an exchange after this step."""

    def agree(self, seen: Seen, step: int, step_s: float) -> Seen:
        """The combined view of the ranks. `step_s`: how long a step takes here."""

    def share(self, value: Any) -> Any:
        """The value (JSON) that rank 0 passed."""

    def exchange(self, data: bytes) -> list[bytes]:
        """The data that every rank passed, by rank."""


class Alone:
    """A run of one process."""

    rank, size, leads = 0, 1, True

    def meets(self, step: int) -> bool:  # noqa: ARG002
        """See Peers."""
        return True

    def agree(self, seen: Seen, step: int, step_s: float) -> Seen:  # noqa: ARG002
        """See Peers."""
        return seen

    def share(self, value: Any) -> Any:
        """See Peers."""
        return value

    def exchange(self, data: bytes) -> list[bytes]:
        """See Peers."""
        return [data]


class Group:
    """The ranks of torch's process group, connected by gloo, even if the program uses another backend."""

    def __init__(self, leads: bool, monotonic: Callable[[], float]) -> None:
        self.rank, self.size, self.leads = dist.get_rank(), dist.get_world_size(), leads
        self._world = dist.group.WORLD  # held, see trainers.process.unmanaged
        self._group = dist.new_group(backend="gloo", timeout=PATIENCE)
        self._monotonic = monotonic
        self._took_s = 0.0  # duration of the last exchange
        self._next_step = 0

    def meets(self, step: int) -> bool:
        """See Peers."""
        return step >= self._next_step

    def agree(self, seen: Seen, step: int, step_s: float) -> Seen:
        """See Peers. Raises PeerLost if the ranks are not at the same step."""
        began_s = self._monotonic()
        mine = [*map(int, dataclasses.astuple(seen)), _us(step_s), -_us(self._took_s), step, -step]
        *values, step_us, took_us, latest, earliest = self._greatest(mine)
        self._took_s = self._monotonic() - began_s
        if latest != -earliest:
            raise PeerLost(
                f"rank {self.rank} has finished step {step}, but others are between {-earliest} and {latest}",
                hint="every rank must call run.step() equally often",
            )
        self._next_step = step + steps_until_next(step_us / 1e6, -took_us / 1e6)
        fields = dataclasses.fields(Seen)
        agreed: dict[str, Any] = {
            each.name: bool(value) if each.type == "bool" else value for each, value in zip(fields, values, strict=True)
        }
        return Seen(**agreed)

    def _greatest(self, numbers: list[int]) -> list[int]:
        """The greatest of each number over all ranks. It goes through rank 0, because an all-reduce takes more hops."""
        mine = torch.tensor(numbers, dtype=torch.int64)
        of_all = [torch.empty_like(mine) for _ in range(self.size)] if self.rank == 0 else None

        def exchange() -> None:
            dist.gather(mine, of_all, dst=0, group=self._group)
            if of_all is not None:
                mine.copy_(torch.stack(of_all).amax(dim=0))
            dist.broadcast(mine, src=0, group=self._group)

        self._collectively(exchange)
        return [int(number) for number in mine.tolist()]

    def share(self, value: Any) -> Any:
        """See Peers."""
        return json.loads(self.exchange(json.dumps(value if self.rank == 0 else None).encode())[0])

    def exchange(self, data: bytes) -> list[bytes]:
        """See Peers."""
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        self._collectively(lambda: dist.all_gather(sizes, torch.tensor([len(data)]), group=self._group))
        most = max(int(size) for size in sizes)
        mine = torch.zeros(most, dtype=torch.uint8)
        mine.numpy()[: len(data)] = memoryview(data)
        all_ = [torch.empty(most, dtype=torch.uint8) for _ in range(self.size)]
        if most:
            self._collectively(lambda: dist.all_gather(all_, mine, group=self._group))
        return [bytes(each.numpy()[: int(size)]) for each, size in zip(all_, sizes, strict=True)]

    def _collectively(self, operation: Callable[[], object]) -> None:
        try:
            operation()
        except (RuntimeError, ValueError) as error:  # ValueError: the program has destroyed its process group
            raise PeerLost(
                f"rank {self.rank} cannot reach the other ranks: {error}",
                hint="see the report of the rank that ended first; keep the process group until the end of main",
            ) from error


def steps_until_next(step_s: float, took_s: float) -> int:
    """The number of steps of this duration until the next exchange, if an exchange takes `took_s` without waiting for
    late ranks. 1 if the duration is not known yet (0).
    """
    if step_s <= 0:
        return 1
    pause_s = min(max(took_s / SHARE, LEAST_S), MOST_S)
    return min(max(1, int(pause_s / step_s)), MOST_STEPS)


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def world() -> tuple[int, int]:
    """The rank and the number of ranks of torch's process group; 0 and 1 if the program has none."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def peers_of(context: RunContext) -> Peers:
    """The ranks of a run. Raises TrainerError if the program has not connected them."""
    expected = (0, 1) if context.rank is None else (context.rank.rank, context.rank.spec.world_size)
    if expected[1] == 1:
        return Alone()
    if world() != expected:
        raise TrainerError(
            f"attach() was called in rank {expected[0]} of {expected[1]} without a process group of all ranks",
            hint="call torch.distributed.init_process_group() first, and wrap the model in DistributedDataParallel",
        )
    return Group(context.leads, context.timers.monotonic)
