"""AWS on loopback: EC2's query protocol, the pricing API, the public price list, the Spot Advisor's file.

Speaks the wire protocol, so that unmodified boto3 talks to it. moto can't serve prices (a dummy price from 2006, no
paging, no pricing API). Machines are behind `forward` (tests/clouds/ec2.py).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape

from tests.clouds.server import Cloud, Request, Response

XML = "text/xml;charset=UTF-8"
NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
PAGE_ROWS = 3
OTHER_PRODUCT = "Windows"


@dataclass(frozen=True)
class Change:
    """One row of DescribeSpotPriceHistory. `zone` is an index: names and IDs are derived, and differ on purpose."""

    instance_type: str
    zone: int
    at_ms: int
    usd: str
    product: str = "Linux/UNIX"


@dataclass
class AwsRegion:
    """`offered` is (instance type, zone index). `zone_ids` may hold a Local Zone."""

    zone_ids: list[str]
    changes: list[Change] = field(default_factory=list)
    offered: set[tuple[str, int]] = field(default_factory=set)
    on_demand_usd: dict[str, str] = field(default_factory=dict)
    opt_in: str = "opt-in-not-required"

    def zone_name(self, region: str, index: int) -> str:
        """Names are shuffled against IDs, as AWS does per account."""
        return f"{region}{'abcdefgh'[len(self.zone_ids) - 1 - index]}"


@dataclass(frozen=True)
class AwsType:
    name: str
    gpu: str = "A100"
    gpu_count: int = 8
    gpu_mib: int = 40960
    vcpu: int = 96
    memory_mib: int = 1152 * 1024
    usage: tuple[str, ...] = ("on-demand", "spot")
    hypervisor: str = "nitro"


@dataclass
class AwsCloud:
    """`denied` actions are refused with UnauthorizedOperation. `page_rows` is the most that a page of prices holds."""

    regions: dict[str, AwsRegion]
    types: dict[str, AwsType]
    denied: set[str] = field(default_factory=set)
    page_rows: int = PAGE_ROWS
    advisor: dict[str, Any] = field(default_factory=dict)
    products: list[str] | None = None
    currency: str = "USD"
    forward: Cloud | None = None

    def __call__(self, request: Request) -> Response:
        if request.path.endswith("/index.csv"):
            return self._file(request.path.split("/")[-2])
        if request.path.endswith("spot-advisor-data.json"):
            return Response(body=json.dumps(self.advisor).encode())
        target = request.headers.get("X-Amz-Target", "")
        if target.endswith("GetProducts"):
            return self._products(json.loads(request.body))
        if target and self.forward:
            return self.forward(request)
        form = request.form
        action = form.get("Action", "")
        region = signed_region(request)
        if action in self.denied:
            return error("UnauthorizedOperation", "You are not authorized to perform this operation.", 403)
        here = self.regions.get(region)
        if action == "GetCallerIdentity":
            return _identity()
        if action == "DescribeRegions":
            return self._regions()
        if here is None or here.opt_in == "not-opted-in":
            return error("AuthFailure", "AWS was not able to validate the provided access credentials", 401)
        if action == "DescribeInstanceTypes":
            return self._types(form)
        if action == "DescribeInstanceTypeOfferings":
            return self._offerings(here)
        if action == "DescribeSpotPriceHistory":
            return self._history(region, here, form)
        if action == "GetSpotPlacementScores":
            return self._scores(form)
        return self.forward(request) if self.forward else error("InvalidAction", f"{action} is not served here", 400)

    def _regions(self) -> Response:
        items = "".join(
            f"<item><regionName>{name}</regionName><regionEndpoint>ec2.{name}.amazonaws.com</regionEndpoint>"
            f"<optInStatus>{region.opt_in}</optInStatus></item>"
            for name, region in self.regions.items()
        )
        return _xml("DescribeRegions", f"<regionInfo>{items}</regionInfo>")

    def _types(self, form: dict[str, str]) -> Response:
        wanted = {value for key, value in form.items() if key.startswith("InstanceType.")}
        kinds = [kind for kind in self.types.values() if not wanted or kind.name in wanted]
        return _xml(
            "DescribeInstanceTypes",
            f"<instanceTypeSet>{''.join(map(_type, kinds))}</instanceTypeSet>",
        )

    def _offerings(self, region: AwsRegion) -> Response:
        items = "".join(
            f"<item><instanceType>{name}</instanceType><locationType>availability-zone-id</locationType>"
            f"<location>{region.zone_ids[zone]}</location></item>"
            for name, zone in sorted(region.offered)
        )
        return _xml("DescribeInstanceTypeOfferings", f"<instanceTypeOfferingSet>{items}</instanceTypeOfferingSet>")

    def _history(self, name: str, region: AwsRegion, form: dict[str, str]) -> Response:
        start_ms = round(
            datetime.fromisoformat(form.get("StartTime", "2020-01-01T00:00:00Z").replace("Z", "+00:00")).timestamp()
            * 1000
        )
        wanted = {value for key, value in form.items() if key.startswith("InstanceType.")}
        products = {value for key, value in form.items() if key.startswith("ProductDescription.")}
        rows = [row for row in region.changes if row.instance_type in wanted]
        rows = [row for row in rows if not products or row.product in products]
        rows = [row for row in rows if row.at_ms >= start_ms or row == _in_force(rows, row, start_ms)]
        rows.sort(key=lambda row: -row.at_ms)  # newest first
        first = int(form.get("NextToken") or 0)
        page = rows[first : first + self.page_rows]
        token = str(first + self.page_rows) if first + self.page_rows < len(rows) else ""
        items = "".join(
            f"<item><instanceType>{row.instance_type}</instanceType><productDescription>{row.product}"
            f"</productDescription><spotPrice>{row.usd}</spotPrice><timestamp>{_time(row.at_ms)}</timestamp>"
            f"<availabilityZone>{region.zone_name(name, row.zone)}</availabilityZone>"
            + (f"<availabilityZoneId>{region.zone_ids[row.zone]}</availabilityZoneId>" if row.zone >= 0 else "")
            + "</item>"
            for row in page
        )
        body = f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{token}</nextToken>"
        return _xml("DescribeSpotPriceHistory", body)

    def _scores(self, form: dict[str, str]) -> Response:
        kinds = [value for key, value in form.items() if key.startswith("InstanceType.")]
        best = [(name, zone) for name, region in self.regions.items() for zone in region.zone_ids][:10]
        items = "".join(
            f"<item><region>{name}</region><availabilityZoneId>{zone}</availabilityZoneId>"
            f"<score>{3 + len(kinds)}</score></item>"
            for name, zone in best
        )
        return _xml("GetSpotPlacementScores", f"<spotPlacementScoreSet>{items}</spotPlacementScoreSet>")

    def _products(self, body: dict[str, Any]) -> Response:
        if "GetProducts" in self.denied:
            text = "User: arn:aws:iam::123456789012:user/x is not authorized to perform: pricing:GetProducts"
            refusal = {"__type": "AccessDeniedException", "Message": text}
            return Response(400, json.dumps(refusal).encode(), "application/x-amz-json-1.1")
        fields = {row["Field"]: row["Value"] for row in body.get("Filters", [])}
        region = self.regions.get(fields.get("regionCode", ""))
        rows = self.products
        if rows is None:
            sold, only = region.on_demand_usd if region else {}, fields.get("instanceType")
            rows = [self._product(name, usd) for name, usd in sold.items() if only in (None, name)]
        first = int(body.get("NextToken") or 0)
        last = min(first + 2, len(rows))
        answer: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": rows[first:last]}
        if last < len(rows):
            answer["NextToken"] = str(last)
        return Response(body=json.dumps(answer).encode(), content_type="application/x-amz-json-1.1")

    def _product(self, name: str, usd: str) -> str:
        attributes = {"instanceType": name, "vcpu": "96", "memory": "1,152 GiB", "gpu": "8"}
        dimension = {"unit": "Hrs", "pricePerUnit": {self.currency: usd}}
        ahead = {**dimension, "pricePerUnit": {self.currency: "0.5"}}
        terms = {
            "X.Z": {"effectiveDate": "2036-01-01T00:00:00Z", "priceDimensions": {"X.Z.Z": ahead}},
            "X.Y": {"effectiveDate": "2025-06-01T00:00:00Z", "priceDimensions": {"X.Y.Z": dimension}},
        }
        return json.dumps({"product": {"attributes": attributes}, "terms": {"OnDemand": terms}})

    def _file(self, region: str) -> Response:
        here = self.regions.get(region)
        if here is None:
            return Response(404, b"<Error><Code>NoSuchKey</Code></Error>", "application/xml")
        return Response(body=price_file(here.on_demand_usd, self.currency).encode(), content_type="text/csv")


HEADER = [
    *("SKU", "OfferTermCode", "RateCode", "TermType", "PriceDescription", "EffectiveDate", "Unit", "PricePerUnit"),
    *("Currency", "Instance Type", "Instance Family", "vCPU", "Memory", "GPU", "Tenancy", "Operating System"),
    *("CapacityStatus", "Pre Installed S/W", "MarketOption"),
]


def price_file(on_demand_usd: dict[str, str], currency: str = "USD") -> str:
    """A region's public price list: five lines about it, a header, and for each price the rows that must be skipped."""
    lines = ['"FormatVersion","v1.0"', '"Disclaimer","x"', '"Publication Date","2026-11-01"', '"Version","1"']
    lines += ['"OfferCode","AmazonEC2"', _csv(HEADER)]
    for name, usd in on_demand_usd.items():
        plain = {
            "SKU": "ABC", "TermType": "OnDemand", "EffectiveDate": "2025-06-01", "Unit": "Hrs", "PricePerUnit": usd,
            "Currency": currency, "Instance Type": name, "Instance Family": "GPU instance", "vCPU": "96",
            "Memory": "1,152 GiB", "GPU": "8", "Tenancy": "Shared", "Operating System": "Linux",
            "CapacityStatus": "Used", "Pre Installed S/W": "NA", "MarketOption": "OnDemand",
            "PriceDescription": f"${usd} per On Demand Linux {name} Instance Hour",
        }  # fmt: skip
        others: list[dict[str, str]] = [
            {"Tenancy": "Host", "PricePerUnit": "0.01"},
            {"Tenancy": "Dedicated", "PricePerUnit": "0.02"},
            {"Operating System": "Windows", "PricePerUnit": "99"},
            {"TermType": "Reserved", "PricePerUnit": "1.5"},
            {"CapacityStatus": "UnusedCapacityReservation", "PricePerUnit": "0.03"},
            {"Pre Installed S/W": "SQL Ent", "PricePerUnit": "77"},
            {"MarketOption": "CapacityBlock", "PricePerUnit": "0.04"},
            {"PricePerUnit": "0.0000000000"},
            {"EffectiveDate": "2036-01-01", "PricePerUnit": "0.5"},
        ]
        lines += [_csv([{**plain, **other}.get(column, "") for column in HEADER]) for other in [*others, {}]]
    return "\n".join(lines) + "\n"


