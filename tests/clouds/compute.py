"""Compute Engine on loopback, as far as machines go: their requests, operations, states, labels and what they cost.

Requests are parsed with the library's own protobuf types, which refuse unknown fields; names of enumerations, which are
text in these types, are checked here. What happens inside a machine is `Machine`'s business.

Times are those of `clock`. Not modelled: traffic, disks, the contents of images, IAM conditions, reservations,
stopping by a call, live migration.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from google.cloud import compute_v1 as api

from providers.clock import Clock
from providers.money import cost_nano_usd, usd
from tests.clouds.gce_networks import GceNetworks
from tests.clouds.gce_quotas import GceQuotas
from tests.clouds.gcp import GcpCloud, error
from tests.clouds.gcs_buckets import BELOW, GcsBuckets
from tests.clouds.machines import Machine
from tests.clouds.present import Present
from tests.clouds.server import Request, Response

PROJECT = "test-project"
NOTICE = timedelta(seconds=120)
IMAGE, FAMILY, IMAGE_GB = "debian-12-v20260101", "debian-12", 10
VALUE_BYTES = 256 << 10
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BELOW = f"/compute/v1/projects/{PROJECT}/"
_STOPPED = ("TERMINATED",)
_FULL = ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "insufficientCapacity")
_DONE = api.Operation.Status.DONE
_ENUMS = {
    "provisioning_model": api.Scheduling.ProvisioningModel,
    "instance_termination_action": api.Scheduling.InstanceTerminationAction,
    "on_host_maintenance": api.Scheduling.OnHostMaintenance,
}


class Refused(Exception):
    """An error as Compute Engine answers it: at once, or by its operation (`late`)."""

    def __init__(self, status: int, reason: str, message: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.status, self.reason, self.message, self.late = status, reason, message, late


@dataclass
class Vm:
    """One machine: its row, and the exact times of its life, by which the cloud bills."""

    row: Any
    zone: str
    machine: Machine
    shown_at: datetime
    began_at: datetime
    ended_at: datetime | None = None
    deleted: bool = False

    @property
    def spot(self) -> bool:
        return bool(self.row.scheduling.provisioning_model == "SPOT")

    @property
    def kind(self) -> str:
        """Its machine type, with what is attached to it."""
        kind = self.row.machine_type.rpartition("/")[2]
        for card in self.row.guest_accelerators:
            kind += f"+{card.accelerator_count}x{card.accelerator_type.rpartition('/')[2]}"
        return kind

    @property
    def metadata(self) -> dict[str, str]:
        return {item.key: item.value for item in self.row.metadata.items}


class Compute:
    """`start` makes the machine of a row. `lists` is the cloud that knows zones and types; `price` says what a machine
    costs, in dollars per hour.

    `capacity`: (type, zone, spot) -> machines that may run at once; unlimited where missing. `quota`: limits by metric
    (see GceQuotas). `lag_s`: how long a launch is not listed. `pending_s`, `ending_s`: how long operations take.
    `refuses_late`: capacity and quota errors show in the operation, as they mostly do, and not in the answer.
    `unreachable`: zones whose lists are missing. `granted`: the permissions of the caller; None: all.
    `forgets_requests`: a request id no longer counts. `forbids`: what a policy of the organisation says to a machine.
    """

    def __init__(
        self, clock: Clock, lists: GcpCloud, price: Callable[[Vm], str], start: Callable[[Any], Machine]
    ) -> None:
        self.present, self.lists, self._price, self._start = Present(clock), lists, price, start
        self.chance: random.Random = random.SystemRandom()
        self.capacity: dict[tuple[str, str, bool], int] = {}
        self.quotas = GceQuotas(lambda zone: lists.zones[zone].machines, self._running)
        self.quota = self.quotas.limits
        lists.quotas = self.quotas.rows
        self.granted: frozenset[str] | None = None
        self.lag_s = self.pending_s = self.ending_s = 0.0
        self.refuses_late = True
        self.unreachable: set[str] = set()
        self.forgets_requests = False
        self.forbids = ""
        self.family, self.image = FAMILY, IMAGE
        self.page_rows = 500
        self.vms: list[Vm] = []
        self.networks = GceNetworks(PROJECT, self._regions, self._used_networks)
        self.buckets = GcsBuckets(granted=lambda: self.granted)
        self.operations: list[tuple[str, Any]] = []
        self._requests: dict[tuple[str, str], Any] = {}
        self._due: dict[str, tuple[datetime, Refused | None]] = {}

    def _regions(self) -> list[str]:
        return sorted({zone.rpartition("-")[0] for zone in self.lists.zones})

    def _used_networks(self) -> set[str]:
        rows = [each.row for each in self.vms if not each.deleted]
        return {card.network.rpartition("/")[2] for row in rows for card in row.network_interfaces}

    def now(self) -> datetime:
        return self.present.now()

    def _running(self) -> list[tuple[str, str, bool]]:
        return [(each.zone, each.kind, each.spot) for each in self.alive()]

    # --- what tests do to it ---

    def alive(self) -> list[Vm]:
        """All machines that cost something."""
        with self.present:
            self._pass()
            return [each for each in self.vms if not each.deleted and each.row.status not in _STOPPED]

    def left(self) -> list[Vm]:
        """All that is left: machines that have stopped still have a disk."""
        with self.present:
            self._pass()
            return [each for each in self.vms if not each.deleted]

    def named(self, name: str) -> Vm:
        return next(each for each in reversed(self.vms) if each.row.name == name)

    def announce(self, name: str) -> None:
        """Give notice that a spot machine will be taken away."""
        with self.present:
            vm = self.named(name)
            seconds = vm.row.scheduling.preemption_notice_duration.seconds
            assert vm.spot
            assert seconds, "this machine was launched without a notice"
            vm.machine.notify(self.now() + timedelta(seconds=seconds))

    def limit_run(self, name: str, left: timedelta) -> None:
        """The longest run of a machine is over after this time."""
        with self.present:
            vm = self.named(name)
            vm.row.scheduling.max_run_duration.seconds = int((self.now() + left - vm.began_at).total_seconds())
            vm.row.resource_status.scheduling.termination_timestamp = _text(self.now() + left)

    def take(self, name: str) -> None:
        """Take a spot machine away, and delete it, as it was launched."""
        with self.present:
            vm = self.named(name)
            assert vm.row.scheduling.instance_termination_action == "DELETE"
            self._operation(vm.zone, "compute.instances.preempted", name, user="system")
            self._operation(vm.zone, "delete", name, user="system")
            self._gone(vm)

    def bill_nano_usd(self) -> int:
        """What all machines have cost: their seconds, a minute at least, at the prices of the market."""
        return sum(map(self.cost_nano_usd_of, self.vms))

    def cost_nano_usd_of(self, vm: Vm) -> int:
        began_ms, ended_ms = (round(at.timestamp() * 1000) for at in (vm.began_at, vm.ended_at or self.now()))
        path = [(0, usd(self._price(vm)))]
        return cost_nano_usd(path, began_ms, max(ended_ms, began_ms + 60_000 * (vm.ended_at is not None)))

    def end_all(self) -> None:
        for vm in self.left():
            vm.machine.end()

    # --- the protocol ---

    def __call__(self, request: Request) -> Response:
        with self.present:
            self._pass()
            if request.path.startswith(BELOW):
                return self.buckets(request)
            try:
                answer = self._answer(request)
            except Refused as refused:
                return error(refused.status, refused.message, refused.reason)
        if isinstance(answer, dict):  # of another API than Compute
            return Response(body=json.dumps(answer).encode())
        return Response(body=type(answer).to_json(answer, always_print_fields_with_no_presence=False).encode())

    def _answer(self, request: Request) -> Any:
        if request.path == f"/v1/projects/{PROJECT}:testIamPermissions":
            asked = json.loads(request.body)["permissions"]
            return {"permissions": [each for each in asked if self.granted is None or each in self.granted]}
        if image := re.fullmatch(r"/compute/v1/projects/([\w-]+)/global/images/(family/)?([\w-]+)", request.path):
            self._require("images.getFromFamily" if image[2] else "images.get")
            return self._image(image[3], bool(image[2]))
        if not (request.path + "/").startswith(_BELOW):
            raise Refused(404, "notFound", f"{request.path} is not served here")
        words = request.path.removeprefix(_BELOW.rstrip("/")).split("/")[1:]
        match (request.method, words):
            case ("POST", ["zones", zone, "instances"]):
                self._require(*_CREATE)
                return self._inserted(zone, request, api.Instance)
            case ("POST", ["zones", zone, "instances", "bulkInsert"]):
                self._require(*_CREATE)
                return self._inserted(zone, request, api.BulkInsertInstanceResource)
            case ("POST", ["regions", region, "instances", "bulkInsert"]):
                self._require(*_CREATE)
                return self._inserted_anywhere(region, request)
            case ("POST", ["regions", region, "operations", name, "wait"]):
                self._require("regionOperations.get")
                return next(each for where, each in self.operations if (where, each.name) == (region, name))
            case ("GET", ["zones", zone, "instances", name]):
                self._require("instances.get")
                return self._existing(zone, name).row
            case ("DELETE", ["zones", zone, "instances", name]):
                self._require("instances.delete")
                return self._deleted(self._existing(zone, name))
            case ("POST", ["zones", zone, "instances", name, "setMetadata"]):
                self._require("instances.setMetadata")
                return self._set_metadata(self._existing(zone, name), request)
            case ("POST", ["zones", zone, "operations", name, "wait"]):
                self._require("zoneOperations.get")
                return next(each for where, each in self.operations if (where, each.name) == (zone, name))
            case ("GET", ["aggregated", "instances"]):
                self._require("instances.list")
                return self._listed(request)
            case ("GET", ["aggregated", "operations"]):
                self._require("globalOperations.list")
                return self._logged(request)
            case (_, ["global", "operations", name, "wait"]):
                self._require("globalOperations.get")
                return next(each for _, each in self.operations if each.name == name)
            case (_, ["global", *below]):
                return self._of_networks(below, request)
            case ("GET", []):
                self._require("projects.get")
                return api.Project(name=PROJECT, quotas=self.quotas.rows())
        raise Refused(404, "notFound", f"{request.method} {request.path} is not served here")

    def _of_networks(self, words: list[str], request: Request) -> Any:
        kept = dict(self.networks.networks), dict(self.networks.firewalls)
        permission, answer, done = self.networks.answer(words, request, self.now(), Refused)
        try:
            self._require(permission)
            if words[0] == "firewalls" and request.method != "GET":
                self._require("networks.updatePolicy")
        except Refused:
            self.networks.networks, self.networks.firewalls = kept
            raise
        if not isinstance(answer, str):
            return answer
        return self._operation("global", answer, words[-1], (done - self.now()).total_seconds())

    def _require(self, *permissions: str) -> None:
        for permission in (f"compute.{each}" for each in permissions):
            if self.granted is not None and permission not in self.granted:
                raise Refused(403, "forbidden", f"Required '{permission}' permission for 'projects/{PROJECT}'")

    def _image(self, name: str, family: bool) -> Any:
        if name != (self.family if family else self.image):
            raise Refused(404, "notFound", f"The resource '{name}' was not found")
        return api.Image(name=self.image, family=self.family, disk_size_gb=IMAGE_GB)

    # --- creating ---

    def _asked(self, place: str, request: Request, kind: Any) -> tuple[Any, str, Any]:
        """The message of a request, its id, and the operation of an earlier one of this id."""
        try:
            asked = kind.from_json(request.body)
        except Exception as problem:
            raise Refused(400, "invalid", f"Invalid JSON payload received. {problem}") from problem
        request_id = request.query.get("requestId", "")
        if request_id and not _UUID.fullmatch(request_id):
            raise Refused(400, "invalid", f"Invalid value for field 'requestId': '{request_id}'")
        before = self._requests.get((place, request_id))
        return asked, request_id, before if request_id and not self.forgets_requests else None

    def _inserted_anywhere(self, region: str, request: Request) -> Any:
        """All in one zone of the region, which is not denied and has room: this cloud's choice."""
        zones = sorted(zone for zone in self.lists.zones if zone.rpartition("-")[0] == region)
        if not zones:
            raise Refused(404, "notFound", f"The resource 'projects/{PROJECT}/regions/{region}' was not found")
        asked, request_id, before = self._asked(region, request, api.BulkInsertInstanceResource)
        if before is not None:
            return before
        policy = asked.location_policy
        if policy.target_shape != "ANY_SINGLE_ZONE":
            raise Refused(400, "invalid", "This cloud creates all in one zone.")
        for place, wish in policy.locations.items():
            if place.removeprefix("zones/") not in zones or wish.preference not in ("ALLOW", "DENY"):
                raise Refused(400, "invalid", f"Invalid value for field 'locationPolicy.locations': '{place}'")
        denied = {place for place, wish in policy.locations.items() if wish.preference == "DENY"}
        shape = asked.instance_properties.machine_type
        open_to = [
            zone
            for zone in self.chance.sample(zones, len(zones))
            if f"zones/{zone}" not in denied and shape in {each.name for each in self.lists.zones[zone].machines}
        ]
        if not open_to:
            raise Refused(400, "invalid", f"Invalid value for field 'instanceProperties.machineType': '{shape}'")
        refused: Refused | None = None
        for zone in open_to:
            rows = self._rows(zone, asked)
            try:
                self._check(zone, rows, many=True)
            except Refused as error:
                refused = error
                if error.reason not in _FULL:
                    break
            else:
                refused = None
                break
        if refused is not None and not refused.late:
            raise refused
        operation = self._operation(region, "bulkInsert", "", self.pending_s, request_id, refused)
        operation.zone, operation.region = "", f"projects/{PROJECT}/regions/{region}"
        operation.target_link = f"https://www.googleapis.com{_BELOW}regions/{region}"
        self._requests[region, request_id] = operation
        if refused is None:
            status = {"status": "DONE", "target_vm_count": len(rows), "created_vm_count": len(rows)}
            operation.instances_bulk_insert_operation_metadata = {"per_location_status": {f"zones/{zone}": status}}
            for row in rows:
                self._operation(zone, "insert", row.name, self.pending_s)
                self._begin(zone, row)
        return _begun(operation)

    def _inserted(self, zone: str, request: Request, kind: Any) -> Any:
        self._zone(zone)
        asked, request_id, before = self._asked(zone, request, kind)
        if before is not None:
            return before
        rows = self._rows(zone, asked)
        many = kind is api.BulkInsertInstanceResource
        refused: Refused | None = None
        try:
            self._check(zone, rows, many)
        except Refused as error:
            if not error.late:
                raise
            refused = error
        operation = self._operation(
            zone, "bulkInsert" if many else "insert", "" if many else rows[0].name, self.pending_s, request_id, refused
        )
        if refused is not None:
            rows = []
        self._requests[zone, request_id] = operation
        for row in rows:
            if many:
                self._operation(zone, "insert", row.name, self.pending_s)
            self._begin(zone, row)
        return _begun(operation)

    def _rows(self, zone: str, asked: Any) -> list[Any]:
        """The machines that a request asks for, as they are described."""
        if isinstance(asked, api.Instance):
            return [asked]
        if asked.min_count not in (0, asked.count) or len(asked.per_instance_properties) != asked.count:
            raise Refused(400, "invalid", "This cloud creates all or none, by name.")
        properties = json.loads(api.InstanceProperties.to_json(asked.instance_properties, use_integers_for_enums=False))
        below = f"zones/{zone}/"
        rows = []
        for name in asked.per_instance_properties:
            row = api.Instance.from_json(json.dumps(properties), ignore_unknown_fields=True)
            if "/" in row.machine_type:
                raise Refused(400, "invalid", "Bulk requests name types, without a zone.")
            row.name, row.machine_type = name, f"{below}machineTypes/{row.machine_type}"
            rows.append(row)
        return rows

    def _zone(self, zone: str) -> None:
        if zone not in self.lists.zones:
            raise Refused(404, "notFound", f"The resource 'projects/{PROJECT}/zones/{zone}' was not found")

    def _check(self, zone: str, rows: list[Any], many: bool) -> None:
        for row in rows:
            self._check_fields(zone, row)
            if any((each.zone, each.row.name) == (zone, row.name) and not each.deleted for each in self.vms):
                path = f"projects/{PROJECT}/zones/{zone}/instances/{row.name}"
                text = f"The resource '{path}' already exists"
                raise Refused(409, "RESOURCE_ALREADY_EXISTS" if many else "alreadyExists", text, late=many)
        new = Vm(rows[0], zone, None, self.now(), self.now())  # type: ignore[arg-type]
        same = [each for each in self.alive() if each.spot == new.spot]
        late = self.refuses_late
        if self.forbids:
            raise Refused(412, "CONDITION_NOT_MET" if late else "conditionNotMet", self.forbids, late=late)
        if text := self.quotas.exceeded([(zone, new.kind, new.spot)] * len(rows)):
            raise Refused(403, "QUOTA_EXCEEDED" if late else "quotaExceeded", text, late=late)
        there = [each for each in same if (each.kind, each.zone) == (new.kind, zone)]
        if len(there) + len(rows) > self.capacity.get((new.kind, zone, new.spot), 1 << 20):
            text = f"A {new.kind} VM instance is currently unavailable in the {zone} zone."
            code = "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS" if late else "insufficientCapacity"
            raise Refused(503, code, text, late=late)

    def _check_fields(self, zone: str, row: Any) -> None:
        shape = row.machine_type.rpartition("/")[2]
        if row.machine_type != f"zones/{zone}/machineTypes/{shape}" or shape not in {
            each.name for each in self.lists.zones[zone].machines
        }:
            raise Refused(400, "invalid", f"Invalid value for field 'resource.machineType': '{row.machine_type}'")
        if not _NAME.fullmatch(row.name):
            raise Refused(400, "invalid", f"Invalid value for field 'resource.name': '{row.name}'")
        for text in (*row.labels.keys(), *row.labels.values()):
            if not _LABEL.fullmatch(text):
                raise Refused(400, "invalid", f"Invalid value for field 'resource.labels': '{text}'")
        for field, kinds in _ENUMS.items():
            value = getattr(row.scheduling, field)
            if value and value not in kinds.__members__:
                raise Refused(400, "invalid", f"Invalid value for field 'scheduling.{field}': '{value}'")
        (card,) = row.network_interfaces
        if card.network.rpartition("/")[2] not in self.networks.networks:
            raise Refused(404, "notFound", f"The resource 'projects/{PROJECT}/{card.network}' was not found")
        if any(len(item.value.encode()) > VALUE_BYTES for item in row.metadata.items):
            raise Refused(400, "invalid", "Value for field 'resource.metadata.items' is too large")
        spot, notice = row.scheduling.provisioning_model == "SPOT", row.scheduling.preemption_notice_duration.seconds
        if (spot and row.scheduling.on_host_maintenance != "TERMINATE") or notice not in ((0, 120) if spot else (0,)):
            raise Refused(400, "invalid", "Invalid value for field 'resource.scheduling'")
        (disk,) = row.disks
        if disk.initialize_params.disk_size_gb < IMAGE_GB:
            raise Refused(400, "invalid", "Requested disk size cannot be smaller than the image size")

    def _begin(self, zone: str, row: Any) -> None:
        now = self.now()
        row.zone = f"projects/{PROJECT}/zones/{zone}"
        row.id = self.chance.getrandbits(60)
        row.creation_timestamp, row.status = _text(now), "PROVISIONING"
        row.metadata.fingerprint = f"{self.chance.getrandbits(32):08x}"
        if row.scheduling.max_run_duration.seconds:
            at = now + timedelta(seconds=row.scheduling.max_run_duration.seconds)
            row.resource_status.scheduling.termination_timestamp = _text(at)
        shown_at = now + timedelta(seconds=self.lag_s)
        self.vms.append(Vm(row, zone, self._start(row), shown_at, now))

    # --- changing ---

    def _existing(self, zone: str, name: str) -> Vm:
        self._zone(zone)
        for vm in self._visible():
            if (vm.zone, vm.row.name) == (zone, name):
                return vm
        path = f"projects/{PROJECT}/zones/{zone}/instances/{name}"
        raise Refused(404, "notFound", f"The resource '{path}' was not found")

    def _deleted(self, vm: Vm) -> Any:
        operation = self._operation(vm.zone, "delete", vm.row.name, self.ending_s)
        if vm.row.status not in _STOPPED:
            vm.machine.shut_down()
        vm.row.status = "STOPPING"
        self._pass()
        return operation

    def _set_metadata(self, vm: Vm, request: Request) -> Any:
        asked = api.Metadata.from_json(request.body)
        if asked.fingerprint != vm.row.metadata.fingerprint:
            raise Refused(412, "conditionNotMet", "Supplied fingerprint does not match current metadata fingerprint.")
        asked.fingerprint = f"{self.chance.getrandbits(32):08x}"
        vm.row.metadata = asked
        return self._operation(vm.zone, "setMetadata", vm.row.name)

    # --- listing ---

    def _visible(self) -> Iterator[Vm]:
        now = self.now()
        return (each for each in self.vms if each.shown_at <= now and not each.deleted)

    def _listed(self, request: Request) -> Any:
        wanted = _filter(request.query.get("filter", ""))
        found = [(each.zone, each.row) for each in self._visible() if wanted(each.row)]
        page, token = self._page(request, found)
        items: dict[str, Any] = {f"zones/{zone}": _scope("instances", []) for zone in self.lists.zones}
        for zone in self.lists.zones:
            items[f"zones/{zone}"] = _scope("instances", [row for where, row in page if where == zone])
            if zone in self.unreachable:
                items[f"zones/{zone}"] = {"warning": {"code": "UNREACHABLE", "message": "no answer"}}
        return api.InstanceAggregatedList(items=items, next_page_token=token)

    def _logged(self, request: Request) -> Any:
        wanted = _filter(request.query.get("filter", ""))
        found = [(zone, each) for zone, each in self.operations if wanted(each) and zone not in self.unreachable]
        page, token = self._page(request, found)
        items = {
            f"zones/{zone}": _scope("operations", [each for where, each in page if where == zone])
            for zone in self.lists.zones
        }
        return api.OperationAggregatedList(items=items, next_page_token=token)

    def _page(self, request: Request, rows: list[Any]) -> tuple[list[Any], str]:
        first = int(request.query.get("pageToken") or 0)
        last = first + min(self.page_rows, int(request.query.get("maxResults") or self.page_rows))
        return rows[first:last], str(last) if last < len(rows) else ""

    # --- the life of machines ---

    def _operation(
        self,
        zone: str,
        kind: str,
        name: str,
        takes_s: float = 0.0,
        request_id: str = "",
        refused: Refused | None = None,
        user: str = "ada@example.org",
    ) -> Any:
        now = self.now()
        operation = api.Operation(
            name=f"operation-{self.chance.getrandbits(64):016x}",
            operation_type=kind,
            client_operation_id=request_id,
            insert_time=_text(now),
            target_link=f"https://www.googleapis.com{_BELOW}zones/{zone}/instances/{name}",
            user=user,
            zone=zone,
            status=api.Operation.Status.RUNNING,
        )
        self.operations.append((zone, operation))
        self._due[operation.name] = now + timedelta(seconds=takes_s), refused
        self._settle(operation)
        return operation

    def _settle(self, operation: Any) -> None:
        at, refused = self._due[operation.name]
        if operation.status != _DONE and at <= self.now():
            operation.status, operation.progress, operation.end_time = _DONE, 100, _text(at)
            if refused is not None:
                operation.error.errors = [{"code": refused.reason, "message": refused.message}]
                operation.http_error_status_code = refused.status

    def _pass(self) -> None:
        """What time and the machines themselves have changed."""
        now = self.now()
        for _, operation in self.operations:
            self._settle(operation)
        done = {
            (zone, each.target_link.rpartition("/")[2]): self._due[each.name][0]
            for zone, each in reversed(self.operations)  # the first one counts
            if each.operation_type == "delete" and each.status == _DONE
        }
        for vm in self.vms:
            if vm.deleted:
                continue
            row = vm.row
            if row.status == "STOPPING" and (vm.zone, row.name) in done:
                self._gone(vm, done[vm.zone, row.name])
                continue
            if row.status == "PROVISIONING" and now >= vm.began_at + timedelta(seconds=self.pending_s):
                row.status = "RUNNING"
            if row.status in ("PROVISIONING", "RUNNING") and vm.machine.off:
                self._operation(vm.zone, "compute.instances.guestTerminate", row.name, user="system")
                row.status, row.last_stop_timestamp, vm.ended_at = "TERMINATED", _text(now), now
            limit_s = row.scheduling.max_run_duration.seconds
            if limit_s and row.status == "RUNNING" and now >= vm.began_at + timedelta(seconds=limit_s):
                self._operation(vm.zone, "delete", row.name, user="system")
                self._gone(vm)

    def _gone(self, vm: Vm, at: datetime | None = None) -> None:
        vm.ended_at = vm.ended_at or at or self.now()
        vm.deleted = True
        vm.machine.end()


