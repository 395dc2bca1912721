"""On-demand prices of AWS: from the pricing API if the account may use it, otherwise from the public price list.

The API needs a few pages per region. The public file of a region has hundreds of megabytes, so it is streamed, and only
lines with GPUs are parsed. On-demand prices apply to a whole region: with an account there is one offer per zone that
has the hardware, without one a single offer with an empty zone.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from providers.aws.hardware import InstanceType, gpu_of_family
from providers.aws.prices.regional import RegionalPrices
from providers.aws.regions import pages_of, rows_of, types_of, zones_by_type
from providers.aws.session import to_provider_error
from providers.collect.facts import Finding, Flag, PollResult, SkipReason, gather, hourly_price, instant_ms
from providers.collect.http import Http, Patience
from providers.errors import AuthError, FormatError, ProviderError
from providers.hardware import GIB
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

API = "AWS pricing GetProducts"
FILE = "AWS public price list"
FILES = "https://pricing.us-east-1.amazonaws.com"
API_REGION = "us-east-1"
"""GetProducts answers for all regions, but only in us-east-1, eu-central-1 and ap-south-1."""
PLAIN = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "capacitystatus": "Used",
    "preInstalledSw": "NA",
    "marketoption": "OnDemand",
    "instanceFamily": "GPU instance",
}
"""A plain machine: no Windows, dedicated host, reservation or included database."""
COLUMNS = {
    "operatingSystem": "Operating System",
    "tenancy": "Tenancy",
    "capacitystatus": "CapacityStatus",
    "preInstalledSw": "Pre Installed S/W",
    "marketoption": "MarketOption",
    "instanceFamily": "Instance Family",
}
NEEDED = {"TermType", "PricePerUnit", "Currency", "Unit", "EffectiveDate", "Instance Type", "vCPU", "Memory", "GPU"}
PUBLIC_REGIONS = [
    *("af-south-1", "ap-east-1", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1", "ap-south-2"),
    *("ap-southeast-1", "ap-southeast-2", "ap-southeast-3", "ap-southeast-4", "ap-southeast-5", "ca-central-1"),
    *("ca-west-1", "eu-central-1", "eu-central-2", "eu-north-1", "eu-south-1", "eu-south-2", "eu-west-1"),
    *("eu-west-2", "eu-west-3", "il-central-1", "me-central-1", "me-south-1", "mx-central-1", "sa-east-1"),
    *("us-east-1", "us-east-2", "us-west-1", "us-west-2"),
]
"""Regions with a public file (AWS's list of regions, 2026-11), for use without an account."""


class OnDemandPrices(RegionalPrices):
    """Source `aws-on-demand`. `account` False: read only the public files; `files` is their base URL.

    If the account may not use the API, the files of the configured `regions` are read instead. Without configured
    regions nothing is downloaded: the files of all regions together have several gigabytes.
    """

    kind = "aws-on-demand"

    def __init__(
        self,
        *,
        account: bool = True,
        files: str = FILES,
        connect_s: float = 5.0,
        read_s: float = 30.0,
        attempts: int = 3,
        **options: Any,
    ) -> None:
        super().__init__(connect_s=connect_s, read_s=read_s, attempts=attempts, **options)
        self._account = account
        self._files = files.rstrip("/")
        self._http = Http(Patience(connect_s, read_s, attempts))

    def regions(self) -> Sequence[str]:
        """The regions to poll. Raises ProviderError if the account's regions cannot be listed."""
        if not self._account:
            return self._only or PUBLIC_REGIONS
        try:
            return super().regions()
        except ProviderError as error:
            raise _with_files_as_remedy(error) from error.__cause__

    def poll(self, region: str, now_ms: int, since_ms: int | None) -> PollResult:
        """On-demand prices of one region, by the API or the public file."""
        if self._account:
            api = gather(region, lambda finding: self._read_api(finding, now_ms), to_provider_error)
            if not isinstance(api.error, AuthError) or api.points:
                return api
            if region not in self._only:
                return replace(api, error=_with_files_as_remedy(api.error))
        return gather(region, lambda finding: self._read_file(finding, now_ms), to_provider_error)

    def _read_api(self, finding: Finding, now_ms: int) -> None:
        ec2 = self._connections.client("ec2", finding.region)
        types = types_of(ec2, finding, self._only_types)
        zones = zones_by_type(ec2, finding, self._only_types)
        pricing = self._connections.client("pricing", API_REGION)
        wanted = {**PLAIN, "regionCode": finding.region}
        if self._only_types:
            del wanted["instanceFamily"]
        for each in sorted(types) if self._only_types else [None]:
            asked = {**wanted, "instanceType": each} if each is not None else wanted
            filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in asked.items()]
            for page in pages_of(pricing, "get_products", ServiceCode="AmazonEC2", Filters=filters):
                texts = rows_of(page, "PriceList")
                finding.page(len(texts))
                for text in texts:
                    for row in _products(text, finding):
                        kind = types.get(row["instanceType"]) or _by_family(row)
                        _add(finding, kind, sorted(zones.get(kind.name, ())), row, now_ms, API)

    def _read_file(self, finding: Finding, now_ms: int) -> None:
        url = f"{self._files}/offers/v1.0/aws/AmazonEC2/current/{finding.region}/index.csv"
        for row in _plain_rows(self._http.lines(url), url, finding):
            finding.rows += 1
            _add(finding, _by_family(row), [""], row, now_ms, FILE)
        finding.pages += 1


