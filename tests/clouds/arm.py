"""Azure Resource Manager on loopback, as far as machines go: requests, long operations, states, tags and costs.

The fields that a request may contain are those of azure-mgmt-compute's own model. What happens inside a machine is
`Machine`'s business. Times are those of `clock`. Not modelled: what is in images, the network between machines, roles,
locks, policies, updates of machines, stopping and starting through ARM, and Azure's own pace.
"""

from __future__ import annotations

import base64
import json
import random
import re
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import format_datetime
from enum import Enum
from typing import Any

from azure.mgmt.compute import models, types

from providers.clock import Clock
from providers.money import cost_nano_usd, usd
from tests.clouds.arm_networks import Networks, Refused
from tests.clouds.arm_storage import Storage
from tests.clouds.azure import AzureCloud, error
from tests.clouds.machines import Machine
from tests.clouds.present import Present
from tests.clouds.server import Request, Response

SUBSCRIPTION, GROUP = "11111111-2222-3333-4444-555555555555", "tradewind"
IMAGE, VERSIONS, IMAGE_GB = ("microsoft-dsvm", "ubuntu-hpc", "2404"), ("24.4.9", "24.4.10"), 30
CUSTOM_DATA_BYTES = 65_535
NOTICE = timedelta(seconds=30)
_GROUP = re.compile(r"/subscriptions/([^/]+)/resourcegroups/([^/]+)(/.*)?", re.I)
_COMPUTE = re.compile(r"/providers/microsoft\.compute/(virtualmachines|sshpublickeys)(?:/([^/]+))?(/.*)?", re.I)
_LOCATION = re.compile(r"/subscriptions/[^/]+/providers/microsoft\.(?:compute|network)/locations/([^/]+)/(.*)", re.I)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")

Row = dict[str, Any]


@dataclass
class Vm:
    """One machine: the row that describes it, and the exact times of its life, by which the cloud bills.

    `allocated` False: Azure had no capacity for it, but keeps it. `leaves`: names of resources that stay behind when it
    is deleted.
    """

    row: Row
    machine: Machine | None
    began_at: datetime
    shown_at: datetime
    refusal: tuple[str, str] | None = None
    ended_at: datetime | None = None
    taken_at: datetime | None = None
    leaves: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        return str(self.row["name"])

    @property
    def state(self) -> str:
        return str(self.row["properties"]["provisioningState"])

    @state.setter
    def state(self, name: str) -> None:
        self.row["properties"]["provisioningState"] = name

    @property
    def tags(self) -> dict[str, str]:
        return self.row["tags"]

    @property
    def spot(self) -> bool:
        return self.row["properties"].get("priority") == "Spot"

    @property
    def size(self) -> str:
        return str(self.row["properties"]["hardwareProfile"]["vmSize"])


