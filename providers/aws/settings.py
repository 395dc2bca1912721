"""What `[providers.aws]` of tradewind.toml says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """`regions` and `instance_types` may be rented. `image` is an AMI, or `ssm:` and the name of a parameter of AWS
    Systems Manager that has one; `disk_gb` the size of a machine's disk in GiB, without LaunchSpec.disk_gb."""

    regions: tuple[str, ...]
    instance_types: tuple[str, ...]
    image: str
    disk_gb: int
