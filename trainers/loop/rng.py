"""Saves and restores the random number generators that a training loop uses: python, numpy, torch, CUDA.

Their states are plain data and tensors.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch

from trainers.errors import StateError


def seed_all(seed: int) -> None:
    """Seed all generators, on every device."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def capture_rng(*, own_device: bool = False) -> dict[str, Any]:
    """The current state of all generators of this process. `own_device`: only of the current CUDA device."""
    cuda: list[torch.Tensor] = []
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # reading the state takes memory on every device
        cuda = [torch.cuda.get_rng_state()] if own_device else torch.cuda.get_rng_state_all()
    return {**_host_state(), "cuda": cuda}


def restore_rng(state: dict[str, Any], *, own_device: bool = False) -> None:
    """Restore a captured state. Raises StateError if the checkpoint has more CUDA devices than this machine."""
    _set_host_state(state)
    if own_device and state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"][0])
        return
    if len(state["cuda"]) > torch.cuda.device_count():
        raise StateError(
            f"the checkpoint has the random state of {len(state['cuda'])} CUDA devices, this machine has "
            f"{torch.cuda.device_count()}",
            hint="resume on a machine with at least as many devices",
        )
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])


def is_generator(value: object) -> bool:
    """True for a random number generator of python, numpy or torch whose state can be saved."""
    if isinstance(value, random.SystemRandom):
        return False
    return isinstance(value, torch.Generator | random.Random | numpy.random.Generator | numpy.random.RandomState)


def generator_state(generator: Any) -> Any:
    """The state of a generator (see is_generator): plain data, or a tensor."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, numpy.random.RandomState):
        return generator.get_state(legacy=False)
    # also the number of spawned children, because each new one differs
    return {"bits": generator.bit_generator.state, "seeds": getattr(generator.bit_generator.seed_seq, "state", None)}


def set_generator_state(generator: Any, state: Any, path: str) -> None:
    """Restore the state of a generator of the same kind. Raises StateError that names `path`."""
    try:
        if isinstance(generator, torch.Generator):
            generator.set_state(state)
        elif isinstance(generator, random.Random):
            generator.setstate(state)
        elif isinstance(generator, numpy.random.RandomState):
            generator.set_state(state)
        else:
            _set_bit_generator(generator.bit_generator, state["bits"], state["seeds"])
    except (LookupError, RuntimeError, TypeError, ValueError) as error:
        raise StateError(
            f"the checkpoint has no state for the {type(generator).__qualname__} at {path}: {error}",
            hint="attach what the saving run attached",
        ) from error


@contextmanager
def untouched_rng() -> Iterator[None]:
    """Restore the host's generators after this block."""
    state = _host_state()
    try:
        yield
    finally:
        _set_host_state(state)


def _set_bit_generator(generator: Any, bits: Any, seeds: Any) -> None:
    generator.state = bits
    present = getattr(generator.seed_seq, "state", None)
    if seeds is None or seeds == present:
        return
    children = "n_children_spawned"
    if present and seeds == {**present, children: seeds[children]} and seeds[children] > present[children]:
        generator.seed_seq.spawn(
            seeds[children] - present[children]
        )  # keep the object: the program may hold a reference
    else:
        generator.__setstate__((bits, numpy.random.SeedSequence(**seeds)))


def seed_host(key: bytes) -> None:
    """Seed the host's generators from 16 bytes; CUDA's are not changed."""
    random.seed(key)
    numpy.random.seed(numpy.frombuffer(key, numpy.uint32))
    torch.default_generator.manual_seed(int.from_bytes(key[:8], "little"))


def _host_state() -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": numpy.random.get_state(legacy=False),
        "torch": torch.get_rng_state(),
    }


def _set_host_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    numpy.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
