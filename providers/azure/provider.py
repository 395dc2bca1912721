"""AzureProvider: rents virtual machines on Azure, spot and on-demand.

A machine is created by one PUT under a name derived from the launch token, together with its disk, network interface
and address, and is deleted with them. No call that may have taken effect is repeated by the client library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from providers.azure import lifecycle, rows
from providers.azure.buckets import Buckets
from providers.azure.codes import ABSENT
from providers.azure.launches import Launches
from providers.azure.machines import LISTING_LAG_S, Machines
from providers.azure.market import Market
from providers.azure.networks import Networks
from providers.azure.resources import Resources
from providers.azure.session import Connections, error_code, rows_of, to_provider_error
from providers.azure.settings import Settings
from providers.azure.skus import quotas
from providers.base import LaunchSpec, Quota
from providers.bucket import Bucket
from providers.clock import Clock
from providers.closed import Closed
from providers.errors import ProviderError, UnavailableError
from providers.instance import EndReason, Instance
from providers.machine.lifetime import LIVES, lives
from providers.network import Network, in_each
from providers.offer import Offer, OfferId
from providers.price import PricePoint
from providers.rentable import rentable

CALL_S = 15.0
ATTEMPTS = 2


class AzureProvider:
    """The provider `azure`. Credentials are found by azure-identity's chain (DefaultAzureCredential)."""

    name = rows.PROVIDER
    simulated = False
    quotas_limit_plans = True
    listing_lag_s = LISTING_LAG_S  # lists come from a cache of Azure Resource Manager, without a guarantee
    describe_every_s = 25.0  # one GET per machine; Azure allows 12 a minute, and five times as many during a change

    def __init__(self, settings: Settings, clock: Clock, connections: Connections | None = None) -> None:
        self._settings, self._clock = settings, clock
        if connections is None:
            connections = Connections(settings.subscription, settings.management, call_s=CALL_S, attempts=ATTEMPTS)
        self._connections = connections
        self._market = Market(settings, connections, clock)
        self._machines = Machines(settings, connections, clock)
        self._networks = Networks(settings, connections, clock)
        self._resources = Resources(connections, clock)
        self._buckets = Buckets(settings, connections, self._resources)
        self._launches = Launches(settings, connections, clock, self._machines, self._networks, self.classify)

    # --- Provider ---

    def offers(self) -> Sequence[Offer]:
        """The configured sizes in the configured regions, as far as the subscription may start them."""
        return self._market.offers()

    def prices(self) -> Sequence[PricePoint]:
        """The present prices."""
        return self._market.prices()

    def closed(self) -> Sequence[Closed]:
        """See NamesClosed."""
        return self._market.closed()

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        """See Provider.launch. Waits some seconds for Azure to say that it has no capacity."""
        offer = self._offered(spec.offer_id)
        with self._converted():
            return self._launches.launch(spec, offer)

    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        """See Provider.describe. Deletes machines that have shut down, outlived their time to live or failed."""
        places = [place for place in map(rows.place_of, instance_ids) if place is not None]
        with self._converted():
            return [each for each in self._machines.look_at_all(places) if each is not None]

    def find(self, token: str, region: str) -> Sequence[Instance]:
        """See Provider.find."""
        (first,) = rows.names(token, 1)
        with self._converted():
            record = self._machines.records.get(first)
            if record is None or record.region != region:
                return []
            names = rows.names(token, int(record.tags[rows.COUNT]))
            found = self._machines.look_at_all([(region, name) for name in names])
            return [each for each in found if each is not None]

    def renew(self, instance_ids: Sequence[str], time_to_live_s: int) -> None:
        """See Provider.renew: sets a tag, which the machine and the provider read."""
        tag = {LIVES: lives(time_to_live_s, self._clock.now_ms())}
        with self._converted():
            for _, name in filter(None, map(rows.place_of, instance_ids)):
                machine = f"{self._settings.group}/providers/Microsoft.Compute/virtualMachines/{name}"
                try:
                    self._machines.records.tag(machine, tag)
                except Exception as error:
                    if error_code(error) not in ABSENT:
                        raise

    def terminate(self, instance_id: str) -> None:
        """See Provider.terminate."""
        place = rows.place_of(instance_id)
        if place is not None:
            with self._converted():
                self._machines.end(place[1], EndReason.USER)

    def list_owned(self, install: str) -> Sequence[Instance]:
        """See Provider.list_owned: the machines in the resource group, in any region."""
        with self._converted():
            return self._machines.owned(install)

    def quotas(self) -> Sequence[Quota]:
        """The quotas, in vCPUs, that machines of the configured sizes count against, by region."""
        found: list[Quota] = []
        with self._converted():
            for region in self._settings.regions:
                skus = list(self._market.skus(region).values())
                usages = rows_of(f"ARM's usages of {region}", self._connections.compute.usage.list(region))
                found += quotas(usages, region, skus)
        return found

    def classify(self, error: BaseException) -> ProviderError:
        """See providers.azure.codes; ProviderErrors unchanged."""
        if isinstance(error, ProviderError):
            return error
        known = to_provider_error(error) if isinstance(error, Exception) else None
        return known or UnavailableError(f"the azure provider failed: {error!r}", hint="run: tradewind doctor")

    # --- NeedsNetworks ---

    def networks(self, install: str) -> Sequence[Network]:
        """See NeedsNetworks."""
        wanted = self._settings.regions
        with self._converted():
            regions = dict.fromkeys([*wanted, *self._networks.regions(install)])
            return [self._networks.network(install, region, wanted=region in wanted) for region in regions]

    def set_up(self, install: str, progress: Callable[[str], None]) -> None:
        """See NeedsNetworks."""

        def make(region: str) -> None:
            with self._converted():
                self._networks.set_up(install, region, progress)

        in_each(self._settings.regions, make)

    def tear_down(self, install: str, progress: Callable[[str], None]) -> None:
        """See NeedsNetworks."""

        def remove(region: str) -> None:
            with self._converted():
                self._networks.tear_down(install, region, progress)

        with self._converted():
            in_each(self._networks.regions(install), remove)
            self._machines.forget(install)
            self._networks.remove_group(install, progress)

    # --- MakesBuckets ---

    def bucket(self, install: str, name: str) -> Bucket | None:
        """See MakesBuckets."""
        with self._converted():
            return self._buckets.bucket(install, name)

    def make_bucket(self, install: str, name: str, region: str, progress: Callable[[str], None]) -> None:
        """See MakesBuckets."""
        with self._converted():
            self._buckets.make_bucket(install, name, region, progress)

    def remove_bucket(self, install: str, name: str, progress: Callable[[str], None]) -> None:
        """See MakesBuckets."""
        with self._converted():
            self._buckets.remove_bucket(install, name, progress)

    # --- DeletesVersions ---

    def deletes_versions(self, name: str, prefix: str) -> bool:
        """See DeletesVersions."""
        with self._converted():
            account, container = self._buckets.account(name), name.partition("/")[2]
            return account is not None and lifecycle.deletes_versions(self._resources, account, f"{container}/{prefix}")

    # --- for the methods above ---

    def _offered(self, offer_id: str) -> OfferId:
        """See providers.rentable."""
        settings = self._settings
        return rentable(offer_id, self.name, settings.regions, settings.instance_types)

    @contextmanager
    def _converted(self) -> Iterator[None]:
        """azure.core's exceptions as ProviderErrors."""
        try:
            yield
        except ProviderError:
            raise
        except Exception as error:
            raise self.classify(error) from error
