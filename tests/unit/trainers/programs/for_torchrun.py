"""A program that was written for torchrun and knows nothing of trainers."""

import argparse
import atexit
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kill", type=int, default=-1)
    parser.add_argument("--fail", type=int, default=-1)
    parser.add_argument("--wait", type=int, default=-1)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    atexit.register(sys.stdout.write, "the exit handler was called\n")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    assert rank == int(os.environ["RANK"])
    assert dist.get_world_size() == int(os.environ["WORLD_SIZE"])
    assert rank == int(os.environ["GROUP_RANK"]) * int(os.environ["LOCAL_WORLD_SIZE"]) + local_rank
    assert dist.is_torchelastic_launched()
    sys.stdout.write(f"local rank {local_rank} is rank {rank}\n")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        if step == 2 and rank == options.kill:
            sys.stderr.write("about to die\n")
            os.kill(os.getpid(), signal.SIGKILL)
        if step == 2 and rank == options.fail:
            raise ValueError("the data of this rank is bad")
        if step == 2 and rank == options.wait:
            Path(os.environ["TRADEWIND_CONTROL_DIR"], "stop").touch()
            signal.pause()
        optimizer.zero_grad()
        model(torch.full((2, 4), float(rank))).sum().backward()
        optimizer.step()
    sys.stdout.write(f"weights {sum(parameter.sum().item() for parameter in model.parameters()):.9f}\n")
    del model, optimizer  # in so short a program, torch may deadlock otherwise (trainers.process.unmanaged)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