def _with_files_as_remedy(error: ProviderError) -> ProviderError:
    if isinstance(error, AuthError):
        error.hint += "; or set `regions` to read their public price lists instead (hundreds of MB each)"
    return error


Row = Mapping[str, str]
"""One price with the attributes of its machine, under the API's names."""


def _products(text: str, finding: Finding) -> Iterator[Row]:
    """The prices in one entry of PriceList, a string of JSON. A product may have several terms and dimensions."""
    try:
        body = json.loads(text)
        attributes = body["product"]["attributes"]
        terms = list(body["terms"].get("OnDemand", {}).values())
        for term in terms:
            for dimension in term["priceDimensions"].values():
                ((currency, price),) = dimension["pricePerUnit"].items()
                row = {
                    **attributes,
                    "currency": currency,
                    "price": price,
                    "unit": dimension["unit"],
                    "effectiveDate": term["effectiveDate"],
                    "instanceType": attributes["instanceType"],
                }
                yield {field: str(value) for field, value in row.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        finding.flag(Flag.MALFORMED, f"aws/{finding.region}", f"{type(error).__name__} {error} in {text[:200]}")


def _plain_rows(lines: Iterable[bytes], url: str, finding: Finding) -> Iterator[Row]:
    """The rows of a region's file for plain GPU machines. Raises FormatError if the columns have changed."""
    lines = iter(lines)
    header: list[str] = []
    for line in lines:  # five lines of metadata precede the header
        header = _cells(line)
        if header[:1] == ["SKU"]:
            break
    missing = (NEEDED | set(COLUMNS.values())) - set(header)
    if missing:
        raise FormatError(f"{url} lacks the columns {', '.join(sorted(missing))}: AWS has changed its price list")
    for line in lines:
        if b"GPU instance" not in line or b'"OnDemand"' not in line or b'"Linux"' not in line:
            finding.skip(SkipReason.OTHER_PRODUCT)
            continue  # parse only a few hundred of millions of lines
        row = dict(zip(header, _cells(line), strict=False))
        if len(row) < len(header):
            text = f"{len(row)} of {len(header)} cells in {line[:200].decode(errors='replace')!r}"
            finding.flag(Flag.MALFORMED, f"aws/{finding.region}", text)
            continue
        if row["TermType"] != "OnDemand" or any(row.get(COLUMNS[key]) != value for key, value in PLAIN.items()):
            finding.skip(SkipReason.OTHER_PRODUCT)
            continue
        yield {
            "instanceType": row["Instance Type"],
            "vcpu": row["vCPU"],
            "memory": row["Memory"],
            "gpu": row["GPU"],
            "currency": row["Currency"],
            "price": row["PricePerUnit"],
            "unit": row["Unit"],
            "effectiveDate": row["EffectiveDate"],
        }


def _cells(line: bytes) -> list[str]:
    """The cells of one line; empty if it is not CSV."""
    try:
        return next(csv.reader([line.decode(errors="replace")], strict=True), [])
    except csv.Error:
        return []


def _by_family(row: Row) -> InstanceType:
    """The machine as the price list describes it, with the GPU of its family. Unreadable counts are 0."""
    name = row.get("instanceType", "")
    gpu, gpu_name = gpu_of_family(name)
    return InstanceType(
        name,
        gpu,
        gpu_name,
        _whole(row.get("gpu", "")),
        _whole(row.get("vcpu", "")),
        _whole(row.get("memory", "").replace(",", "").removesuffix(" GiB")) * GIB,
    )


def _whole(text: str) -> int:
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        return 0


def _add(finding: Finding, kind: InstanceType, zones: Sequence[str], row: Row, now_ms: int, source: str) -> None:
    subject = f"aws/{finding.region}/{kind.name}"
    if row["price"] and row["price"].strip("0.") == "":
        finding.skip(SkipReason.BILLED_ELSEWHERE)
        return
    if row["unit"] != "Hrs":
        finding.flag(Flag.MALFORMED, subject, f"{row['price'][:50]} {row['currency'][:9]} per {row['unit'][:50]!r}")
        return
    try:
        price, effective_ms = hourly_price(row["price"]), instant_ms(row["effectiveDate"])
    except ValueError as error:
        finding.flag(Flag.MALFORMED, subject, str(error))
        return
    if effective_ms > now_ms:
        finding.skip(SkipReason.NOT_YET)
        return
    if row["currency"] != "USD":
        finding.flag(Flag.CURRENCY, subject, f"priced in {row['currency']}: {row['price']} per hour")
        return
    for zone in zones or [""]:
        offer = Offer(
            "aws", finding.region, zone, kind.name, kind.gpu, kind.gpu_count, kind.vcpu, kind.memory_bytes,
            CapacityType.ON_DEMAND,
        )  # fmt: skip
        point = PricePoint(offer.id, price, effective_ms, now_ms, source)
        if not kind.is_known:
            text = f"unknown GPU: {kind.gpu_name}"
            finding.flag(Flag.UNKNOWN_GPU, subject, text, offer, point)
        elif not kind.vcpu or (kind.gpu is not None and not kind.gpu_count):
            finding.flag(
                Flag.MALFORMED, subject, f"GPU count {row.get('gpu')!r}, vCPU {row.get('vcpu')!r}", offer, point
            )
        elif not zones:
            finding.flag(Flag.NO_HARDWARE, subject, f"no zone of {finding.region} offers {kind.name}", offer, point)
        else:
            finding.price(offer, point)
