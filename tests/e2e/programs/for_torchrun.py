"""A program that was written for torchrun and knows nothing of trainers."""

import os
import sys

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    assert rank == int(os.environ["RANK"])
    assert dist.get_world_size() == int(os.environ["WORLD_SIZE"])
    assert rank == int(os.environ["GROUP_RANK"]) * int(os.environ["LOCAL_WORLD_SIZE"]) + local_rank
    assert dist.is_torchelastic_launched()
    sys.stdout.write(f"local rank {local_rank} is rank {rank}\n")
    torch.manual_seed(rank)
    weights = torch.randn(4)
    for _ in range(4):
        dist.all_reduce(weights)
        weights /= dist.get_world_size()
    sys.stdout.write(f"weights {weights.sum().item():.9f}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
