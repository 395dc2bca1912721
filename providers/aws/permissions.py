"""Checks what an AWS account may read. Every call is a dry run or a read."""

from __future__ import annotations

from typing import Any

from providers.aws.prices.on_demand import API_REGION
from providers.aws.session import Connections, to_provider_error
from providers.collect.permissions import Access, examine

POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Sid": "TradewindReadsPrices",
            "Effect": "Allow",
            "Action": [
                "ec2:DescribeRegions",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeInstanceTypeOfferings",
                "ec2:DescribeSpotPriceHistory",
                "ec2:GetSpotPlacementScores",
                "pricing:GetProducts",
            ],
            "Resource": "*",
        }
    ],
}
"""Everything that the collectors call; `sts:GetCallerIdentity` needs no permission."""


def access(connections: Connections | None = None) -> list[Access]:
    """What the credentials of this environment may read, in order of importance. Makes one call per entry."""
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

    attempts = [
        ("identity", identity),
        ("regions", regions),
        ("instance types", types),
        ("zones of instance types", offerings),
        ("spot prices", spot),
        ("on-demand prices", prices),
    ]
    return examine(
        attempts, to_provider_error, optional={"on-demand prices"}
    )  # without it, the public price list is read
