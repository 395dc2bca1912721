"""The interface to a provider: what an implementation must do, and what callers may rely on.

A provider starts machines with the `user_data` that it is given and never reads it. All calls are synchronous and
short; `launch` and `terminate` return as soon as the provider has accepted the request.

Optional capabilities are protocols of their own (`LaunchesAnywhere`, `KeepsClaims`, `ProvidesPriceHistory`,
`ProvidesBill`, `MetersUsage`, `AllowsShell`, `ExaminesHosts`, `NeedsNetworks`, `MakesBuckets`, `DeletesVersions`,
`LimitsByQuota`, `NamesClosed`); callers test for them with isinstance.
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
    `time_to_live_s` (market seconds since acceptance) is a dead man's switch: the instance ends by itself at that time
    unless `renew` extends it. `disk_gb` is the room in GiB that the job's data and checkpoints need on the disk of each
    machine, besides what any machine needs (its image, libraries, the job's code). A provider whose machines have disks
    of fixed sizes ignores it. `also` are further offers that would do as well, the best first (see LaunchesAnywhere);
    `launch` takes none.
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
        """16 bytes in hexadecimal digits, which differ for any other request: a provider refuses a token that comes
        back with another one."""
        asked = [self.offer_id, self.user_data, dict(self.tags), self.count, self.image, self.time_to_live_s]
        asked += [self.disk_gb] if self.disk_gb or self.also else []
        asked += [list(self.also)] if self.also else []
        return blake2b(json.dumps(asked, sort_keys=True).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Landed:
    """Where a launch has found its machines: all of them are of this offer."""

    offer_id: str
    instance_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Covered:
    """The machines that count against a quota, and in which unit each does. `regions`, `instance_types` and `zones` are
    shell-style patterns, any of which may match; empty: all. `spot`: only spot machines, or only others; None: both."""

    unit: Literal["machines", "vcpus", "gpus"]
    regions: tuple[str, ...] = ()
    instance_types: tuple[str, ...] = ()
    spot: bool | None = None
    zones: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Quota:
    """An account limit: at most `limit` units of `name` in `scope`, of which `used` are in use.

    Plans respect it if it says what it covers (`covers`) and its provider's quotas are limits of plans
    (LimitsByQuota). `remedy` is how to get more. `owned`: not an account's limit, but all machines that there are on
    `scope`, which the user owns ("desk1, desk2").
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
        """Market seconds until a launch is certain to be visible.

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
    """Rents machines of whichever of several offers has room, by one call of its cloud.

    The offers of a launch (`spec.offer_id` and `spec.also`) are of one region, all spot or all on-demand. They differ
    in their zone and, where the provider `mixes_types`, in their instance type. All that Provider says of `launch`
    holds, and:

    - all machines of a launch are of one of its offers, which the cloud chooses; `describe`, `find` and `list_owned`
      report that one;
    - the same token and spec give the same machines again, wherever they are, also after a lost reply or a restart;
    - an error concerns all of the offers: CapacityError means that none of them has room. NotTogetherError concerns
      none: they cannot be asked for together. This call has launched nothing, and for a while `most_offers` says 1, so
      that they are asked for one at a time, each with a token of its own.
    """

    @property
    def mixes_types(self) -> bool:
        """Whether the offers of a launch may be of different instance types."""
        ...

    def most_offers(self, count: int, /) -> int:
        """How many offers a launch of `count` machines may name; 1: only its own."""
        ...

    def launch_any(self, spec: LaunchSpec) -> Landed:
        """See `Provider.launch`. Raises also UnavailableError while the cloud does not show yet where it has found the
        machines: call it again."""
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
    """Rents out hosts that its user declared, which may differ from their declarations."""

    @property
    def host_names(self) -> Sequence[str]:
        """The declared hosts."""
        ...

    def examine(self, host_name: str) -> str:
        """What was found on a host, in one line. Raises ProviderError, with the remedy, if no machine can start."""
        ...


@runtime_checkable
class NeedsNetworks(Protocol):
    """Rents machines only in networks that were made for the installation, in which nothing is let in from outside and
    machines reach each other and the internet.

    - everything is tagged with the installation (`tradewind-install`) in the call that creates it, and found by that;
    - `set_up` and `tear_down` may be called again at any time, also after they were killed at any call: they do what
      is left to do. Each goes on in other regions if one fails, and raises the first error at the end;
    - both raise UnavailableError for what needs time: call them again;
    - `launch` raises SetupError, with the scope "region", where the network is not there, and sends nothing.

    `progress` is called with a line about each thing that was made or removed.
    """

    def networks(self, install: str) -> Sequence[Network]:
        """One for each configured region, and for any other that has something of this installation."""
        ...

    def set_up(self, install: str, progress: Callable[[str], None]) -> None:
        """Make or correct what is missing in the configured regions. Raises ProviderError."""
        ...

    def tear_down(self, install: str, progress: Callable[[str], None]) -> None:
        """Remove everything of the installation, in all regions. The caller makes sure that no machine of it is up.

        Raises UnavailableError while something is still used, e.g. by a machine that is ending.
        """
        ...


@runtime_checkable
class MakesBuckets(Protocol):
    """Makes the bucket that holds an installation's orders, reports and checkpoints: private, without versions, with
    nothing kept of what is deleted, and with a rule that removes what interrupted uploads leave.

    - it is tagged with the installation (`tradewind-install`) in the call that creates it; a bucket without this tag is
      used as it is, and neither changed nor removed;
    - `make_bucket` and `remove_bucket` may be called again at any time, also after they were killed at any call, and
      raise UnavailableError for what needs time: call them again.

    `name` is that of the bucket; at Azure, of the storage account and the container: `account/container`. `progress` is
    called with a line about what was made, removed or kept.
    """

    def bucket(self, install: str, name: str) -> Bucket | None:
        """What is there; None if nothing is. Raises ProviderError, SetupError for a name that somebody else has."""
        ...

    def make_bucket(self, install: str, name: str, region: str, progress: Callable[[str], None]) -> None:
        """Make it in this region, or correct the rules of one that was made for this installation. Raises
        ProviderError, SetupError for a name that somebody else has."""
        ...

    def remove_bucket(self, install: str, name: str, progress: Callable[[str], None]) -> None:
        """Remove it if it was made for this installation and is empty; else say what is kept, and the command that
        removes it. Raises ProviderError."""
        ...


@runtime_checkable
class DeletesVersions(Protocol):
    """Knows whether a rule that only the management of the cloud shows deletes former versions of objects."""

    def deletes_versions(self, name: str, prefix: str) -> bool:
        """Whether all those below `prefix` of a bucket are deleted some day; `name` as in MakesBuckets. Raises
        ProviderError."""
        ...


@runtime_checkable
class LimitsByQuota(Protocol):
    """Its `quotas` limit plans: an offer is not chosen where the account may not rent as many machines as a job needs.
    They are asked for together with prices, so they must not cost more than those."""

    @property
    def quotas_limit_plans(self) -> bool:
        """False switches it off."""
        ...


@runtime_checkable
class NamesClosed(Protocol):
    """Says which of the configured regions and instance types the account may not rent."""

    def closed(self) -> Sequence[Closed]:
        """As of the last call of `offers` or `prices`; asks nothing. Failures that pass are not listed."""
        ...
