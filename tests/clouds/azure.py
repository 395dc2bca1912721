"""Azure on loopback: the Retail Prices interface, ARM's resource SKUs, Resource Graph. ARM is served over TLS.

A throw-away authority signs for 127.0.0.1, so that the product's own code path is taken (azure-core refuses tokens over
plain http). Virtual machines are beside it (tests.clouds.arm): `forward` takes what is not served here.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.clouds.server import Cloud, Request, Response


def row(
    region: str,
    size: str,
    usd: float,
    *,
    spot: bool = False,
    product: str = "Virtual Machines Series",
    suffix: str = "",
    effective: str = "2025-06-01T00:00:00Z",
    **fields: Any,
) -> dict[str, Any]:
    """A row of the retail prices."""
    words = f"{size.removeprefix('Standard_').replace('_', ' ')}{' Spot' if spot else ''}{suffix}"
    return {
        "currencyCode": "USD", "tierMinimumUnits": 0.0, "retailPrice": usd, "unitPrice": usd, "armRegionName": region,
        "effectiveStartDate": effective, "meterName": words, "skuName": words, "productName": product,
        "serviceName": "Virtual Machines", "unitOfMeasure": "1 Hour", "type": "Consumption", "armSkuName": size,
        **fields,
    }  # fmt: skip


def resource_sku(
    name: str,
    region: str,
    *,
    restriction: str = "",
    spot: bool = True,
    gpus: int = 8,
    vcpus: int = 96,
    memory_gb: float = 1900,
) -> dict[str, Any]:
    """A resource SKU of ARM's."""
    restrictions = []
    if restriction:
        place = {"locations": [region]}
        restrictions = [{"type": "Location", "values": [region], "restrictionInfo": place, "reasonCode": restriction}]
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "family": f"{re.match('[A-Z]+', name.removeprefix('Standard_'))[0]}Family",
        "locations": [region.upper()],
        "locationInfo": [{"location": region, "zones": ["1", "2"]}],
        "capabilities": [
            {"name": "vCPUs", "value": str(vcpus)},
            {"name": "MemoryGB", "value": str(memory_gb)},
            *([{"name": "GPUs", "value": str(gpus)}] if gpus else []),
            {"name": "LowPriorityCapable", "value": str(spot)},
        ],
        "restrictions": restrictions,
    }


@dataclass
class AzureCloud:
    """`ignores_filter`: sends everything, as the real interface does for a filter that it can't read."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    skus: list[dict[str, Any]] = field(default_factory=list)
    evictions: list[dict[str, Any]] = field(default_factory=list)
    spot_history: list[dict[str, Any]] = field(default_factory=list)
    page_rows: int = 2
    in_a_circle: bool = False
    ignores_filter: bool = False
    next_link_past_the_end: bool = False
    denied: set[str] = field(default_factory=set)
    base: str = ""
    forward: Cloud | None = None

    def __call__(self, request: Request) -> Response:
        if request.path.endswith("/retail/prices"):
            return self._prices(request)
        for action in self.denied:
            if action.lower() in f"microsoft.{request.path.lower().partition('microsoft.')[2]}/read":
                text = f"The client 'x' does not have authorization to perform action '{action}' over scope '/s'"
                return error("AuthorizationFailed", text, 403)
        if request.path.lower().endswith("/providers/microsoft.compute/skus"):
            region = request.query.get("$filter", "").split("'")[1]
            found = [sku for sku in self.skus if region.upper() in sku["locations"]]
            link = {"nextLink": f"{self.base}{request.path}?{urlencode(request.query)}"} if self.in_a_circle else {}
            return Response(body=json.dumps({"value": found, **link}).encode())
        if request.path.lower().endswith("microsoft.resourcegraph/resources"):
            return self._graph(json.loads(request.body))
        return self.forward(request) if self.forward else error("NotFound", f"{request.path} is not served", 404)

    def _prices(self, request: Request) -> Response:
        only = request.query.get("$filter", "")
        region = re.search(r"armRegionName eq '(\w+)'", only)
        part = re.search(r"contains\(armSkuName, '(\w+)'\)", only)
        names = re.findall(r"armSkuName eq '(\w+)'", only)
        rows = self.rows
        if not self.ignores_filter and region and (part or names):
            rows = [row for row in rows if row["armRegionName"].lower() == region.group(1)]
            rows = [row for row in rows if row["armSkuName"] in names or (part and part.group(1) in row["armSkuName"])]
        first = int(request.query.get("$skip") or 0)
        if first and first >= len(rows):
            return error("BadRequest", "Invalid skip", 400)
        link = None
        if self.in_a_circle and first + self.page_rows >= len(rows):
            link = f"{self.base}{request.path}?{urlencode({**request.query, '$skip': 0})}"
        elif first + self.page_rows < len(rows) or (self.next_link_past_the_end and rows):
            link = f"{self.base}{request.path}?{urlencode({**request.query, '$skip': first + self.page_rows})}"
        body = {"BillingCurrency": "USD", "Items": rows[first : first + self.page_rows], "NextPageLink": link}
        return Response(body=json.dumps(body).encode())

    def _graph(self, body: dict[str, Any]) -> Response:
        if not body["query"].endswith("| take 1") and "| order by sku asc, location asc" not in body["query"]:
            return error("BadRequest", "the pages of a query without an order overlap", 400)
        first = int(body.get("options", {}).get("$skipToken") or 0)
        rows = self.spot_history if "skuspotpricehistory" in body["query"] else self.evictions
        answer: dict[str, Any] = {"data": rows[first : first + self.page_rows]}
        if first + self.page_rows < len(rows):
            answer["$skipToken"] = str(first + self.page_rows)
        elif self.in_a_circle:
            answer["$skipToken"] = "0"
        return Response(body=json.dumps(answer).encode())


def error(code: str, message: str, status: int, headers: dict[str, str] | None = None) -> Response:
    """An error as ARM sends it."""
    return Response(status, json.dumps({"error": {"code": code, "message": message}}).encode(), headers=headers or {})


THROTTLED = error("TooManyRequests", "Please retry after 1 second", 429, {"Retry-After": "0"})


def managed_identity(request: Request) -> Response:
    """The token service of a machine of Azure's with an identity, as azure-identity finds it by IDENTITY_ENDPOINT."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    if request.path != "/msi/token" or "x-identity-header" not in headers or "resource" not in request.query:
        return Response(400)
    token = {"access_token": "h.e30.s", "expires_on": "4000000000", "token_type": "Bearer"}
    return Response(body=json.dumps({**token, "resource": request.query["resource"]}).encode())


class Token:
    """A credential: anything with `get_token` is one."""

    def get_token(self, *scopes: str, **options: Any) -> Any:
        from azure.core.credentials import AccessToken

        return AccessToken("header.eyJhcHBpZCI6ICJ0cmFkZXdpbmQifQ.signature", 4_000_000_000)


def loopback_tls(folder: Path, address: str = "127.0.0.1") -> tuple[ssl.SSLContext, str]:
    """(a server's context, the file of the authority that signed it)."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tradewind tests")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "loopback.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    file.write_bytes(private + public)
    authority = folder / "authority.pem"
    authority.write_bytes(public)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context, str(authority)
