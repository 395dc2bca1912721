"""What a plan says about offers that cannot be rented: clouds that are not enabled, and limits of accounts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NotRentable:
    """A configured region or instance type of an enabled cloud that the account may not rent; "" means all regions, or
    all types."""

    cloud: str
    region: str
    instance_type: str
    reason: str
    remedy: str

    @property
    def place(self) -> str:
        """`aws/ap-east-1`, `azure/eastus/Standard_NC6`, `gcp`."""
        return "/".join(filter(None, (self.cloud, self.region, self.instance_type)))


@dataclass(frozen=True, slots=True)
class Enabling:
    """What enabling a cloud would save, compared with the cost of the jobs on the enabled providers (estimates). 0: it
    has nothing cheaper. `price_age_s` is the age of the oldest price used, `regions` are those where the jobs would
    run. An `enabled` cloud only lacks these regions in its settings."""

    cloud: str
    saving_nano_usd: int
    of_nano_usd: int
    price_age_s: float | None
    regions: tuple[str, ...] = ()
    enabled: bool = False


@dataclass(frozen=True, slots=True)
class QuotaWorth:
    """What `more` units of an account's quota would be worth to the jobs of a plan: the total saving (an estimate) of
    the jobs that can start anyway, and the jobs that could only start with it. `more` is what the job with the most
    machines needs. `used` is the provider's count; `taken` are units planned or on their way. `owned`: this is not a
    quota but the user's own machines on `scope`."""

    cloud: str
    name: str
    scope: str
    unit: str
    limit: int
    used: int
    taken: int
    more: int
    saving_nano_usd: int
    starts: tuple[str, ...] = ()
    owned: bool = False


@dataclass(frozen=True, slots=True)
class CouldEnable:
    """Where the jobs of a plan would cost least on clouds that can be enabled, if the plan chose clouds at which
    Tradewind cannot rent. An estimate; `cost_nano_usd` is None if the speed of a job is unknown."""

    clouds: tuple[str, ...]
    regions: tuple[str, ...]
    cost_nano_usd: int | None
    price_age_s: float | None
