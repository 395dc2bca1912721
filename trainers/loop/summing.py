"""Adds the gradients of more than two ranks in the order of the ranks, so that sums are bit-identical after a resume.

Floating-point addition depends on its order. An all-reduce adds the ranks' values of an element in an order that
depends on where the element is in the message, and DistributedDataParallel changes its messages (buckets) after the
first step of every process: the first step after a resume would round differently. Here, each rank adds up an equal
part of every bucket, in the order of the ranks, and passes the sum to the others. This transfers as many bytes as a
ring all-reduce.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def sum_in_rank_order(model: DistributedDataParallel) -> bool:
    """Make a model add its gradients in this way from now on. False if the program has its own hook for that."""
    try:
        model.register_comm_hook(model.process_group, _mean)
    except RuntimeError:  # there can be only one
        return False
    return True


# torch compares the annotation, so it must not be a string.
def _mean(
    group: dist.ProcessGroup,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """The mean over all ranks of a bucket of gradients."""
    mine: torch.Tensor = bucket.buffer()
    ranks = group.size()
    length = -(-mine.numel() // ranks)  # length of the part that one rank adds up
    padded = torch.zeros(length * ranks, dtype=mine.dtype, device=mine.device)
    padded[: mine.numel()] = mine
    padded.div_(ranks)  # before the sum, like DistributedDataParallel, because the sum may overflow otherwise
    received = torch.empty_like(padded)
    swap = dist.all_to_all_single(received, padded, group=group, async_op=True)
    assert swap is not None

    def add(_: Any) -> torch.Tensor:
        parts = received.view(ranks, length)
        total = parts[0].clone()
        for rank in range(1, ranks):
            total += parts[rank]
        gather = dist.all_gather(list(padded.view(ranks, length)), total, group=group, async_op=True)
        assert gather is not None
        gather.get_future().wait()
        return mine.copy_(padded[: mine.numel()])

    if mine.is_cuda:  # waiting only orders streams
        return swap.get_future().then(add)  # type: ignore[no-any-return]
    swap.wait()  # not in a callback, which would block one of gloo's few threads while it waits for another
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(add(None))
    return done
