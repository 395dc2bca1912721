"""Listing: the part of a market that does not change with prices, as columns of integer codes and short tables of their
meaning.

A hundred thousand offers have a few hundred sites and a few thousand shapes. Whatever depends only on those (GPU,
memory, region, egress) is computed once per site or shape and looked up per row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from providers.offer import CapacityType, Offer

Key = TypeVar("Key")
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Site(NamedTuple):
    """The place of machines."""

    provider: str
    region: str
    zone: str


class Shape(NamedTuple):
    """A kind of machine at one provider."""

    provider: str
    instance_type: str
    gpu: str | None
    gpu_count: int
    vcpu: int
    memory_bytes: int
    simulated: bool


class MachineKind(NamedTuple):
    """The hardware that throughput depends on: a GPU (None: no GPU) and its count."""

    gpu: str | None
    gpu_count: int


class ShapeColumns(NamedTuple):
    """Shapes as columns; `gpu` indexes `Listing.gpu_names` (-1: none), `provider` `Listing.providers`."""

    provider: Ints
    gpu: Ints
    gpu_count: Ints
    vcpu: Ints
    memory_bytes: Ints


_SITE = attrgetter("provider", "region", "zone")
_SHAPE = attrgetter("provider", "instance_type", "gpu", "gpu_count", "vcpu", "memory_bytes", "simulated")


@dataclass(frozen=True, eq=False, kw_only=True)
class Listing:
    """Offers sorted by id; `site` and `shape` index `sites` and `shapes`. Created by `Listing.of`."""

    ids: tuple[str, ...]
    sites: tuple[Site, ...]
    shapes: tuple[Shape, ...]
    site: Ints
    shape: Ints
    spot: Bools

    @classmethod
    def of(cls, offers: Iterable[Offer]) -> Listing:
        """The listing of these offers, given in any order. If several have the same id, the last one counts."""
        by_id = {offer.id: offer for offer in offers}
        ids = tuple(sorted(by_id))
        rows = [by_id[offer_id] for offer_id in ids]
        sites, site = _coded(Site(*_SITE(offer)) for offer in rows)
        shapes, shape = _coded(Shape(*_SHAPE(offer)) for offer in rows)
        spot = np.fromiter((offer.capacity_type is CapacityType.SPOT for offer in rows), np.bool_, len(rows))
        for column in (site, shape, spot):
            column.setflags(write=False)
        return cls(
            ids=ids,
            sites=sites,
            shapes=shapes,
            site=site,
            shape=shape,
            spot=spot,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {offer_id: row for row, offer_id in enumerate(self.ids)}

    def row(self, offer_id: str) -> int | None:
        """The row of an offer; None if it is not listed."""
        return self._rows.get(offer_id)

    def offer(self, row: int) -> Offer:
        """The row as an Offer."""
        site, shape = self.sites[self.site[row]], self.shapes[self.shape[row]]
        return Offer(
            provider=site.provider,
            region=site.region,
            zone=site.zone,
            instance_type=shape.instance_type,
            gpu=shape.gpu,
            gpu_count=shape.gpu_count,
            vcpu=shape.vcpu,
            memory_bytes=shape.memory_bytes,
            capacity_type=CapacityType.SPOT if self.spot[row] else CapacityType.ON_DEMAND,
            simulated=shape.simulated,
        )

    @cached_property
    def providers(self) -> tuple[str, ...]:
        """Names of the providers, sorted."""
        return tuple(sorted({site.provider for site in self.sites}))

    @cached_property
    def site_provider(self) -> Ints:
        """Index into `providers`, by site."""
        code = {name: index for index, name in enumerate(self.providers)}
        return np.array([code[site.provider] for site in self.sites], np.int64)

    @cached_property
    def regions(self) -> tuple[tuple[str, str], ...]:
        """(provider, region) of each site."""
        return tuple((site.provider, site.region) for site in self.sites)

    @cached_property
    def site_region(self) -> Ints:
        """A number for each region, by site."""
        code = {region: index for index, region in enumerate(sorted(set(self.regions)))}
        return np.array([code[region] for region in self.regions], np.int64)

    @cached_property
    def gpu_names(self) -> tuple[str, ...]:
        """Canonical names of all GPUs, sorted."""
        return tuple(sorted({shape.gpu for shape in self.shapes if shape.gpu is not None}))

    @cached_property
    def shape_columns(self) -> ShapeColumns:
        """The shapes as columns."""
        provider = {name: index for index, name in enumerate(self.providers)}
        gpu = {name: index for index, name in enumerate(self.gpu_names)}
        values = [
            (provider[s.provider], -1 if s.gpu is None else gpu[s.gpu], s.gpu_count, s.vcpu, s.memory_bytes)
            for s in self.shapes
        ]
        return ShapeColumns(*np.array(values, np.int64).reshape(-1, len(ShapeColumns._fields)).T)

    @cached_property
    def kinds(self) -> tuple[MachineKind, ...]:
        """Distinct kinds of hardware, sorted; those without a GPU come first."""
        found = {MachineKind(shape.gpu, shape.gpu_count) for shape in self.shapes}
        return tuple(sorted(found, key=lambda kind: (kind.gpu is not None, kind.gpu or "", kind.gpu_count)))

    @cached_property
    def kind(self) -> Ints:
        """Index into `kinds`, by row."""
        code = {kind: index for index, kind in enumerate(self.kinds)}
        return np.array([code[MachineKind(shape.gpu, shape.gpu_count)] for shape in self.shapes], np.int64)[self.shape]

    @cached_property
    def simulated_providers(self) -> frozenset[str]:
        """Providers whose offers are simulated."""
        return frozenset(shape.provider for shape in self.shapes if shape.simulated)

    @property
    def simulated(self) -> bool:
        """Whether any of the offers is simulated."""
        return bool(self.simulated_providers)

    @cached_property
    def mixed(self) -> bool:
        """Whether there are both simulated and real offers."""
        return 0 < len(self.simulated_providers) < len(self.providers)

    @cached_property
    def known(self) -> dict[Hashable, NDArray[np.int8]]:
        """A cache for the policy: columns that depend only on the listing and on their key."""
        return {}

    @cached_property
    def digest(self) -> bytes:
        """A hash of all its content."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update("\n".join(self.ids).encode())
        digest.update(repr((self.sites, self.shapes)).encode())
        for column in (self.site, self.shape):
            digest.update(column.tobytes())
        return digest.digest()


def _coded(keys: Iterable[Key]) -> tuple[tuple[Key, ...], Ints]:
    """(distinct keys in order of appearance, the index of each key among them)."""
    codes: dict[Key, int] = {}
    column = np.array([codes.setdefault(key, len(codes)) for key in keys], np.int64)
    return tuple(codes), column
