"""Which offers a job may use at all; each that it may not has ONE binding reason, the first that applies.

Must not know: what anything would cost or how long it would take (objectives.py adds deadline and budget).
"""

from __future__ import annotations

from enum import IntEnum
from fnmatch import fnmatchcase
from functools import cache

import numpy as np
from numpy.typing import NDArray

from orchestrator.market import Market
from orchestrator.model import Job
from orchestrator.policy.demand import Rails
from providers.hardware import GPUS
from providers.offer import CapacityType

Bars = NDArray[np.int8]


class Bar(IntEnum):
    """What bars an offer, in the order of examination: the higher, the nearer to a fit."""

    GPU = 1
    GPU_COUNT = 2
    GPU_MEMORY = 3
    CPU = 4
    MEMORY = 5
    CLOUD = 6
    REGION = 7
    CAPACITY_TYPE = 8
    NO_PRICE = 9
    STALE_PRICE = 10
    NO_CAPACITY = 11
    DEADLINE = 12
    BUDGET = 13


NONE = 0
"""The value in a Bars column of an offer that nothing bars."""


def screen(job: Job, market: Market, rails: Rails, current: int | None) -> Bars:
    """The bar of each offer, NONE where there is none.

    The offer that the job runs on (`current`) is never barred by a stale price or by missing capacity: it has it.
    """
    wants, where = job.spec.resources, job.spec.where
    bars = np.zeros(len(market), np.int8)

    def bar(code: Bar, mask: NDArray[np.bool_]) -> None:
        bars[mask & (bars == NONE)] = code

    if wants.gpus:
        kinds = [market.gpu_names.index(g.name) if g.name in market.gpu_names else -2 for g in wants.gpus]
        bar(Bar.GPU, ~np.isin(market.gpu_kind, kinds))
        fits = np.zeros(len(market), np.bool_)
        for kind, request in zip(kinds, wants.gpus, strict=True):
            fits |= (market.gpu_kind == kind) & (market.gpu_count == request.count)
        bar(Bar.GPU_COUNT, ~fits)
    if wants.gpu_memory_bytes is not None:
        least, most = wants.gpu_memory_bytes
        # The last entry answers for index -1: no GPU, no memory.
        memory = np.array([*(GPUS[name].memory_bytes for name in market.gpu_names), 0])[market.gpu_kind]
        bar(Bar.GPU_MEMORY, (memory < least) | (memory > (most if most is not None else memory)))
    if wants.cpu is not None:
        bar(Bar.CPU, market.vcpu < wants.cpu)
    if wants.memory_bytes is not None:
        bar(Bar.MEMORY, market.memory_bytes < wants.memory_bytes)
    if where.clouds:
        bar(Bar.CLOUD, ~_matching(market.provider, where.clouds))
    if where.regions:
        bar(Bar.REGION, ~_matching(market.region, where.regions))
    if CapacityType.SPOT not in job.spec.capacity:
        bar(Bar.CAPACITY_TYPE, market.spot)
    if CapacityType.ON_DEMAND not in job.spec.capacity:
        bar(Bar.CAPACITY_TYPE, ~market.spot)
    bar(Bar.NO_PRICE, ~market.priced)
    elsewhere = np.ones(len(market), np.bool_)
    if current is not None:
        elsewhere[current] = False
    bar(Bar.STALE_PRICE, elsewhere & (market.price_age_s > rails.max_price_age_s))
    bar(Bar.NO_CAPACITY, elsewhere & market.shut)
    return bars


def _matching(names: tuple[str, ...], patterns: tuple[str, ...]) -> NDArray[np.bool_]:
    @cache
    def matches(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    return np.fromiter((matches(name) for name in names), np.bool_, len(names))
