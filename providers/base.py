"""The seam to every market: what a provider must do, and what callers may rely on.

A provider boots the `user_data` that it is given and never looks
into it. All calls are synchronous and short; `launch` and `terminate` return at acceptance.

Capabilities that not every provider has are protocols of their own (`KeepsClaims`, `ProvidesPriceHistory`,
`ProvidesBill`, `MetersUsage`); callers test for them with isinstance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from providers.charges import Usage
from providers.errors import ProviderError
from providers.instance import Instance
from providers.offer import Offer
from providers.price import PricePoint


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One request for `count` instances of one offer, all or nothing.

    `token` makes it idempotent. `user_data` is the bootstrap (a shell script) that the machine runs once.
    `time_to_live_s` (market seconds from the acceptance) is a dead man's switch: the instance ends by itself then,
    unless `renew` has put that off.
    """

    token: str
    offer_id: str
    user_data: str
    tags: Mapping[str, str] = field(default_factory=dict)
    count: int = 1
    image: str = ""
    time_to_live_s: int | None = None


@dataclass(frozen=True, slots=True)
class Quota:
    """An account's limit: at most `limit` units of `name` in `scope`, `used` of them taken."""

    name: str
    scope: str
    limit: int
    used: int


@runtime_checkable
class Provider(Protocol):
    """Contract (checked for each provider by providers.testing):

    - launch with the same token and spec again returns the same ids, also after a lost reply, a restart of the caller
      and the end of the instance; the same token with another spec raises ConflictError;
    - an instance that was accepted is mentioned by `list_owned`, `find` and `describe` within `listing_lag_s`. An
      answer may leave some out at any time, so one that does not mention an instance proves nothing by itself;
    - an id says by itself where its instance is: where a cloud needs a region, the region is part of the id;
    - terminate is idempotent: unknown or ended is success; billing ends no later than `describe` says TERMINATED;
    - `describe` and `find` keep mentioning an ended instance for at least an hour, then may forget it;
    - an instance whose `time_to_live_s` was not renewed ends by itself, with nobody asking the provider for anything,
      and is billed no longer than that;
    - errors are only those of providers.errors; UnavailableError means that the call may have taken effect.
    """

    @property
    def name(self) -> str:
        """Short name used in offer ids, job files and configuration."""
        ...

    @property
    def simulated(self) -> bool:
        """True where prices and machines are simulated; shown wherever a number of it is shown."""
        ...

    @property
    def listing_lag_s(self) -> float:
        """Market seconds: within so many, a launch that was not answered has taken effect or never will, and what it
        made is mentioned by `list_owned`, `find` and `describe`."""
        ...

    @property
    def describe_every_s(self) -> float:
        """Wall seconds between two descriptions of a region that the provider's limits on calls bear for ever."""
        ...

    def offers(self) -> Sequence[Offer]:
        """Everything rentable here, in a fixed order."""
        ...

    def prices(self) -> Sequence[PricePoint]:
        """The price in force of every offer, with the instant it took effect."""
        ...

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        """Rent `spec.count` instances; returns their ids at acceptance.

        Raises CapacityError, QuotaError, PriceError, ThrottledError, AuthError, ConflictError, UnavailableError.
        """
        ...

    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        """The present state of these instances; ids that the provider has never had or has forgotten are left out.

        One call of the cloud for instances of one region: ask region by region.
        """
        ...

    def find(self, token: str, region: str) -> Sequence[Instance]:
        """What launches with this token made in `region`: living, or ended within the last hour."""
        ...

    def renew(self, instance_ids: Sequence[str], time_to_live_s: int) -> None:
        """From now on these instances end by themselves `time_to_live_s` market seconds from now, unless renewed again.

        Idempotent; unknown and ended ones are success. An end for another reason stays as it was. Ask region by region.
        """
        ...

    def terminate(self, instance_id: str) -> None:
        """End an instance. Idempotent; absence is success."""
        ...

    def list_owned(self, install: str) -> Sequence[Instance]:
        """All living instances in all regions whose tag `tradewind-install` equals `install`."""
        ...

    def quotas(self) -> Sequence[Quota]:
        """The account's limits, as far as the provider tells."""
        ...

    def classify(self, error: BaseException) -> ProviderError:
        """Any exception of the provider's library as one of providers.errors."""
        ...


@runtime_checkable
class KeepsClaims(Protocol):
    """Keeps a word for each installation beside its machines: by it the store that acts on them knows itself again."""

    def claim(self, install: str) -> str | None:
        """The present word, as whoever wrote it last left it; None if nobody ever did."""
        ...

    def replace_claim(self, install: str, present: str | None, word: str) -> bool:
        """Put `word` in the place of `present`, in one stroke; False, and no change, when something else is there."""
        ...


@runtime_checkable
class ProvidesPriceHistory(Protocol):
    """Can tell past price changes, so that an outage of the collector leaves no gap."""

    def price_history(self, since_ms: int) -> Sequence[PricePoint]:
        """All changes with effective_at_ms > since_ms up to now, ascending, and for each offer the one in force at
        `since_ms`."""
        ...


@runtime_checkable
class ProvidesBill(Protocol):
    """Can tell to the nano-dollar what it billed: the truth that the ledger is compared with."""

    def bill_nano_usd(self, instance_id: str) -> int:
        """What this instance has cost up to now. Raises NotFoundError."""
        ...


@runtime_checkable
class MetersUsage(Protocol):
    """Bills checkpoints that it cannot see (a simulated cloud moves no bytes), so their usage is reported to it."""

    def meter(self, instance_id: str, usage: Usage) -> None:
        """Put this usage of checkpoints on the instance's bill, in place of any reported before; also after the
        instance has ended. Raises NotFoundError."""
        ...
