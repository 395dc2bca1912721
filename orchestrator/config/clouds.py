"""Settings of the clouds. Each table lists what may be rented."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.config import azure, gcp
from orchestrator.config.aws import read_image, read_instance_types, read_regions
from orchestrator.config.values import setting, whole

_DISK = "The size of a machine's disk in GiB. Space for a job's data and checkpoints is added to it."


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsProvider:
    """Machines of AWS (docs/aws.md)."""

    regions: tuple[str, ...] = setting(
        (),
        "The regions in which machines may be rented.",
        read_regions,
        '["us-east-1", "eu-west-1"]',
        "none: required if aws is enabled",
    )
    instance_types: tuple[str, ...] = setting(
        (),
        "The instance types that may be rented, with or without GPUs.",
        read_instance_types,
        '["g5.xlarge", "g6.xlarge"]',
        "none: required if aws is enabled",
    )
    image: str | None = setting(
        None,
        "The image of the machines: an AMI, or `ssm:` and the name of an AWS Systems Manager parameter that holds one.",
        read_image,
        '"ssm:/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-2.7-ubuntu-22.04/latest/ami-id"',
        "none: required if aws is enabled",
    )
    disk_gb: int = setting(100, _DISK, whole(1), "200")


@dataclass(frozen=True, slots=True, kw_only=True)
class GcpProvider:
    """Machines of GCP (docs/gcp.md)."""

    regions: tuple[str, ...] = setting(
        (),
        "The regions in which machines may be rented.",
        gcp.read_regions,
        '["us-central1", "europe-west4"]',
        "none: required if gcp is enabled",
    )
    machine_types: tuple[str, ...] = setting(
        (),
        "The machine types that may be rented, with or without GPUs. GPUs attached to an N1 type follow a plus sign.",
        gcp.read_machine_types,
        '["g2-standard-8", "n1-standard-8+1xnvidia-tesla-t4"]',
        "none: required if gcp is enabled",
    )
    image: str | None = setting(
        None,
        "The image of the machines, or an image family, whose newest image is used.",
        gcp.read_image,
        '"projects/deeplearning-platform-release/global/images/family/pytorch-2-7-cu128-ubuntu-2204-nvidia-570"',
        "none: required if gcp is enabled",
    )
    disk_gb: int = setting(100, _DISK, whole(1), "200")
    project: str | None = setting(
        None, "The project that is billed.", gcp.read_project, '"my-project-1234"', "the credentials' project"
    )
    endpoint: str | None = setting(
        None,
        "The address of the Compute API, such as a private endpoint. No credentials are sent over plain http.",
        gcp.read_address,
        '"https://compute-mine.p.googleapis.com"',
        "Google's",
    )
    catalog: str | None = setting(
        None,
        "The address of the Billing Catalog.",
        gcp.read_address,
        '"https://cloudbilling-mine.p.googleapis.com"',
        "Google's",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureProvider:
    """Machines of Azure (docs/azure.md)."""

    regions: tuple[str, ...] = setting(
        (),
        "The regions in which machines may be rented.",
        azure.read_regions,
        '["eastus", "westeurope"]',
        "none: required if azure is enabled",
    )
    instance_types: tuple[str, ...] = setting(
        (),
        "The sizes that may be rented, with or without GPUs.",
        azure.read_instance_types,
        '["Standard_NC24ads_A100_v4", "Standard_NC4as_T4_v3"]',
        "none: required if azure is enabled",
    )
    image: str | None = setting(
        None,
        "The image of the machines: publisher:offer:sku:version (the version may be `latest`), or an image's id.",
        azure.read_image,
        '"microsoft-dsvm:ubuntu-hpc:2404:latest"',
        "none: required if azure is enabled",
    )
    disk_gb: int = setting(100, _DISK, whole(1), "200")
    subscription: str | None = setting(
        None,
        "The subscription that is billed.",
        azure.read_subscription,
        '"11111111-2222-3333-4444-555555555555"',
        "`AZURE_SUBSCRIPTION_ID`",
    )
    resource_group: str = setting("tradewind", "The resource group of machines and networks.", azure.read_group, '"ml"')
    management: str = setting(
        "https://management.azure.com",
        "The address of Azure Resource Manager.",
        azure.read_management,
        '"https://management.chinacloudapi.cn"',
    )
    prices: str = setting(
        "https://prices.azure.com/api/retail/prices",
        "The address of the retail prices.",
        azure.read_prices,
        '"https://prices.azure.cn/api/retail/prices"',
    )
