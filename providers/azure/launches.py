"""Launching: one PUT for each machine, under a name derived from the launch token.

A PUT with `If-None-Match: *` creates a machine or changes nothing, so a launch may be repeated. Azure cannot start a
group of machines all or none: if one is refused, at once or by its long operation, the others are deleted again, and so
is what Azure keeps of a failed one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from azure.core import MatchConditions

from providers.azure import rows
from providers.azure.calls import INSTALL
from providers.azure.images import Images
from providers.azure.machines import MOST_AT_ONCE, Machines
from providers.azure.networks import Networks, Place
from providers.azure.operations import Accepted, Operations
from providers.azure.records import ASKED, OFFER, Record
from providers.azure.session import ONCE, Connections, refusal
from providers.azure.settings import Settings
from providers.azure.user_data import user_data
from providers.base import LaunchSpec
from providers.clock import Clock
from providers.errors import ConflictError, ProviderError, SetupError, UnavailableError
from providers.instance import EndReason
from providers.machine.lifetime import LIVES
from providers.offer import OfferId

WAIT_S = 20.0
"""How long a launch waits for Azure to say that it has no capacity. The control plane gives a call 30 s."""
ADMIN = "tradewind"


class Launches:
    """`convert` converts any exception to a ProviderError."""

    def __init__(
        self,
        settings: Settings,
        connections: Connections,
        clock: Clock,
        machines: Machines,
        networks: Networks,
        convert: Callable[[BaseException], ProviderError],
    ) -> None:
        self._settings, self._connections, self._clock = settings, connections, clock
        self._machines, self._networks, self._convert = machines, networks, convert
        self._images = Images(connections, clock)
        self._operations = Operations(connections, clock)

    def launch(self, spec: LaunchSpec, offer: OfferId) -> tuple[str, ...]:
        """See Provider.launch. Raises ProviderError."""
        names = rows.names(spec.token, spec.count)
        data = user_data(spec.user_data, spec.time_to_live_s)
        image = self._images.named(spec.image or self._settings.image, offer.region)
        mark = spec.fingerprint
        known = self._machines.records.get(names[0])
        if known is not None and known.tags.get(rows.REQUEST) != mark:
            raise ConflictError("the token was used for another request", hint="use a new token for a new request")
        place = self._networks.place(spec.tags.get(INSTALL, ""), offer.region)
        records = _each(names, lambda name: self._recorded(name, spec, offer, mark))
        wanted = [each for each in records if each.ended is None]

        def create(record: Record) -> Accepted | ProviderError:
            try:
                return self._created(record, self._request(spec, offer, record, data, image, place), mark)
            except Exception as error:
                return self._convert(error)

        answers = dict(zip((each.name for each in wanted), _each(wanted, create), strict=True))
        begun = {name: each for name, each in answers.items() if isinstance(each, Accepted)}
        errors = [each for each in answers.values() if isinstance(each, ProviderError)]
        if not errors:
            errors = [each for each in self._operations.outcomes(begun, WAIT_S).values() if each is not None]
        if errors:
            error = next((each for each in errors if not each.retryable), errors[0])
            if isinstance(error, SetupError):
                self._networks.forget(spec.tags.get(INSTALL, ""), offer.region)
            if not error.retryable:
                self._undo([record.name for record in wanted if record.name in begun], names, error)
            raise error
        return tuple(rows.instance_id(offer.region, name) for name in names)

    def _recorded(self, name: str, spec: LaunchSpec, offer: OfferId, mark: str) -> Record:
        found = self._machines.records.get(name)
        if found is not None:
            return found
        tags = {**self._tags(spec, mark), OFFER: str(offer), ASKED: str(self._clock.now_ms())}
        return self._machines.records.create(name, offer.region, tags)

    def _created(self, record: Record, request: Mapping[str, Any], mark: str) -> Accepted:
        accepted = Accepted()
        try:
            self._connections.compute.virtual_machines.begin_create_or_update(
                self._settings.resource_group,
                record.name,
                request,
                etag="*",
                match_condition=MatchConditions.IfMissing,
                polling=accepted,
                **ONCE,
            )
        except Exception as error:
            converted = self._convert(error)
            if isinstance(converted, ConflictError) and self._is_there(record, mark):
                return Accepted()
            raise converted from error
        with suppress(Exception):  # otherwise the first `describe` does it
            self._machines.note_beginning(record, accepted.body)
        return accepted

    def _is_there(self, record: Record, mark: str) -> bool:
        """Whether an earlier call has created this machine. Raises the error of a failed creation, and UnavailableError
        while the machine is being deleted."""
        vm = self._machines.get(record.name)
        if vm is None or rows.tags_of(vm).get(rows.REQUEST) != mark:
            return False
        about = vm["properties"]
        if about.get("provisioningState") == "Deleting":
            raise UnavailableError(f"Azure is still deleting {record.name}", hint="Tradewind tries again")
        if rows.over(vm, self._clock.now_ms()) is EndReason.FAILED and rows.failure(vm)[0]:
            self._machines.end(record.name, EndReason.FAILED)
            self._machines.records.remove(record.name)
            raise refusal(*rows.failure(vm))
        return True

    def _undo(self, created: Sequence[str], names: Sequence[str], error: ProviderError) -> None:
        """Delete what a refused launch has left. Raises UnavailableError if that fails, because something may be
        left."""
        try:
            _each(created, lambda name: self._machines.end(name, EndReason.FAILED))
            _each(names, self._machines.records.remove)
        except Exception as again:
            raise UnavailableError(
                f"a launch was refused ({error}), and its leftovers could not be deleted: {self._convert(again)}",
                hint="launch again, or end its machines",
            ) from again

    def _request(
        self, spec: LaunchSpec, offer: OfferId, record: Record, data: str, image: Mapping[str, str], place: Place
    ) -> dict[str, Any]:
        """The body of a PUT. It contains everything that the machine needs and that is deleted with it."""
        name, tags = record.name, self._tags(spec, spec.fingerprint)
        address = {
            "name": name,
            "sku": {"name": "Standard"},
            "properties": {"deleteOption": "Delete", "publicIPAllocationMethod": "Static"},
            "tags": tags,
        }
        inside = {"subnet": {"id": place.subnet}, "publicIPAddressConfiguration": address}
        card = {
            "primary": True,
            "deleteOption": "Delete",
            "networkSecurityGroup": {"id": place.firewall},
            "ipConfigurations": [{"name": name, "properties": inside}],
        }
        keys = [{"path": f"/home/{ADMIN}/.ssh/authorized_keys", "keyData": record.public_key}]
        disk = {
            "name": name,
            "createOption": "FromImage",
            "deleteOption": "Delete",
            "diskSizeGB": self._settings.disk_gb + spec.disk_gb,
            "managedDisk": {"storageAccountType": "StandardSSD_LRS"},
        }
        about: dict[str, Any] = {
            "hardwareProfile": {"vmSize": offer.instance_type},
            "storageProfile": {"imageReference": dict(image), "osDisk": disk},
            "osProfile": {
                "computerName": name,
                "adminUsername": ADMIN,
                "customData": data,
                "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": keys}},
            },
            "networkProfile": {
                "networkApiVersion": "2020-11-01",
                "networkInterfaceConfigurations": [{"name": name, "properties": card, "tags": tags}],
            },
        }
        if offer.spot:
            about |= {"priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": -1}}
        zones = {"zones": [offer.zone]} if offer.zone else {}
        return {"location": offer.region, "tags": tags, "properties": about, **zones}

    def _tags(self, spec: LaunchSpec, mark: str) -> dict[str, str]:
        tags = {**spec.tags, rows.TOKEN: spec.token, rows.REQUEST: mark, rows.COUNT: str(spec.count)}
        return tags if spec.time_to_live_s is None else {**tags, LIVES: str(spec.time_to_live_s)}


def _each(items: Sequence[Any], call: Callable[[Any], Any]) -> list[Any]:
    if len(items) < 2:
        return [call(item) for item in items]
    with ThreadPoolExecutor(min(len(items), MOST_AT_ONCE)) as pool:
        return list(pool.map(call, items))
