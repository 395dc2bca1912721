"""The interface of a provider: the duties of an implementation, and what callers may rely on.

A provider starts machines with the `user_data` that it is given and never reads it. All calls are synchronous and
short; `launch` and `terminate` return as soon as the provider has accepted the request.

Optional capabilities are separate protocols (`LaunchesAnywhere`, `KeepsClaims`, `ProvidesPriceHistory`, `ProvidesBill`,
`MetersUsage`, `AllowsShell`, `ExaminesHosts`, `NeedsNetworks`, `MakesBuckets`, `DeletesVersions`, `LimitsByQuota`,
`NamesClosed`); callers test for them with isinstance.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal, Protocol, runtime_checkable

from providers.billing.charges import Usage
from providers.bucket import Bucket
from providers.closed import Closed
from providers.errors import ProviderError
from providers.instance import Instance
from providers.network import Network
from providers.offer import Offer
from providers.price import PricePoint


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """A request for `count` instances of one offer, all or none.

    `token` makes the request idempotent. `user_data` is the bootstrap shell script that the machine runs once.
    `time_to_live_s` (market seconds since acceptance) is a dead man's switch: the instance ends by itself after it
    unless `renew` extends it. `disk_gb` is the disk space in GiB that the job's data and checkpoints need on each
    machine, in addition to the image, the libraries and the job's code. A provider whose machines have disks of fixed
    sizes ignores it. `also` are equally acceptable offers, best first (see LaunchesAnywhere); `launch` accepts none.
    """

    token: str
    offer_id: str
    user_data: str
    tags: Mapping[str, str] = field(default_factory=dict)
    count: int = 1
    image: str = ""
    time_to_live_s: int | None = None
    disk_gb: int = 0
    also: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """16 bytes as hexadecimal digits, different for every other request. A provider refuses a token that is reused
        with another fingerprint."""
        asked = [self.offer_id, self.user_data, dict(self.tags), self.count, self.image, self.time_to_live_s]
        asked += [self.disk_gb] if self.disk_gb or self.also else []
        asked += [list(self.also)] if self.also else []
        return blake2b(json.dumps(asked, sort_keys=True).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Landed:
    """The offer that a launch was granted (the same for all its machines), and their ids."""

    offer_id: str
    instance_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Covered:
    """The machines that count against a quota, and the unit in which they count. `regions`, `instance_types` and
    `zones` are shell-style patterns, any of which may match; empty: all. `spot`: only spot machines (True), only others
    (False), or both (None)."""

    unit: Literal["machines", "vcpus", "gpus"]
    regions: tuple[str, ...] = ()
    instance_types: tuple[str, ...] = ()
    spot: bool | None = None
    zones: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Quota:
    """An account limit: at most `limit` units of `name` in `scope`; `used` are in use.

    Plans respect it if it states which machines count (`covers`) and its provider's quotas limit plans (LimitsByQuota).
    `remedy` says how to get more. `owned`: not an account's limit, but the number of machines on the user's own hosts
    in `scope` ("desk1, desk2").
    """

    name: str
    scope: str
    limit: int
    used: int
    covers: Covered | None = None
    remedy: str = ""
    owned: bool = False


@runtime_checkable
class Provider(Protocol):
    """The contract that every provider keeps; providers.testing checks it.

    - `launch` with the same token and spec returns the same ids again, even after a lost reply, a restart of the caller
      or the end of the instance; the same token with a different spec raises ConflictError;
    - `list_owned`, `find` and `describe` report an accepted instance within `listing_lag_s`. Any answer may be
      incomplete, so one that omits an instance proves nothing;
    - an id identifies the location of its instance: where a cloud needs a region, the region is part of the id;
    - `terminate` is idempotent and succeeds for unknown and ended instances; billing ends no later than `describe`
      reports TERMINATED;
    - `describe` and `find` report an ended instance for at least an hour and may forget it after that;
    - an instance whose `time_to_live_s` is not renewed ends by itself, without any call to the provider, and is not
      billed beyond that time (a cloud that bills machines which are off: beyond the next call about it);
    - all errors are those of providers.errors; UnavailableError means that the call may have taken effect.
    """

    @property
    def name(self) -> str:
        """Short name used in offer ids, job files and configuration."""
        ...

    @property
    def simulated(self) -> bool:
        """True if prices and machines are simulated; every figure of such a provider is marked as simulated."""
        ...

    @property
    def listing_lag_s(self) -> float:
        """Market seconds after which a launch is certain to be visible.

        After this time, a launch that got no reply has either taken effect or never will, and `list_owned`, `find` and
        `describe` report what it created.
        """
        ...

    @property
    def describe_every_s(self) -> float:
        """Wall seconds between two `describe` calls for a region that the provider's rate limits allow indefinitely."""
        ...

    def offers(self) -> Sequence[Offer]:
        """Everything that can be rented from this provider, in a fixed order."""
        ...

    def prices(self) -> Sequence[PricePoint]:
        """The current price of every offer and the time it took effect."""
        ...

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        """Rent `spec.count` instances; returns their ids once the request is accepted.

        Raises CapacityError, QuotaError, PriceError, ThrottledError, AuthError, ConflictError, UnavailableError.
        """
        ...

    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        """The current state of these instances, without ids that the provider never had or has forgotten.

        Instances of one region take one call to the cloud: ask region by region.
        """
        ...

    def find(self, token: str, region: str) -> Sequence[Instance]:
        """The instances that launches with this token created in `region`: alive, or ended within the last hour."""
        ...

    def renew(self, instance_ids: Sequence[str], time_to_live_s: int) -> None:
        """Let these instances end by themselves `time_to_live_s` market seconds from now, unless renewed again.

        Idempotent; succeeds for unknown and ended instances. Does not change an end for another reason. Ask region by
        region.
        """
        ...

    def terminate(self, instance_id: str) -> None:
        """End an instance. Idempotent; succeeds if the instance does not exist."""
        ...

    def list_owned(self, install: str) -> Sequence[Instance]:
        """All live instances in all regions whose tag `tradewind-install` equals `install`."""
        ...

    def quotas(self) -> Sequence[Quota]:
        """The account's limits, as far as the provider reports them."""
        ...

    def classify(self, error: BaseException) -> ProviderError:
        """Convert any exception of the provider's library to an error of providers.errors."""
        ...


