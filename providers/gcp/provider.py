"""GcpProvider: rents machines on Compute Engine, spot and on-demand.

A launch is one call for all its machines, in the zone of its offer: GCP starts all of them or none. It is sent once and
never repeated by the library; its request id and the names of its machines are derived from the launch token, so
Tradewind can safely repeat it. A launch that accepts several zones is one call to their region.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from providers.base import Landed, LaunchSpec, Quota
from providers.bucket import Bucket
from providers.clock import Clock
from providers.closed import Closed
from providers.errors import ConflictError, NotFoundError, ProviderError, SetupError, UnavailableError
from providers.gcp import quotas
from providers.gcp.buckets import Buckets
from providers.gcp.calls import INSTALL
from providers.gcp.codes import CHANGED
from providers.gcp.images import Images
from providers.gcp.market import Market
from providers.gcp.names import PROVIDER, instance_id, label, names, pattern, place_of, region_of_zone, request_id
from providers.gcp.networks import Networks
from providers.gcp.request import Base, anywhere, call
from providers.gcp.rows import Row, forgotten, instance, landed_in, launch_of
from providers.gcp.session import Connections, converted, failure, is_done, provider_error
from providers.gcp.settings import Settings
from providers.instance import Instance, InstanceState
from providers.machine.lifetime import LIVES, lives
from providers.network import Network
from providers.offer import Offer, OfferId
from providers.price import PricePoint
from providers.rentable import rentable

CALL_S, PATIENCE_S = 10.0, 12.0
REFUSED_S = 15.0
"""How long a launch is watched: its operation reports a lack of capacity, mostly within seconds."""
MOST_REFUSALS = 5
"""Attempts with one token. GCP answers a repeated request with the earlier refusal, so each attempt is a new
request."""
MOST_NAMES = 50
"""Values in one filter."""
MOST_ZONES = 10
USED = "the token was used for another request"


@dataclass(frozen=True, slots=True)
class Send:
    """A launch: the call, and the client that knows its operation by its `place` (a zone or a region)."""

    client: str
    method: str
    fields: Mapping[str, Any]
    operations: str
    place: str


class GcpProvider:
    """The provider `gcp`. Credentials are those that google.auth finds (application default)."""

    name = PROVIDER
    simulated = False
    quotas_limit_plans = True
    listing_lag_s = 120.0  # GCP guarantees no time; a launch that takes minutes is shown once its operation begins
    describe_every_s = 5.0  # one or two calls; GCP allows 1500 reads a minute and project

    def __init__(self, settings: Settings, clock: Clock, connections: Connections | None = None) -> None:
        if connections is None:
            connections = Connections(settings.project, settings.endpoint, CALL_S, PATIENCE_S)
        self._settings, self._clock, self._connections = settings, clock, connections
        self._market = Market(settings, connections, clock)
        self._images = Images(connections, clock)
        self._networks = Networks(connections, clock)
        self._buckets = Buckets(connections)
        self._launched: dict[str, float] = {}  # id -> launch time of machines that GCP may not show yet
        self._ended: dict[str, Instance] = {}  # the first report about each ended machine
        self._last: dict[str, dict[str, list[Instance]]] = {}  # installation -> zone -> its last answer

    # --- Provider ---

    def offers(self) -> Sequence[Offer]:
        """The configured types in all zones of the configured regions that have them."""
        return self._market.offers()

    def prices(self) -> Sequence[PricePoint]:
        """The present prices."""
        return self._market.prices()

    def closed(self) -> Sequence[Closed]:
        """See NamesClosed."""
        return self._market.closed()

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        """See Provider.launch. Waits up to REFUSED_S for a refusal."""
        offer = self._offered(spec.offer_id)
        base = self._base(spec, offer)
        method, fields = call(spec, offer, base)
        ids = tuple(instance_id(offer.zone, name) for name in names(spec.token, offer, spec.count))
        try:
            self._accepted(spec, base, Send("InstancesClient", method, fields, "ZoneOperationsClient", "zone"))
        except ConflictError:
            self._launched_before(spec, offer, ids)
        self._launched |= dict.fromkeys(ids, self._clock.monotonic_s())
        return ids

    # --- LaunchesAnywhere ---

    mixes_types = False

    def most_offers(self, _count: int) -> int:
        """See LaunchesAnywhere: at least the number of zones of any region."""
        return MOST_ZONES

    def launch_any(self, spec: LaunchSpec) -> Landed:
        """See LaunchesAnywhere. GCP chooses the zone.

        Names are unique only within a zone, and a request id is remembered only for a while. So machines that this
        token has launched before are looked up first. A repeated call with another request is not noticed before GCP
        shows the first call's machines.
        """
        offers = [self._offered(each) for each in (spec.offer_id, *spec.also)]
        offer, zones = offers[0], [each.zone for each in offers]
        if any(replace(each, zone=offer.zone) != offer for each in offers):
            raise SetupError(f"the offers of one launch on GCP differ in more than their zone: {' '.join(spec.also)}")
        if (landed := self._landed(spec, offer)) is not None:
            return landed
        base = self._base(spec, offer)
        with converted():
            others = set(self._connections.zones_by_region().get(offer.region, ())) - set(zones)
        fields = anywhere(spec, offer, base, zones, sorted(others))
        send = Send("RegionInstancesClient", "bulk_insert_unary", fields, "RegionOperationsClient", "region")
        with suppress(ConflictError):  # GCP chose a zone that already has these machines
            if (chosen := landed_in(self._accepted(spec, base, send), spec.count)) is not None:
                landed = _at(spec, replace(offer, zone=chosen))
        try:
            landed = landed or self._landed(spec, offer, ended=True)
        except ProviderError as error:
            if error.retryable or isinstance(error, ConflictError):
                raise
            raise UnavailableError(f"the zone of the launch cannot be looked up: {error}", hint=error.hint) from error
        if landed is None:
            raise UnavailableError(
                f"GCP does not show yet in which zone it launched the machines of the token {spec.token}"
            )
        self._launched |= dict.fromkeys(landed.instance_ids, self._clock.monotonic_s())
        return landed

    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        """See Provider.describe."""
        places = list(filter(None, map(place_of, instance_ids)))
        found: dict[str, Instance] = {}
        for start in range(0, len(places), MOST_NAMES):
            wanted = set(places[start : start + MOST_NAMES])
            each_name = "|".join(sorted({re.escape(name) for _, name in wanted}))
            found |= {each.id: each for each in self._found(each_name, wanted)}
        return [found[each] for each in instance_ids if each in found]

    def find(self, token: str, region: str) -> Sequence[Instance]:
        """See Provider.find."""
        found = [each for each in self._found(pattern(token), None) if OfferId.parse(each.offer_id).region == region]
        real = {place[1] for each in found if each.billed_from_ms is not None and (place := place_of(each.id))}
        # earlier zones that GCP tried no longer matter
        return [
            each for each in found if each.billed_from_ms is not None or (place_of(each.id) or ("", ""))[1] not in real
        ]

    def renew(self, instance_ids: Sequence[str], time_to_live_s: int) -> None:
        """See Provider.renew: sets metadata, which the machine reads."""
        value = lives(time_to_live_s, self._clock.now_ms())
        for zone, name in filter(None, map(place_of, instance_ids)):
            with suppress(NotFoundError):
                try:
                    self._set_lives(zone, name, value)
                except UnavailableError as error:
                    if not any(code in str(error) for code in CHANGED):
                        raise
                    self._set_lives(zone, name, value)  # another caller has changed its metadata meanwhile

    def terminate(self, instance_id: str) -> None:
        """See Provider.terminate. Raises UnavailableError for a machine that GCP does not show yet."""
        place = place_of(instance_id)
        if place is None:
            return
        zone, name = place
        try:
            self._connections.ask("InstancesClient", "delete_unary", zone=zone, instance=name)
        except NotFoundError as error:
            since_s = self._clock.monotonic_s() - self._launched.get(instance_id, -self.listing_lag_s)
            if since_s < self.listing_lag_s and not self.describe([instance_id]):
                raise UnavailableError(
                    f"GCP does not know {instance_id} yet", hint="Tradewind ends it when GCP shows it"
                ) from error

    def list_owned(self, install: str) -> Sequence[Instance]:
        """See Provider.list_owned. Asks all zones of the project; for one that does not answer, returns its last
        answer.

        A machine that has shut down by itself keeps its disk, so it is deleted here.
        """
        found: dict[str, list[Instance]] = {}
        silent: set[str] = set()
        wanted = f"labels.{INSTALL} = {label(install)}"
        for zone, listed in self._connections.aggregated("InstancesClient", wanted):
            with converted():
                rows = [instance(zone, row, self._clock.now_ms()) for row in listed.instances]
            found.setdefault(zone, []).extend(rows)
            if listed.warning.code == "UNREACHABLE":
                silent.add(zone)
        last = self._last.get(install, {})
        found |= {zone: last.get(zone, []) for zone in silent}
        for each in (each for rows in found.values() for each in rows if not each.alive):
            self._ended.setdefault(each.id, each)
            with suppress(ProviderError):  # tried again by the next list
                self.terminate(each.id)
        self._last[install] = {zone: [each for each in rows if each.alive] for zone, rows in found.items()}
        return [each for _, rows in sorted(self._last[install].items()) for each in rows]

    def quotas(self) -> Sequence[Quota]:
        """The limits of vCPUs and GPUs that machines of the configured types count against: those of the configured
        regions, and those of the project."""
        types = self._settings.machine_types
        with converted():
            found = [quota for region in self._regions() for quota in quotas.in_region(region, types)]
            project = self._connections.ask("ProjectsClient", "get")
            return found + quotas.in_project(self._connections.project, project, types)

    def classify(self, error: BaseException) -> ProviderError:
        """See providers.gcp.codes; ProviderErrors unchanged."""
        return provider_error(error)

    # --- NeedsNetworks ---

    def networks(self, install: str) -> Sequence[Network]:
        """See NeedsNetworks. All regions share one network."""
        return self._networks.networks(install, self._settings.regions)

    def set_up(self, install: str, progress: Callable[[str], None]) -> None:
        """See NeedsNetworks."""
        self._networks.set_up(install, self._settings.regions, progress)

    def tear_down(self, install: str, progress: Callable[[str], None]) -> None:
        """See NeedsNetworks."""
        if self.list_owned(install):
            raise UnavailableError("machines are still in the network of this installation on GCP")
        self._networks.tear_down(install, progress)

    # --- MakesBuckets ---

    def bucket(self, install: str, name: str) -> Bucket | None:
        """See MakesBuckets."""
        return self._buckets.bucket(install, name)

    def make_bucket(self, install: str, name: str, region: str, progress: Callable[[str], None]) -> None:
        """See MakesBuckets."""
        self._buckets.make_bucket(install, name, region, progress)

    def remove_bucket(self, install: str, name: str, progress: Callable[[str], None]) -> None:
        """See MakesBuckets."""
        self._buckets.remove_bucket(install, name, progress)

    # --- launching ---

    def _offered(self, offer_id: str) -> OfferId:
        """See providers.rentable."""
        settings = self._settings
        offer = rentable(offer_id, PROVIDER, settings.regions, settings.machine_types, "machine_types")
        if region_of_zone(offer.zone) != offer.region:
            raise NotFoundError(f"{offer_id}: the zone is not in that region")
        return offer

    def _base(self, spec: LaunchSpec, offer: OfferId) -> Base:
        disk_gb = self._settings.disk_gb + spec.disk_gb
        network = self._networks.place(spec.tags.get(INSTALL, ""), offer.region)
        return Base(self._images.named(spec.image or self._settings.image, disk_gb), disk_gb, network)

    def _accepted(self, spec: LaunchSpec, base: Base, send: Send) -> Row:
        """Send a launch. Returns its operation, which has ended or was watched for REFUSED_S."""
        try:
            for attempt in range(MOST_REFUSALS):
                asked = {**send.fields, "request_id": request_id(spec.token, spec.fingerprint, attempt)}
                operation = self._connections.once(send.client, send.method, **asked)
                if not operation.name:
                    raise UnavailableError("GCP's answer to a launch names no operation: it may have been accepted")
                earlier = is_done(operation)  # the answer to an earlier request with this id
                if not earlier:
                    where = {send.place: send.fields[send.place], "operation": operation.name}
                    with suppress(ProviderError):  # it was accepted: `describe` reports its result
                        operation = self._connections.once(send.operations, "wait", REFUSED_S, **where)
                if (refused := failure(operation)) is None:
                    break
                if not earlier or attempt == MOST_REFUSALS - 1:
                    raise refused
        except ProviderError as error:
            if base.network in str(error) and not isinstance(error, ConflictError):
                self._networks.forget(spec.tags.get(INSTALL, ""))
                if isinstance(error, NotFoundError):
                    hint = "create it again: tradewind up --cloud gcp"
                    raise SetupError(f"the network was deleted: {error}", hint=hint, scope="region") from error
            raise
        return operation

    def _landed(self, spec: LaunchSpec, offer: OfferId, *, ended: bool = False) -> Landed | None:
        """Where the machines of a launch are, if GCP shows them all (with `ended`, also in its log); otherwise None.
        Raises ConflictError if they were launched otherwise."""
        zones: dict[str, set[str]] = {}
        for zone, row in self._rows(f'name eq "{pattern(spec.token)}"'):
            if region_of_zone(zone) == offer.region:
                if launch_of(row).get("request") != spec.fingerprint:
                    raise ConflictError(USED, hint="use a new token for a new request")
                zones.setdefault(zone, set()).add(row.name)
        wanted = set(names(spec.token, offer, spec.count))
        if ended and wanted not in zones.values():
            for zone, name in filter(None, (place_of(each.id) for each in self.find(spec.token, offer.region))):
                zones.setdefault(zone, set()).add(name)
        whole = [zone for zone in sorted(zones) if zones[zone] == wanted]
        return _at(spec, replace(offer, zone=whole[0])) if whole else None

    def _launched_before(self, spec: LaunchSpec, offer: OfferId, ids: Sequence[str]) -> None:
        """Compare with the machines that have these names already. Raises ConflictError if they were launched
        otherwise, and UnavailableError if GCP does not show them yet."""
        shown = self._rows(f'name eq "{pattern(spec.token)}"')
        rows = {instance_id(zone, row.name): row for zone, row in shown if zone == offer.zone}
        if not rows:
            raise UnavailableError(f"GCP does not yet show the machines launched with the token {spec.token}")
        if any(launch_of(row).get("request") != spec.fingerprint for row in rows.values()):
            raise ConflictError(USED, hint="use a new token for a new request")
        if rows.keys() != set(ids):
            raise UnavailableError(f"GCP does not yet show all machines launched with the token {spec.token}")

    # --- asking ---

    def _regions(self) -> list[Any]:
        with converted():
            rows = self._connections.list("RegionsClient")
        return [region for region in rows if region.name in self._settings.regions]

    def _rows(self, wanted: str) -> Iterator[tuple[str, Row]]:
        for zone, listed in self._connections.aggregated("InstancesClient", wanted):
            for row in listed.instances:
                yield zone, row

    def _found(self, each_name: str, wanted: set[tuple[str, str]] | None) -> list[Instance]:
        """Machines whose names match a pattern, at these places only: those with a row, then those that have ended."""
        with converted():
            return self._all_found(each_name, wanted)

    def _all_found(self, each_name: str, wanted: set[tuple[str, str]] | None) -> list[Instance]:
        now_ms = self._clock.now_ms()
        found: dict[tuple[str, str], Instance] = {}
        for zone, row in self._rows(f'name eq "{each_name}"'):
            if wanted is None or (zone, row.name) in wanted:
                found[zone, row.name] = instance(zone, row, now_ms)
        if wanted is None or len(found) < len(wanted):
            operations: dict[tuple[str, str], list[Row]] = {}
            for zone, listed in self._connections.aggregated(
                "GlobalOperationsClient", f'targetLink eq ".*/instances/({each_name})"'
            ):
                for row in listed.operations:
                    operations.setdefault((zone, row.target_link.rpartition("/")[2]), []).append(row)
            for (zone, name), rows in operations.items():
                if (zone, name) not in found and (wanted is None or (zone, name) in wanted):
                    ended = forgotten(zone, name, rows, self._settings.machine_types)
                    if ended is not None and place_of(ended.id):
                        found[zone, name] = ended
        for place, each in found.items():
            if each.state is InstanceState.TERMINATED:
                found[place] = self._ended.setdefault(each.id, each)
        return [found[place] for place in sorted(found)]

    def _set_lives(self, zone: str, name: str, value: str) -> None:
        row = self._connections.ask("InstancesClient", "get", zone=zone, instance=name)
        if not instance(zone, row, self._clock.now_ms()).alive:
            return
        items = [{"key": item.key, "value": item.value} for item in row.metadata.items if item.key != LIVES]
        resource = {"fingerprint": row.metadata.fingerprint, "items": [*items, {"key": LIVES, "value": value}]}
        self._connections.ask(
            "InstancesClient", "set_metadata_unary", zone=zone, instance=name, metadata_resource=resource
        )


def _at(spec: LaunchSpec, offer: OfferId) -> Landed:
    """The machines of a launch that landed at this offer."""
    return Landed(str(offer), tuple(instance_id(offer.zone, name) for name in names(spec.token, offer, spec.count)))
