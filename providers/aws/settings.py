"""The settings in `[providers.aws]` of tradewind.toml."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """`regions` and `instance_types` may be rented. `image` is an AMI, or `ssm:` and the name of an AWS Systems Manager
    parameter that contains one; `disk_gb` is the size of a machine's disk in GiB, without LaunchSpec.disk_gb."""

    regions: tuple[str, ...]
    instance_types: tuple[str, ...]
    image: str
    disk_gb: int
