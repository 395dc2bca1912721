"""The states of the random number generators that a training loop draws from: python, numpy, torch, CUDA.

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
    """Seed every generator, on every device."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def capture_rng() -> dict[str, Any]:
    """The present state of every generator of this process."""
    return {
        **_host_state(),
        # Asked only when in use, for asking takes memory on every device.
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],  # type: ignore[no-untyped-call]
    }


def restore_rng(state: dict[str, Any]) -> None:
    """Put every generator back. Raises StateError when the checkpoint has more CUDA devices than this machine."""
    _set_host_state(state)
    if len(state["cuda"]) > torch.cuda.device_count():
        raise StateError(
            f"the checkpoint has the random state of {len(state['cuda'])} CUDA devices, this machine has "
            f"{torch.cuda.device_count()}",
            hint="resume on a machine with as many devices",
        )
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])


def is_generator(value: object) -> bool:
    """Is it a random number generator of python, numpy or torch whose state can be saved?"""
    if isinstance(value, random.SystemRandom):
        return False
    return isinstance(value, torch.Generator | random.Random | numpy.random.Generator | numpy.random.RandomState)


def generator_state(generator: Any) -> Any:
    """The state of what `is_generator` says is one: plain data, or a tensor."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, numpy.random.RandomState):
        return generator.get_state(legacy=False)
    # besides its numbers: how many children it has had, for each new one differs
    return {"bits": generator.bit_generator.state, "seeds": getattr(generator.bit_generator.seed_seq, "state", None)}


def set_generator_state(generator: Any, state: Any, path: str) -> None:
    """Put a generator back to a state of its kind. Raises StateError naming `path`."""
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
            f"the checkpoint has no state of a {type(generator).__qualname__} for {path}: {error}",
            hint="attach what the saving run attached",
        ) from error


@contextmanager
def untouched_rng() -> Iterator[None]:
    """Leave the host's generators as they were, whatever happens inside."""
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
        generator.seed_seq.spawn(seeds[children] - present[children])  # the program may know it by another name
    else:
        generator.__setstate__((bits, numpy.random.SeedSequence(**seeds)))


def seed_host(key: bytes) -> None:
    """Seed the host's generators from 16 bytes; CUDA's are left alone."""
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
