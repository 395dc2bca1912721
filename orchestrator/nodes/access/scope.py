"""Scope: the part of the store that a machine may reach: its job's objects and its runtime."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.errors import SiteError
from trainers.errors import StoreNotFound
from trainers.objects.services import FORMS, Place, Service, place_of


@dataclass(frozen=True, slots=True)
class Scope:
    """Folders of buckets of one cloud, as URLs without a final slash: `writes` may be read and written, `reads` read
    only."""

    writes: tuple[str, ...]
    reads: tuple[str, ...] = ()

    @property
    def service(self) -> Service:
        """The cloud of the folders."""
        return place_of(self.writes[0]).service

    def places(self) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
        """The buckets and prefixes of `writes` and of `reads`."""
        return tuple(map(place_of, self.writes)), tuple(map(place_of, self.reads))


def scope_of(writes: tuple[str, ...], reads: tuple[str, ...] = ()) -> Scope:
    """The scope of these folders. Raises SiteError if one of them is not in a bucket, or if they are in several
    clouds."""
    for url in (*writes, *reads):
        try:
            place = place_of(url)
        except StoreNotFound as error:
            raise SiteError(
                f"machines of other hosts cannot reach {url}",
                hint=f"set store_root, and the job's checkpoint.to if it has one, to a bucket ({FORMS})",
            ) from error
        if place.service is not place_of(writes[0]).service:
            raise SiteError(
                f"{writes[0]} and {url} are in stores of two clouds, but a machine is lent access to only one",
                hint="put the job's checkpoint.to where store_root is",
            )
    return Scope(writes, reads)