def _csv(cells: list[str]) -> str:
    return ",".join(f'"{cell}"' for cell in cells)


def _in_force(rows: list[Change], row: Change, start_ms: int) -> Change:
    """The last change of the row's series before the start: AWS returns it, too."""
    same = [other for other in rows if (other.instance_type, other.zone) == (row.instance_type, row.zone)]
    before = [other for other in same if other.at_ms < start_ms]
    return max(before, key=lambda other: other.at_ms, default=Change("", 0, 0, ""))


def _type(kind: AwsType) -> str:
    gpus = f"<item><name>{kind.gpu}</name><manufacturer>NVIDIA</manufacturer><count>{kind.gpu_count}</count>"
    gpus += f"<memoryInfo><sizeInMiB>{kind.gpu_mib}</sizeInMiB></memoryInfo></item>"
    usage = "".join(f"<item>{name}</item>" for name in kind.usage)
    return (
        f"<item><instanceType>{kind.name}</instanceType><supportedUsageClasses>{usage}</supportedUsageClasses>"
        f"<hypervisor>{kind.hypervisor}</hypervisor><vCpuInfo><defaultVCpus>{kind.vcpu}</defaultVCpus></vCpuInfo>"
        f"<memoryInfo><sizeInMiB>{kind.memory_mib}</sizeInMiB></memoryInfo>"
        + (f"<gpuInfo><gpus>{gpus}</gpus></gpuInfo>" if kind.gpu else "")
        + "</item>"
    )


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def signed_region(request: Request) -> str:
    """boto3 signs for a region; it is the only place where the query protocol names one."""
    found = re.search(r"Credential=[^/]+/\d+/([^/]+)/", request.headers.get("Authorization", ""))
    return found.group(1) if found else ""


def _xml(action: str, body: str) -> Response:
    text = f'<{action}Response xmlns="{NAMESPACE}"><requestId>r</requestId>{body}</{action}Response>'
    return Response(body=text.encode(), content_type=XML)


def _identity() -> Response:
    body = "<GetCallerIdentityResult><Arn>arn:aws:iam::123456789012:user/prices</Arn></GetCallerIdentityResult>"
    return _xml("GetCallerIdentity", body)


def error(code: str, message: str, status: int, headers: dict[str, str] | None = None) -> Response:
    """An error as EC2 sends it."""
    body = (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error></Errors></Response>"
    )
    return Response(status, body.encode(), XML, headers or {})


THROTTLED = error("RequestLimitExceeded", "Request limit exceeded.", 503)