class Arm:
    """`start` makes the machine of a row from its user data. `prices` is the cloud that knows SKUs and prices.

    `capacity`: (region, size, spot) -> machines that may run at once; unlimited where missing. `capacity_is_late`:
    their lack shows only in the long operation, and the machine stays. `quota`: vCPUs of a region by
    "lowPriorityCores" and "cores". `lag_s`: how long lists do not show a machine. `pending_s`, `ending_s`: how long it
    takes to create and to delete one; it is billed until the request to delete it. `granted`: the actions that the
    account's role allows, which tests.clouds.rbac enforces. `says_since`: a machine shows since when it is deleted.
    """

    def __init__(self, clock: Clock, prices: AzureCloud, start: Callable[[Row, bytes], Machine]) -> None:
        self.present, self.prices, self._start = Present(clock), prices, start
        self.chance: random.Random = random.SystemRandom()
        self.capacity: dict[tuple[str, str, bool], int] = {}
        self.capacity_is_late = False
        self.quota: dict[str, int] = {}
        self.lag_s = self.pending_s = self.ending_s = 0.0
        self.retry_after_s = 0
        self.granted = ["*"]
        self.says_since = True
        self.storage = Storage(lambda: clock.now_ms() / 1000, lambda: prices.base)
        others = lambda: [*self.vms, *self.keys, *self.storage.ids]  # noqa: E731
        self.networks = Networks(self._cards, others, lambda: self._begun("global", "other"))
        self.vms: dict[str, Vm] = {}
        self.gone: list[Vm] = []
        self.keys: dict[str, Row] = {}
        self.beside: set[str] = set()
        """Disks, network interfaces and addresses."""
        self._operations: dict[str, tuple[str, Vm | None]] = {}

    def now(self) -> datetime:
        return self.present.now()

    # --- what tests do to it ---

    def alive(self) -> list[Vm]:
        """All machines that Azure has, also those that are off or failed."""
        with self.present:
            self._pass()
            return list(self.vms.values())

    def every(self) -> list[Vm]:
        """All machines that there are and were."""
        return [*self.vms.values(), *self.gone]

    def announce(self, name: str, notice: timedelta = NOTICE) -> None:
        """Give notice that a spot machine will be taken away, and take it then."""
        with self.present:
            vm = self.vms[name]
            assert vm.spot
            assert vm.machine is not None
            vm.taken_at = self.now() + notice
            vm.machine.notify(vm.taken_at)

    def take(self, name: str) -> None:
        """Take a spot machine away."""
        with self.present:
            vm = self.vms[name]
            assert vm.spot
            assert vm.row["properties"]["evictionPolicy"] == "Delete"
            vm.ended_at = self.now().replace(microsecond=0)
            self._remove(vm)

    def approved(self, name: str) -> None:
        """A machine has approved that it is taken away: that happens at once."""
        with self.present:
            if (vm := self.vms.get(name)) is not None and vm.state != "Deleting":
                vm.ended_at, vm.state = self.now().replace(microsecond=0), "Deleting"

    def bill_nano_usd(self) -> int:
        """What all machines have cost: their seconds, a minute at least, at the prices of the market."""
        return sum(self.cost_nano_usd_of(each) for each in self.every() if each.refusal is None)

    def cost_nano_usd_of(self, vm: Vm) -> int:
        rows = (
            each
            for each in self.prices.rows
            if (each["armRegionName"], each["armSkuName"]) == (vm.row["location"], vm.size)
        )
        price = next(each["retailPrice"] for each in rows if each["skuName"].endswith(" Spot") == vm.spot)
        began_ms, ended_ms = (round(at.timestamp() * 1000) for at in (vm.began_at, vm.ended_at or self.now()))
        least_ms = began_ms + 60_000 * (vm.ended_at is not None)
        return cost_nano_usd([(0, usd(str(price)))], began_ms, max(ended_ms, least_ms))

    def end_all(self) -> None:
        for vm in self.alive():
            if vm.machine is not None:
                vm.machine.end()

    def connect(self, install: str, *regions: str) -> None:
        """Give an installation its networks, without being asked."""
        group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
        self.networks("PUT", group, json.dumps({"tags": {}}).encode())
        for region in regions:
            about = {"location": region, "tags": {"tradewind-install": install}}
            firewall, network = (
                f"{group}/providers/Microsoft.Network/{kind}/tradewind-{install}-{region}"
                for kind in ("networkSecurityGroups", "virtualNetworks")
            )
            self.networks("PUT", firewall, json.dumps({**about, "properties": {"securityRules": []}}).encode())
            inside = {"name": "machines", "properties": {"networkSecurityGroup": {"id": firewall}}}
            self.networks("PUT", network, json.dumps({**about, "properties": {"subnets": [inside]}}).encode())

    def _cards(self) -> Iterator[Row]:
        for vm in self.vms.values():
            yield from vm.row["properties"]["networkProfile"]["networkInterfaceConfigurations"]

    # --- the protocol ---

    def __call__(self, request: Request) -> Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        if not headers.get("authorization", "").startswith("Bearer "):
            return error("AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.", 401)
        if request.query.get("resource") == "filesystem":
            return self.storage.paths(request)
        if "api-version" not in request.query:
            return error("MissingApiVersionParameter", "The api-version query parameter is required.", 400)
        with self.present:
            self._pass()
            try:
                answer = self._answer(request, headers)
            except Refused as refused:
                answer = refused.response
            date = format_datetime(self.now().replace(microsecond=0), usegmt=True)
        return Response(answer.status, answer.body, answer.content_type, {"Date": date, **answer.headers})

    def _answer(self, request: Request, headers: Mapping[str, str]) -> Response:
        if found := _LOCATION.fullmatch(request.path):
            return self._of_location(found[1], found[2])
        if (of_storage := self.storage(request.method, request.path, request.body)) is not None:
            return of_storage
        found = _GROUP.fullmatch(request.path)
        if found is None:
            raise Refused(404, "NotFound", f"{request.path} is not served")
        if found[1] != SUBSCRIPTION:
            raise Refused(404, "SubscriptionNotFound", f"The subscription '{found[1]}' could not be found.")
        if found[2] not in self.networks.groups and found[3]:
            raise Refused(404, "ResourceGroupNotFound", f"Resource group '{found[2]}' could not be found.")
        if (found[3] or "").lower() == "/providers/microsoft.authorization/permissions":
            return _json({"value": [{"actions": self.granted, "notActions": []}]})
        if (answer := self.networks(request.method, request.path, request.body)) is not None:
            return answer
        kind = _COMPUTE.fullmatch(found[3] or "")
        if kind is None:
            raise Refused(404, "NotFound", f"{request.path} is not served")
        resources = self.keys if kind[1].lower() == "sshpublickeys" else {name: vm.row for name, vm in self.vms.items()}
        if kind[3] and kind[3].lower() == "/providers/microsoft.resources/tags/default":
            return self._tag(resources, kind[2], json.loads(request.body))
        if kind[2] is None:
            return self._listed(kind[1].lower())
        if kind[1].lower() == "sshpublickeys":
            return self._key(request.method, kind[2], request.body)
        if request.method == "PUT":
            return self._put(kind[2], json.loads(request.body), headers)
        if request.method == "DELETE":
            return self._delete(kind[2])
        return self._got(kind[2], request.query)

    def _of_location(self, region: str, rest: str) -> Response:
        parts = rest.split("/")
        if parts[0] == "operations":
            return self._operation(parts[1])
        if parts[0] == "usages":
            return _json({"value": [self._usage(region, name) for name in ("cores", "lowPriorityCores", "NCFamily")]})
        names = dict(zip(map(str.lower, parts[::2]), parts[1::2], strict=False))
        if parts[0] == "publishers" and parts[-1] == "versions":
            if (names["publishers"], names["offers"], names["skus"]) != IMAGE:
                raise Refused(404, "NotFound", "Artifact: VMImage was not found.")
            return _json([{"name": version, "location": region, "id": version} for version in VERSIONS])
        raise Refused(404, "NotFound", f"{rest} is not served")

    def _usage(self, region: str, name: str) -> Row:
        used = sum(
            self._vcpus(vm)
            for vm in self.vms.values()
            if vm.row["location"] == region and vm.spot == (name == "lowPriorityCores") and vm.refusal is None
        )
        about = {"value": name, "localizedValue": name}
        return {"unit": "Count", "currentValue": used, "limit": self.quota.get(name, 1 << 20), "name": about}

    def _put(self, name: str, body: Row, headers: Mapping[str, str]) -> Response:
        if (before := self.vms.get(name)) is not None:
            if before.state == "Deleting":
                text = f"The request failed because '{name}' is being deleted."
                raise Refused(409, "OperationNotAllowed", text)
            if headers.get("if-none-match") == "*":
                raise Refused(412, "PreconditionFailed", f"The resource '{name}' already exists.")
            raise AssertionError("this cloud does not update machines")
        region, about = str(body["location"]), body["properties"]
        self._check(name, region, body)
        size, spot = about["hardwareProfile"]["vmSize"], about.get("priority") == "Spot"
        there = [
            vm
            for vm in self.vms.values()
            if (vm.row["location"], vm.size, vm.spot) == (region, size, spot) and vm.refusal is None
        ]
        refusal = None
        if len(there) + 1 > self.capacity.get((region, size, spot), 1 << 20):
            if not self.capacity_is_late:
                text = f"The requested VM size {size} is currently not available in location '{region}'."
                raise Refused(409, "SkuNotAvailable", f"{text} See https://aka.ms/azureskunotavailable for details.")
            refusal = ("AllocationFailed", "Allocation failed. We do not have sufficient capacity for the requested VM")
        return self._made(name, region, body, refusal)

    def _check(self, name: str, region: str, body: Row) -> None:
        if unknown := _unknown(body, types.VirtualMachine):
            text = f"Could not find member '{unknown}' on object of type 'ResourceDefinition'."
            raise Refused(400, "InvalidRequestContent", f"The request content was invalid: '{text}'")
        about = body["properties"]
        if not _NAME.fullmatch(name) or about["osProfile"]["computerName"] != name:
            raise Refused(400, "InvalidParameter", "The name of the machine is invalid.")
        size = about["hardwareProfile"]["vmSize"]
        if not any(sku["name"] == size and region.upper() in sku["locations"] for sku in self.prices.skus):
            raise Refused(400, "InvalidParameter", f"The value {size} provided for the VM size is not valid.")
        image, disk = about["storageProfile"]["imageReference"], about["storageProfile"]["osDisk"]
        if (image["publisher"], image["offer"], image["sku"]) != IMAGE or image["version"] not in VERSIONS:
            raise Refused(404, "PlatformImageNotFound", f"The platform image '{image}' is not available.")
        if disk["diskSizeGB"] < IMAGE_GB:
            text = f"The specified disk size {disk['diskSizeGB']} GB is smaller than the size of the disk in the image"
            raise Refused(400, "InvalidParameter", f"{text}: {IMAGE_GB} GB.")
        system = about["osProfile"]
        if len(base64.b64decode(system["customData"])) > CUSTOM_DATA_BYTES:
            raise Refused(400, "InvalidParameter", "Custom data in OSProfile must be at most 65535 bytes.")
        keys = system["linuxConfiguration"].get("ssh", {}).get("publicKeys", [])
        if not keys or not all(key["keyData"].startswith("ssh-") for key in keys):
            raise Refused(400, "InvalidParameter", "Authentication using password or SSH key is required.")
        if len(body["tags"]) > 50 or any(len(value) > 256 for value in body["tags"].values()):
            raise Refused(400, "InvalidTag", "There are too many tags, or one is too long.")
        for card in about["networkProfile"]["networkInterfaceConfigurations"]:
            for address in card["properties"]["ipConfigurations"]:
                subnet = address["properties"]["subnet"]["id"]
                guard = card["properties"]["networkSecurityGroup"]["id"]
                if not (self.networks.has(subnet) and self.networks.has(guard)):
                    raise Refused(400, "InvalidResourceReference", f"Resource {subnet} was not found.")
        name = "lowPriorityCores" if about.get("priority") == "Spot" else "cores"
        usage, more = self._usage(region, name), self._vcpus_of(size, region)
        if usage["currentValue"] + more > usage["limit"]:
            text = f"Operation could not be completed as it results in exceeding approved {name} quota."
            details = f"Location: {region}, Current Limit: {usage['limit']}, Additional Required: {more}"
            raise Refused(409, "OperationNotAllowed", f"{text} Additional details - {details}")

    def _vcpus(self, vm: Vm) -> int:
        return self._vcpus_of(vm.size, vm.row["location"])

    def _vcpus_of(self, size: str, region: str) -> int:
        sku = next(sku for sku in self.prices.skus if sku["name"] == size and region.upper() in sku["locations"])
        return next(int(each["value"]) for each in sku["capabilities"] if each["name"] == "vCPUs")

    def _made(self, name: str, region: str, body: Row, refusal: tuple[str, str] | None) -> Response:
        now, about = self.now(), body["properties"]
        data = base64.b64decode(about["osProfile"].pop("customData"))
        about |= {
            "provisioningState": "Creating",
            "timeCreated": f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond:06}1+00:00",
            "vmId": self._uuid(),
        }
        kind = "Microsoft.Compute/virtualMachines"
        row = {
            "name": name,
            "id": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/{kind}/{name}",
            "type": kind,
            **body,
        }
        shown_at = now + timedelta(seconds=self.lag_s)
        vm = self.vms[name] = Vm(row, None, now.replace(microsecond=0), shown_at, refusal)
        parts = {f"disk {name}": about["storageProfile"]["osDisk"]}
        for card in about["networkProfile"]["networkInterfaceConfigurations"]:
            parts[f"interface {card['name']}"] = card["properties"]
            for each in card["properties"]["ipConfigurations"]:
                address = each["properties"]["publicIPAddressConfiguration"]
                parts[f"address {address['name']}"] = address["properties"]
        self.beside |= parts.keys()
        vm.leaves = {part for part, options in parts.items() if options.get("deleteOption") != "Delete"}
        if refusal is None:
            vm.machine = self._start(row, data)
        return _json(row, 201, self._begun(region, "create", vm))

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self.chance.getrandbits(128), version=4))

    def _begun(self, region: str, kind: str, vm: Vm | None = None) -> dict[str, str]:
        number = self._uuid()
        self._operations[number] = (kind, vm)
        of = "Network" if vm is None else "Compute"
        path = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.{of}/locations/{region}/operations/{number}"
        address = f"{self.prices.base}{path}?p=1&api-version=2026-04-01"
        return {"Azure-AsyncOperation": address, "Retry-After": str(self.retry_after_s)}

    def _operation(self, number: str) -> Response:
        if number not in self._operations:
            raise Refused(404, "NotFound", f"The operation {number} was not found.")
        kind, vm = self._operations[number]
        body: Row = {"name": number, "status": "InProgress"}
        if vm is None:
            body["status"] = "Succeeded"
        elif kind == "delete":
            body["status"] = "Succeeded" if vm in self.gone else "InProgress"
        elif vm.state == "Failed":
            code, message = vm.refusal or ("Unknown", "")
            body |= {"status": "Failed", "error": {"code": code, "message": message}}
        elif vm.state != "Creating":
            body["status"] = "Succeeded"
        return _json(body, 200, {"Retry-After": str(self.retry_after_s)} if body["status"] == "InProgress" else {})

    def _got(self, name: str, query: Mapping[str, str]) -> Response:
        if name not in self.vms:
            text = (
                f"The Resource 'Microsoft.Compute/virtualMachines/{name}' under resource group '{GROUP}' was not found"
            )
            raise Refused(
                404, "ResourceNotFound", f"{text}. For more details please go to https://aka.ms/ARMResourceNotFoundFix"
            )
        vm = self.vms[name]
        row = dict(vm.row)
        if query.get("$expand") == "instanceView":
            row["properties"] = {**row["properties"], "instanceView": {"statuses": self._statuses(vm)}}
        return _json(row)

    def _statuses(self, vm: Vm) -> list[Row]:
        if vm.refusal is not None:
            code, message = vm.refusal
            return [{"code": f"ProvisioningState/{vm.state.lower()}/{code}", "level": "Error", "message": message}]
        found = [{"code": f"ProvisioningState/{vm.state.lower()}", "level": "Info"}]
        if vm.state == "Deleting" and vm.ended_at is not None and self.says_since:
            found[0]["time"] = vm.ended_at.isoformat()
        if vm.state != "Creating":
            off = vm.machine is None or vm.machine.off
            found.append({"code": f"PowerState/{'stopped' if off else 'running'}", "level": "Info"})
        return found

    def _delete(self, name: str) -> Response:
        vm = self.vms.get(name)
        if vm is None:
            return Response(204)
        if vm.state != "Deleting":
            vm.state, vm.ended_at = "Deleting", self.now().replace(microsecond=0)
            if vm.machine is not None:
                vm.machine.shut_down()
        headers = self._begun(vm.row["location"], "delete", vm)
        self._pass()
        return Response(202, headers=headers)

    def _listed(self, kind: str) -> Response:
        if kind == "sshpublickeys":
            return _json({"value": list(self.keys.values())})
        return _json({"value": [vm.row for vm in self.vms.values() if vm.shown_at <= self.now()]})

    def _key(self, method: str, name: str, body: bytes) -> Response:
        if method == "DELETE":
            return Response(204 if self.keys.pop(name, None) is None else 200)
        if method == "PUT":
            made = json.loads(body)
            if unknown := _unknown(made, types.SshPublicKeyResource):
                raise Refused(400, "InvalidRequestContent", f"Could not find member '{unknown}'")
            new = name not in self.keys
            self.keys[name] = {"name": name, "type": "Microsoft.Compute/sshPublicKeys", **made}
            return _json(self.keys[name], 201 if new else 200)
        if name not in self.keys:
            raise Refused(
                404, "ResourceNotFound", f"The Resource 'Microsoft.Compute/sshPublicKeys/{name}' was not found."
            )
        return _json(self.keys[name])

    def _tag(self, resources: Mapping[str, Row], name: str, body: Row) -> Response:
        if name not in resources:
            raise Refused(404, "ResourceNotFound", f"The Resource '{name}' was not found.")
        assert body["operation"] == "Merge"
        resources[name]["tags"].update(body["properties"]["tags"])
        return _json({"properties": {"tags": resources[name]["tags"]}})

    # --- the life of machines ---

    def _pass(self) -> None:
        """What time and the machines themselves have changed."""
        now = self.now()
        for vm in list(self.vms.values()):
            if vm.state == "Creating" and now >= vm.began_at + timedelta(seconds=self.pending_s):
                vm.state = "Succeeded" if vm.refusal is None else "Failed"
            if vm.taken_at is not None and now >= vm.taken_at and vm.state != "Deleting":
                vm.ended_at, vm.state = vm.taken_at.replace(microsecond=0), "Deleting"
                if vm.machine is not None:
                    vm.machine.shut_down()
            ended = vm.state == "Deleting" and vm.ended_at is not None
            if ended and now >= (vm.ended_at or now) + timedelta(seconds=self.ending_s):
                self._remove(vm)

    def _remove(self, vm: Vm) -> None:
        del self.vms[vm.name]
        self.gone.append(vm)
        self.beside -= {part for part in self.beside if part.split()[1] == vm.name} - vm.leaves
        if vm.machine is not None:
            vm.machine.end()


def _json(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, json.dumps(body).encode(), headers=headers or {})


def _unknown(body: object, model: Any) -> str | None:
    """The first field of a body that the library's model does not have, or whose value is none of its enumeration."""
    if typing.get_origin(model) is list:
        assert isinstance(body, list)
        (inner,) = typing.get_args(model)
        return next(filter(None, (_unknown(each, inner) for each in body)), None)
    if not typing.is_typeddict(model):
        kinds = [each for each in typing.get_args(model) if isinstance(each, type) and issubclass(each, Enum)]
        wrong = kinds and body not in [value.value for kind in kinds for value in kind]
        return str(body) if wrong else None
    assert isinstance(body, dict)
    hints = typing.get_type_hints(model, localns=vars(models))
    for name, value in body.items():
        if name not in hints:
            return str(name)
        if unknown := _unknown(value, hints[name]):
            return unknown
    return None