@runtime_checkable
class LaunchesAnywhere(Protocol):
    """Rents machines of any one of several offers that has capacity, by one call of its cloud.

    The offers of a launch (`spec.offer_id` and `spec.also`) are in one region and all spot or all on-demand. They
    differ in their zone and, if the provider `mixes_types`, in their instance type. In addition to the contract of
    `Provider.launch`:

    - all machines of a launch are of one of its offers, which the cloud chooses; `describe`, `find` and `list_owned`
      report that one;
    - the same token and spec give the same machines again, wherever they are, also after a lost reply or a restart;
    - an error applies to all of the offers: CapacityError means that none of them has capacity. NotTogetherError
      applies to none of them: they cannot be requested together. The call has launched nothing, and for a while
      `most_offers` returns 1, so callers request them one at a time, each with its own token.
    """

    @property
    def mixes_types(self) -> bool:
        """Whether the offers of a launch may be of different instance types."""
        ...

    def most_offers(self, count: int, /) -> int:
        """How many offers a launch of `count` machines may name; 1: only `spec.offer_id`."""
        ...

    def launch_any(self, spec: LaunchSpec) -> Landed:
        """See `Provider.launch`. Also raises UnavailableError while the cloud does not show yet which offer it has
        granted: call it again."""
        ...


@runtime_checkable
class KeepsClaims(Protocol):
    """Stores one string per installation next to its machines, so that only the store that owns the machines acts on
    them.
    """

    def claim(self, install: str) -> str | None:
        """The current claim of an installation; None if there never was one."""
        ...

    def replace_claim(self, install: str, present: str | None, word: str) -> bool:
        """Atomically replace `present` by `word`. Returns False and changes nothing if the current claim differs."""
        ...


@runtime_checkable
class ProvidesPriceHistory(Protocol):
    """Can report past price changes, so that an outage of the collector leaves no gap."""

    def price_history(self, since_ms: int) -> Sequence[PricePoint]:
        """All changes with effective_at_ms > since_ms up to now, ascending, preceded by the price of each offer in
        force at `since_ms`.
        """
        ...


@runtime_checkable
class ProvidesBill(Protocol):
    """Reports exactly what it billed, in nano-dollars: the reference that the ledger is compared with."""

    def bill_nano_usd(self, instance_id: str) -> int:
        """The cost of this instance up to now. Raises NotFoundError."""
        ...


