"""A synthetic data set for image classification: gratings, checks, discs, rings and crosses with noise.

Each image is a pure function of (seed, index).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

CLASSES = ("horizontal", "vertical", "diagonal", "checks", "disc", "ring", "cross", "square")


class Shapes(Dataset[tuple[Tensor, int]]):
    """`count` float32 images of shape (1, side, side) and class index % 8; size, position, phase and noise vary."""

    def __init__(self, count: int, seed: int, side: int = 24, noise: float = 0.6) -> None:
        self._count = count
        self._seed = seed
        self._side = side
        self._noise = noise

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not 0 <= index < self._count:
            raise IndexError(index)
        kind = index % len(CLASSES)
        numbers = numpy.random.Generator(numpy.random.Philox(key=[self._seed, index]))
        image = _draw(CLASSES[kind], self._side, numbers)
        noisy = image + self._noise * numbers.standard_normal(image.shape, numpy.float32)
        return torch.from_numpy(noisy[None]), kind


def _draw(kind: str, side: int, numbers: numpy.random.Generator) -> NDArray[numpy.float32]:
    axis = numpy.linspace(-1, 1, side, dtype=numpy.float32)
    x, y = axis[None, :], axis[:, None]
    phase, pitch = numbers.uniform(0, 2 * math.pi), numbers.uniform(6, 12)
    left, top = numbers.uniform(-0.4, 0.4, 2)
    size = numbers.uniform(0.3, 0.55)
    across, down = numpy.abs(x - left), numpy.abs(y - top)
    distance = numpy.sqrt(across**2 + down**2)
    pictures: dict[str, Callable[[], NDArray[Any]]] = {
        "horizontal": lambda: numpy.sin(pitch * y + phase) + 0 * x,
        "vertical": lambda: numpy.sin(pitch * x + phase) + 0 * y,
        "diagonal": lambda: numpy.sin(pitch * (x + y) / math.sqrt(2) + phase),
        "checks": lambda: numpy.sign(numpy.sin(pitch * x + phase) * numpy.sin(pitch * y + phase)),
        "disc": lambda: numpy.where(distance < size, 1.0, -1.0),
        "ring": lambda: numpy.where(numpy.abs(distance - size) < 0.12, 1.0, -1.0),
        "cross": lambda: numpy.where(numpy.minimum(across, down) < 0.12, 1.0, -1.0),
        "square": lambda: numpy.where(numpy.maximum(across, down) < size, 1.0, -1.0),
    }
    return numpy.asarray(pictures[kind](), numpy.float32)
