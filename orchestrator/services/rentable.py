"""What a plan says about what may not be rented: clouds that are not enabled, and what accounts do not allow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NotRentable:
    """A region of an enabled cloud, or an instance type there, that is configured and that the account may not rent; ""
    stands for all regions, or all types."""

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
    """What a cloud that is not enabled would save, of what the jobs cost on the enabled providers: estimates. 0: it has
    nothing cheaper. `price_age_s` is the age of the oldest price that counts, `regions` those where the jobs would run.
    An `enabled` cloud only lacks these regions in its settings."""

    cloud: str
    saving_nano_usd: int
    of_nano_usd: int
    price_age_s: float | None
    regions: tuple[str, ...] = ()
    enabled: bool = False


@dataclass(frozen=True, slots=True)
class QuotaWorth:
    """What `more` units of an account's quota would be worth to the jobs of a plan: what those that start now and then
    would save together (an estimate), and the jobs that could only start with it. That is as much as the job with the
    most machines would take. `used` is what the provider counts; `taken` the units on their way, or planned. `owned`:
    these are machines that the user owns, on `scope`, and no quota."""

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
    """Where the jobs of a plan would run at least cost on clouds that can be enabled, if it chose clouds at which
    Tradewind cannot rent. An estimate; `cost_nano_usd` is None while the speed of a job is not known."""

    clouds: tuple[str, ...]
    regions: tuple[str, ...]
    cost_nano_usd: int | None
    price_age_s: float | None