@runtime_checkable
class MetersUsage(Protocol):
    """Bills checkpoint usage that it cannot observe (a simulated cloud moves no bytes), so callers report it."""

    def meter(self, instance_id: str, usage: Usage) -> None:
        """Put this checkpoint usage on the instance's bill, replacing any reported before. Allowed after the instance
        has ended. Raises NotFoundError.
        """
        ...


@runtime_checkable
class AllowsShell(Protocol):
    """Its machines may be logged in to."""

    def shell(self, instance_id: str, command: Sequence[str]) -> Sequence[str]:
        """The command line, for this host, that runs `command` on a machine in the folder of its files; a login shell
        if `command` is empty. Raises ProviderError.
        """
        ...


@runtime_checkable
class ExaminesHosts(Protocol):
    """Rents out hosts that the user declared. A host may differ from its declaration."""

    @property
    def host_names(self) -> Sequence[str]:
        """The declared hosts."""
        ...

    def examine(self, host_name: str) -> str:
        """What was found on a host, in one line. Raises ProviderError, with the remedy, if no machine can start."""
        ...


@runtime_checkable
class NeedsNetworks(Protocol):
    """Rents machines only in networks made for the installation. They let nothing in from outside; machines reach each
    other and the internet.

    - every part is tagged with the installation (`tradewind-install`) in the call that creates it, and found by this
      tag;
    - `set_up` and `tear_down` may be called again at any time, also after a crash at any call: they do what remains to
      be done. If a region fails, each continues in the other regions and raises the first error at the end;
    - both raise UnavailableError while the cloud needs more time: call them again;
    - `launch` raises SetupError, with the scope "region", if the network does not exist, and sends nothing.

    `progress` is called with a line about each part that was created or removed.
    """

    def networks(self, install: str) -> Sequence[Network]:
        """One for each configured region, and for any other region that has parts of this installation."""
        ...

    def set_up(self, install: str, progress: Callable[[str], None]) -> None:
        """Create or correct what is missing in the configured regions. Raises ProviderError."""
        ...

    def tear_down(self, install: str, progress: Callable[[str], None]) -> None:
        """Remove every part of the installation's networks, in all regions. The caller makes sure that none of its
        machines is up.

        Raises UnavailableError while a part is still used, for example by a machine that is ending.
        """
        ...


@runtime_checkable
class MakesBuckets(Protocol):
    """Creates the bucket that holds an installation's orders, reports and checkpoints: private, without versions or
    retention of deleted objects, and with a rule that removes the parts of interrupted uploads.

    - it is tagged with the installation (`tradewind-install`) in the call that creates it; a bucket without this tag is
      used as it is and never changed or removed;
    - `make_bucket` and `remove_bucket` may be called again at any time, also after a crash at any call. They raise
      UnavailableError while the cloud needs more time: call them again.

    `name` is the bucket's name; on Azure the names of the storage account and the container: `account/container`.
    `progress` is called with a line about each part that was created, removed or kept.
    """

    def bucket(self, install: str, name: str) -> Bucket | None:
        """The bucket; None if it does not exist. Raises ProviderError, SetupError if another account has the name."""
        ...

    def make_bucket(self, install: str, name: str, region: str, progress: Callable[[str], None]) -> None:
        """Create it in this region, or correct the rules of one that was made for this installation. Raises
        ProviderError, SetupError if another account has the name."""
        ...

    def remove_bucket(self, install: str, name: str, progress: Callable[[str], None]) -> None:
        """Remove it if it was made for this installation and is empty; otherwise report what is kept, and the command
        that removes it. Raises ProviderError."""
        ...


@runtime_checkable
class DeletesVersions(Protocol):
    """Knows whether a rule that only the cloud's management API shows deletes old versions of objects."""

    def deletes_versions(self, name: str, prefix: str) -> bool:
        """Whether a rule deletes all old versions below `prefix` of a bucket; `name` as in MakesBuckets. Raises
        ProviderError."""
        ...


@runtime_checkable
class LimitsByQuota(Protocol):
    """Its `quotas` limit plans: an offer is not chosen if the account may not rent as many machines as a job needs.
    Quotas are requested together with prices, so a request must not cost more than one for prices."""

    @property
    def quotas_limit_plans(self) -> bool:
        """False switches it off."""
        ...


@runtime_checkable
class NamesClosed(Protocol):
    """Says which of the configured regions and instance types the account may not rent."""

    def closed(self) -> Sequence[Closed]:
        """As of the last call of `offers` or `prices`; sends nothing. Temporary failures are not listed."""
        ...