_CREATE = (
    *("instances.create", "instances.setMetadata", "instances.setLabels", "disks.create", "disks.setLabels"),
    *("images.useReadOnly", "subnetworks.use", "subnetworks.useExternalIp"),
)


def _begun(operation: Any) -> Any:
    """An operation as the call that begins it answers: nothing is done yet."""
    shown = api.Operation(operation)
    shown.status, shown.end_time = api.Operation.Status.RUNNING, ""
    shown.progress, shown.http_error_status_code = 0, 0
    shown.error = api.Error()
    shown.instances_bulk_insert_operation_metadata = api.InstancesBulkInsertOperationMetadata()
    return shown


def _scope(field: str, rows: list[Any]) -> dict[str, Any]:
    return {field: rows} if rows else {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "no results"}}


def _filter(text: str) -> Callable[[Any], bool]:
    """The forms of filters that this project uses."""
    if found := re.fullmatch(r'(name|targetLink) eq "(.*)"', text):
        field, pattern = {"name": "name", "targetLink": "target_link"}[found[1]], re.compile(found[2])
        return lambda row: pattern.fullmatch(getattr(row, field)) is not None
    if found := re.fullmatch(r"labels\.([a-z0-9_-]+) = ([a-z0-9_-]+)", text):
        key, value = found.groups()
        return lambda row: row.labels.get(key) == value
    if found := re.fullmatch(r"labels\.([a-z0-9_-]+):\*", text):
        present = found[1]
        return lambda row: present in row.labels
    raise Refused(400, "invalid", f"Invalid value for field 'filter': '{text}'")


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")
