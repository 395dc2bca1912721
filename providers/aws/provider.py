"""AwsProvider: rents machines on EC2, spot and on-demand.

A launch is one RunInstances call for all its machines, in the zone of its offer: EC2 starts all of them or none. It is
sent once and never repeated by boto3; its ClientToken is our launch token, so Tradewind can safely repeat it. A launch
that may take any of several offers is a fleet (providers.aws.fleets).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from providers.aws.buckets import Buckets
from providers.aws.calls import INSTALL
from providers.aws.codes import NO_INSTANCE, NO_NETWORK, USED_TOKEN
from providers.aws.fleets import FleetRequest, Fleets, Place
from providers.aws.images import Images
from providers.aws.market import MOST_AT_ONCE, Market
from providers.aws.networks import SEES_TEMPLATES, Networks
from providers.aws.quotas import Quotas
from providers.aws.regions import enabled_regions, pages_of
from providers.aws.rows import PROVIDER, REQUEST, TOKEN, Row, instance, instance_id, place_of, tags_of
from providers.aws.session import Connections, error_code, to_provider_error
from providers.aws.settings import Settings
from providers.aws.user_data import user_data
from providers.base import Landed, LaunchSpec, Quota
from providers.bucket import Bucket
from providers.clock import Clock
from providers.closed import Closed
from providers.errors import ConflictError, PermissionDeniedError, ProviderError, SetupError, UnavailableError
from providers.instance import Instance, InstanceState
from providers.machine.lifetime import LIVES, lives
from providers.network import Network, in_each
from providers.offer import Offer, OfferId
from providers.price import PricePoint
from providers.rentable import rentable

REGIONS_FRESH_S = 3600.0
MOST_OFFERS = 20
"""Offers of one launch. EC2 accepts 300 overrides; this covers the zones of a region with a few types each."""
MOST_VALUES = 200
"""Values in one filter of a Describe call."""
_ALIVE = ["pending", "running", "shutting-down", "stopping", "stopped"]


class AwsProvider:
    """The provider `aws`. Credentials and endpoints follow boto3's conventions."""

    name = PROVIDER
    simulated = False
    quotas_limit_plans = True
    listing_lag_s = 120.0  # AWS promises only eventual consistency; its own advice is to allow minutes
    describe_every_s = 5.0  # two calls; EC2's throttling refills 20 requests a second per region

    def __init__(self, settings: Settings, clock: Clock, connections: Connections | None = None) -> None:
        self._settings, self._clock = settings, clock
        self._connections = Connections() if connections is None else connections
        self._market = Market(settings, self._connections, clock)
        self._images = Images(self._connections, clock)
        self._networks = Networks(self._connections, clock)
        self._buckets = Buckets(self._connections)
        self._fleets = Fleets(self._connections, clock)
        self._quotas = Quotas(self._connections, clock)
        self._enabled: tuple[float, tuple[str, ...]] | None = None
        self._ended: dict[str, int] = {}  # id -> when it was first seen to have ended
        self._launched: dict[str, float] = {}  # id -> launch time of machines that EC2 may not show yet
        self._last: dict[tuple[str, str], list[Instance]] = {}  # (installation, region) -> its last answer

    # --- Provider ---

    def offers(self) -> Sequence[Offer]:
        """The configured types in all zones of the configured regions that have them."""
        return self._market.offers()

    def prices(self) -> Sequence[PricePoint]:
        """The present prices."""
        newest = {point.offer_id: point for point in self._market.prices(self._clock.now_ms())}
        return list(newest.values())

    def closed(self) -> Sequence[Closed]:
        """See NamesClosed."""
        return self._market.closed()

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        """See Provider.launch."""
        offer = self._offered(spec.offer_id)
        with self._converted(offer.region):
            request = self._request(spec, offer)
            try:
                answer = self._connections.client("ec2", offer.region, once=True).run_instances(**request)
            except Exception as error:
                if error_code(error) in USED_TOKEN:
                    return self._launched_before(spec, offer.region)
                if error_code(error) in NO_NETWORK:
                    self._networks.forget(_install(spec), offer.region)
                raise
            rows = sorted(answer["Instances"], key=lambda row: int(row["AmiLaunchIndex"]))
            ids = tuple(instance_id(offer.region, row) for row in rows)
        self._launched |= dict.fromkeys(ids, self._clock.monotonic_s())
        return ids

    # --- LaunchesAnywhere ---

    mixes_types = True

    def most_offers(self, _count: int) -> int:
        """See LaunchesAnywhere."""
        return MOST_OFFERS if self._fleets.taken else 1

    def launch_any(self, spec: LaunchSpec) -> Landed:
        """See LaunchesAnywhere. Always launches by a fleet: see providers.aws.fleets."""
        offers = [self._offered(each) for each in (spec.offer_id, *spec.also)]
        offer = offers[0]
        if any((each.region, each.spot) != (offer.region, offer.spot) for each in offers):
            differ = "differ in more than their zone and type"
            raise SetupError(f"the offers of one launch on AWS {differ}: {offer} {' '.join(spec.also)}")
        with self._converted(offer.region):
            places = self._places(spec, offers)
            overrides = [
                {"SubnetId": subnet, "InstanceType": kind, "Priority": float(number)}
                for number, (subnet, kind) in enumerate(places)
            ]
            template = _template(self._request(spec, offer), spec)
        try:
            with self._converted(offer.region):
                request = FleetRequest(spec, offer.region, template, overrides, offer.spot)
                launched = self._fleets.launch(request)
        except SetupError:
            self._networks.forget(_install(spec), offer.region)
            raise
        if launched is None:
            return self._landed_before(spec, offer.region)
        place, found = launched
        ids = tuple(instance_id(offer.region, {"InstanceId": each}) for each in found)
        self._launched |= dict.fromkeys(ids, self._clock.monotonic_s())
        return Landed(str(places[place]), ids)

    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        """See Provider.describe."""
        found = {
            each.id: each
            for region, own in self._by_region(instance_ids).items()
            for values in _pieces(own)
            for each in self._found(region, {"Name": "instance-id", "Values": values})
        }
        return [found[each] for each in instance_ids if each in found]

    def find(self, token: str, region: str) -> Sequence[Instance]:
        """See Provider.find. Searches by the token itself, which an ended machine keeps, unlike its tags."""
        if region not in self._regions():
            return []
        found = self._found(region, {"Name": "client-token", "Values": [token]})
        if found:
            return found
        ids: list[str] | None = None
        try:
            with self._converted(region):
                ids = self._fleets.machines(token, region)
        except PermissionDeniedError as error:
            if error.action != SEES_TEMPLATES:  # without it, search by the tag
                raise
        by = {"Name": f"tag:{TOKEN}", "Values": [token]} if ids is None else {"Name": "instance-id", "Values": ids}
        return [replace(each, token=token) for each in (self._found(region, by) if ids != [] else [])]

    def renew(self, instance_ids: Sequence[str], time_to_live_s: int) -> None:
        """See Provider.renew: sets a tag, which the machine reads."""
        tag = {"Key": LIVES, "Value": lives(time_to_live_s, self._clock.now_ms())}
        for region, own in self._by_region(instance_ids).items():
            ec2 = self._connections.client("ec2", region)
            with self._converted(region):
                try:
                    ec2.create_tags(Resources=own, Tags=[tag])
                except Exception as error:
                    if error_code(error) not in NO_INSTANCE:
                        raise
                    shown = [row["InstanceId"] for row in self._rows(region, {"Name": "instance-id", "Values": own})]
                    if shown:
                        ec2.create_tags(Resources=shown, Tags=[tag])

    def terminate(self, instance_id: str) -> None:
        """See Provider.terminate. Raises UnavailableError for a machine that EC2 does not show yet."""
        for region, own in self._by_region([instance_id]).items():
            with self._converted(region):
                try:
                    self._connections.client("ec2", region).terminate_instances(InstanceIds=own)
                except Exception as error:
                    if error_code(error) not in NO_INSTANCE:
                        raise
                    since_s = self._clock.monotonic_s() - self._launched.get(instance_id, -self.listing_lag_s)
                    if since_s < self.listing_lag_s:
                        raise UnavailableError(
                            f"EC2 does not know {instance_id} yet", hint="Tradewind ends it when EC2 shows it"
                        ) from error

    def list_owned(self, install: str) -> Sequence[Instance]:
        """See Provider.list_owned. Asks all regions of the account; for one that does not answer, returns its last
        answer."""
        owned = {"Name": f"tag:{INSTALL}", "Values": [install]}
        alive = {"Name": "instance-state-name", "Values": _ALIVE}
        regions = self._regions()

        def asked(region: str) -> list[Instance] | ProviderError:
            try:
                if region in self._settings.regions:
                    with suppress(ProviderError), self._converted(region):
                        self._fleets.tidy(install, region)
                return self._found(region, owned, alive)
            except ProviderError as error:
                return error

        with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
            answers = dict(zip(regions, pool.map(asked, regions), strict=True))
        errors = [each for each in answers.values() if isinstance(each, ProviderError)]
        if len(errors) == len(regions):
            raise errors[0]
        self._last |= {(install, region): each for region, each in answers.items() if isinstance(each, list)}
        return [each for region in regions for each in self._last.get((install, region), [])]

    def quotas(self) -> Sequence[Quota]:
        """The vCPU quotas of the configured types' families in the configured regions. Raises the first error."""

        def asked(region: str) -> list[Quota]:
            with self._converted(region):
                return self._quotas.of(region, self._settings.instance_types)

        with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
            return [each for found in pool.map(asked, self._settings.regions) for each in found]

    def classify(self, error: BaseException) -> ProviderError:
        """See providers.aws.codes; ProviderErrors unchanged."""
        if isinstance(error, ProviderError):
            return error
        known = to_provider_error(error) if isinstance(error, Exception) else None
        return known or UnavailableError(f"the aws provider failed: {error!r}", hint="run: tradewind doctor")

    # --- ProvidesPriceHistory ---

    def price_history(self, since_ms: int) -> Sequence[PricePoint]:
        """See ProvidesPriceHistory."""
        return self._market.prices(since_ms)

    # --- NeedsNetworks ---

    def networks(self, install: str) -> Sequence[Network]:
        """See NeedsNetworks."""
        wanted = self._settings.regions

        def look(region: str) -> Network | None:
            with self._converted(region):
                return self._networks.network(install, region, wanted=region in wanted)

        with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
            return [found for found in pool.map(look, dict.fromkeys([*wanted, *self._regions()])) if found is not None]

    def set_up(self, install: str, progress: Callable[[str], None]) -> None:
        """See NeedsNetworks."""

        def make(region: str) -> None:
            with self._converted(region):
                self._networks.set_up(install, region, progress)

        in_each(self._settings.regions, make)

    def tear_down(self, install: str, progress: Callable[[str], None]) -> None:
        """See NeedsNetworks."""

        def remove(region: str) -> None:
            with self._converted(region):
                self._networks.tear_down(install, region, progress)

        in_each([found.region for found in self.networks(install) if found.parts], remove)

    # --- MakesBuckets ---

    def bucket(self, install: str, name: str) -> Bucket | None:
        """See MakesBuckets."""
        with self._converted(""):
            return self._buckets.bucket(install, name)

    def make_bucket(self, install: str, name: str, region: str, progress: Callable[[str], None]) -> None:
        """See MakesBuckets."""
        with self._converted(region):
            self._buckets.make_bucket(install, name, region, progress)

    def remove_bucket(self, install: str, name: str, progress: Callable[[str], None]) -> None:
        """See MakesBuckets."""
        with self._converted(""):
            self._buckets.remove_bucket(install, name, progress)

    # --- launching ---

    def _offered(self, offer_id: str) -> OfferId:
        """See providers.rentable."""
        settings = self._settings
        return rentable(offer_id, PROVIDER, settings.regions, settings.instance_types)

    def _request(self, spec: LaunchSpec, offer: OfferId) -> dict[str, Any]:
        """The parameters of RunInstances: the same for the same spec, as long as the image is the same."""
        image = self._images.named(spec.image or self._settings.image, offer.region)
        tags = {**spec.tags, REQUEST: spec.fingerprint}
        if spec.time_to_live_s is not None:
            tags[LIVES] = str(spec.time_to_live_s)
        tagged = [{"Key": key, "Value": value} for key, value in tags.items()]
        kinds = ("instance", "volume", "network-interface", *(("spot-instances-request",) if offer.spot else ()))
        subnet, group = self._networks.place(_install(spec), offer.region, offer.zone)
        card = {
            "DeviceIndex": 0,
            "SubnetId": subnet,
            "Groups": [group],
            "AssociatePublicIpAddress": True,  # outbound access; the security group lets nothing in
            "DeleteOnTermination": True,
        }
        disk_gb = self._settings.disk_gb + spec.disk_gb
        disk = {"VolumeSize": disk_gb, "VolumeType": "gp3", "DeleteOnTermination": True}
        request: dict[str, Any] = {
            "ClientToken": spec.token,
            "MinCount": spec.count,
            "MaxCount": spec.count,
            "ImageId": image.id,
            "InstanceType": offer.instance_type,
            "Placement": {"AvailabilityZoneId": offer.zone},
            "NetworkInterfaces": [card],
            "BlockDeviceMappings": [{"DeviceName": image.root_device, "Ebs": disk}],
            "UserData": user_data(spec.user_data, spec.time_to_live_s),
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {
                "HttpTokens": "required",
                "HttpPutResponseHopLimit": 1,
                "InstanceMetadataTags": "enabled",
            },
            "TagSpecifications": [{"ResourceType": kind, "Tags": tagged} for kind in kinds],
        }
        if offer.spot:
            once = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
            request["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": once}
        return request

    def _places(self, spec: LaunchSpec, offers: Sequence[OfferId]) -> dict[Place, OfferId]:
        """The offers by subnet and type. Zones other than the first are left out if they have no subnet yet."""
        found: dict[Place, OfferId] = {}
        for each in offers:
            try:
                subnet, _ = self._networks.place(_install(spec), each.region, each.zone)
            except SetupError:
                if not found:
                    raise
            else:
                found[subnet, each.instance_type] = each
        return found

    def _launched_before(self, spec: LaunchSpec, region: str) -> tuple[str, ...]:
        """The machines of a token that EC2 has seen before, with another request or with machines that have ended.
        Raises ConflictError, and UnavailableError if EC2 does not show them yet."""
        rows = self._rows(region, {"Name": "client-token", "Values": [spec.token]})
        if not rows:
            raise UnavailableError(f"EC2 does not yet show the machines launched with the token {spec.token}")
        if any(tags_of(row).get(REQUEST, spec.fingerprint) != spec.fingerprint for row in rows):
            raise ConflictError("the token was used for another request", hint="use a new token for a new request")
        return tuple(instance_id(region, row) for row in sorted(rows, key=lambda row: int(row["AmiLaunchIndex"])))

    def _landed_before(self, spec: LaunchSpec, region: str) -> Landed:
        """The machines of a token whose fleet was requested in other zones: a subnet has been created or removed since.
        Raises UnavailableError if EC2 does not show them."""
        found = self._found(region, {"Name": f"tag:{TOKEN}", "Values": [spec.token]})
        if len(found) != spec.count:
            raise UnavailableError(
                f"EC2 does not show the machines launched in other zones with the token {spec.token}"
            )
        return Landed(found[0].offer_id, tuple(sorted(each.id for each in found)))

    # --- asking ---

    def _regions(self) -> tuple[str, ...]:
        """The regions that the account has enabled: machines may be left in one that is no longer configured."""
        now_s = self._clock.monotonic_s()
        if self._enabled is None or now_s - self._enabled[0] > REGIONS_FRESH_S:
            with self._converted(""):
                ec2 = self._connections.client("ec2", self._settings.regions[0])
                self._enabled = now_s, tuple(enabled_regions(ec2))
        return self._enabled[1]

    def _rows(self, region: str, *filters: Mapping[str, Any]) -> list[Row]:
        with self._converted(region):
            ec2 = self._connections.client("ec2", region)
            pages = pages_of(ec2, "describe_instances", Filters=list(filters))
            return [row for page in pages for group in page["Reservations"] for row in group["Instances"]]

    def _found(self, region: str, *filters: Mapping[str, Any]) -> list[Instance]:
        """Machines by EC2's filters, with the notice and end from their spot requests."""
        rows = self._rows(region, *filters)
        requests: dict[str, Row] = {}
        with self._converted(region):
            ec2 = self._connections.client("ec2", region)
            for values in _pieces([row["SpotInstanceRequestId"] for row in rows if row.get("SpotInstanceRequestId")]):
                only = [{"Name": "spot-instance-request-id", "Values": values}]
                for page in pages_of(ec2, "describe_spot_instance_requests", Filters=only):
                    requests |= {each["SpotInstanceRequestId"]: each for each in page["SpotInstanceRequests"]}
            now_ms = self._clock.now_ms()
            found = []
            for row in rows:
                name = instance_id(region, row)
                ended = row["State"]["Name"] == InstanceState.TERMINATED
                seen_ms = self._ended.setdefault(name, now_ms) if ended else now_ms
                found.append(instance(region, row, requests.get(row.get("SpotInstanceRequestId", "")), seen_ms))
            return found

    def _by_region(self, instance_ids: Sequence[str]) -> dict[str, list[str]]:
        by_region: dict[str, list[str]] = {}
        for region, own in filter(None, map(place_of, instance_ids)):
            by_region.setdefault(region, []).append(own)
        return by_region

    @contextmanager
    def _converted(self, region: str) -> Iterator[None]:
        """boto3's exceptions as ProviderErrors."""
        try:
            yield
        except ProviderError:
            raise
        except Exception as error:
            known = to_provider_error(error, in_region=region)
            raise (known or self.classify(error)) from error


def _template(request: Mapping[str, Any], spec: LaunchSpec) -> dict[str, Any]:
    """The launch template of a machine: the request for a machine without its zone, count and capacity type, which the
    fleet sets."""
    placed = ("ClientToken", "MinCount", "MaxCount", "Placement", "InstanceMarketOptions")
    (card,) = request["NetworkInterfaces"]
    token = {"Key": TOKEN, "Value": spec.token}
    return {
        **{name: value for name, value in request.items() if name not in placed},
        "UserData": base64.b64encode(request["UserData"]).decode(),  # boto3 does so for RunInstances only
        "NetworkInterfaces": [{name: value for name, value in card.items() if name != "SubnetId"}],
        "TagSpecifications": [{**each, "Tags": [*each["Tags"], token]} for each in request["TagSpecifications"]],
    }


def _pieces(values: Sequence[str]) -> Iterator[list[str]]:
    return (list(values[at : at + MOST_VALUES]) for at in range(0, len(values), MOST_VALUES))


def _install(spec: LaunchSpec) -> str:
    return spec.tags.get(INSTALL, "")
