"""Checks what an AWS account may do. Every call is a dry run or a read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from providers.aws.calls import INSTALL
from providers.aws.hardware import gpu_of_family
from providers.aws.images import Images
from providers.aws.prices.on_demand import API_REGION
from providers.aws.session import Connections, error_code, to_provider_error
from providers.aws.settings import Settings
from providers.clock import SystemClock
from providers.collect.permissions import Access, Attempt, examine
from providers.errors import SetupError
from providers.machine.drivers import DRIVER, cuda_of_torch, fitness, unlisted

_FAMILIES = re.compile(r"Supported EC2 instances:\s*([\w, -]+)")


def access(connections: Connections | None = None, settings: Settings | None = None) -> list[Access]:
    """What the credentials of this environment may read, in order of importance; with `settings`, also whether machines
    may be rented with them. Makes one or two calls per entry."""
    made = Connections() if connections is None else connections

    def ec2() -> Any:
        return made.client("ec2", made.home_region)

    def identity() -> str:
        return str(made.client("sts", made.home_region).get_caller_identity()["Arn"])

    def regions() -> str:
        rows = ec2().describe_regions(AllRegions=True)["Regions"]
        off = [row["RegionName"] for row in rows if row.get("OptInStatus") == "not-opted-in"]
        return f"{len(rows) - len(off)} regions are enabled, {len(off)} are not"

    def types() -> str:
        ec2().describe_instance_types(InstanceTypes=["p4d.24xlarge"])
        return "ec2:DescribeInstanceTypes"

    def offerings() -> str:
        ec2().describe_instance_type_offerings(LocationType="availability-zone-id", MaxResults=5)
        return "ec2:DescribeInstanceTypeOfferings"

    def spot() -> str:
        ec2().describe_spot_price_history(InstanceTypes=["p4d.24xlarge"], MaxResults=5)
        return "ec2:DescribeSpotPriceHistory"

    def prices() -> str:
        made.client("pricing", API_REGION).get_products(ServiceCode="AmazonEC2", MaxResults=1)
        return "pricing:GetProducts"

    attempts: list[Attempt] = [
        ("identity", identity),
        ("regions", regions),
        ("instance types", types),
        ("zones of instance types", offerings),
        ("spot prices", spot),
        ("on-demand prices", prices),
    ]
    if settings is not None:
        attempts += _machines(made, settings)
    # Without access to on-demand prices, the collectors read the public price list; renting needs the access.
    optional = {"on-demand prices"} if settings is None else {f"{DRIVER} in {region}" for region in settings.regions}
    return examine(attempts, to_provider_error, optional=optional)


def _machines(made: Connections, settings: Settings) -> Iterator[Attempt]:
    images = Images(made, SystemClock())
    for region in settings.regions:
        of: Callable[[str], str] = f"{{}} in {region}".format
        yield of("image"), partial(_image, images, settings, region)
        yield of(DRIVER), partial(_driver, images, settings, region)
        yield of("launch of machines"), partial(_launch, made, images, settings, region)
        yield of("list of machines"), partial(_listing, made, region)
        yield of("end of machines"), partial(_end, made, region)


def _image(images: Images, settings: Settings, region: str) -> str:
    return images.named(settings.image, region).id


def _driver(images: Images, settings: Settings, region: str) -> str:
    """What the image says about the instance families that it supports. AWS's images for training name them, but not
    their driver."""
    text = images.named(settings.image, region).text
    with_gpus = {each: gpu for each in settings.instance_types if (gpu := gpu_of_family(each)[0]) is not None}
    listed = _FAMILIES.search(text)
    families = re.findall(r"[\w-]+", listed[1]) if listed else []
    if wrong := unlisted(families, with_gpus):
        raise SetupError(
            f"the image says that it is for {', '.join(families)}, not for {', '.join(wrong)}",
            hint="name another image in providers.aws.image, or leave out these types",
        )
    said = fitness(text, with_gpus.values(), "providers.aws.image", cuda_of_torch())
    return f"the image is for {', '.join(families)}; {said}" if families and with_gpus else said


def _launch(made: Connections, images: Images, settings: Settings, region: str) -> str:
    tags = [{"Key": INSTALL, "Value": "doctor"}]
    with _dry_run():
        made.client("ec2", region, once=True).run_instances(
            DryRun=True,
            MinCount=1,
            MaxCount=1,
            ImageId=images.named(settings.image, region).id,
            InstanceType=settings.instance_types[0],
            InstanceMarketOptions={"MarketType": "spot"},
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
    return f"a spot machine {settings.instance_types[0]} may be launched (dry run)"


def _listing(made: Connections, region: str) -> str:
    made.client("ec2", region).describe_spot_instance_requests(MaxResults=5)
    return f"{len(_own(made, region))} running"


def _end(made: Connections, region: str) -> str:
    """EC2 answers only about machines that exist."""
    if not (own := _own(made, region)):
        return "not checked: Tradewind has no machine to test it on"
    with _dry_run():
        made.client("ec2", region).terminate_instances(DryRun=True, InstanceIds=own[:1])
    with _dry_run():
        made.client("ec2", region).create_tags(DryRun=True, Resources=own[:1], Tags=[{"Key": INSTALL, "Value": ""}])
    return "machines may be renewed and terminated (dry run)"


def _own(made: Connections, region: str) -> list[str]:
    filters = [{"Name": "tag-key", "Values": [INSTALL]}, {"Name": "instance-state-name", "Values": ["running"]}]
    pages = made.client("ec2", region).get_paginator("describe_instances").paginate(Filters=filters)
    return [row["InstanceId"] for page in pages for group in page["Reservations"] for row in group["Instances"]]


@contextmanager
def _dry_run() -> Iterator[None]:
    """EC2 also answers an allowed dry run with an error, and with a different one in an account without a default
    network, which Tradewind's machines do not need."""
    try:
        yield
    except Exception as error:
        if error_code(error) not in ("DryRunOperation", "VPCIdNotSpecified"):
            raise
