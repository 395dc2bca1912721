"""The request of a launch on GCP: the fields of a machine, and the call that creates one or several of them.

One machine is created by `instances.insert`, several by `instances.bulkInsert`, which creates all or none; a launch
that accepts several zones uses `regionInstances.bulkInsert`, which puts all machines in one zone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from providers.base import LaunchSpec
from providers.errors import SetupError
from providers.gcp.images import Image
from providers.gcp.metadata import NOTICE_S
from providers.gcp.names import PROVIDER, label, names
from providers.gcp.networks import MEMBER
from providers.machine.lifetime import LIVES
from providers.machine.user_data import script
from providers.offer import OfferId

LAUNCH = "tradewind-launch"
"""The metadata key with the token, the tags and the fingerprint of the launch."""
LONGEST_RUN_S = 7 * 86_400
"""GCP deletes a machine that has run this long. The limit cannot be extended while the machine runs
(docs.cloud.google.com/compute/docs/instances/limit-vm-runtime: at most 120 days)."""
MOST_BYTES = 256 << 10
"""The limit on one value of a machine's metadata
(docs.cloud.google.com/compute/docs/metadata/setting-custom-metadata)."""
WITH_GPUS = re.compile(r"(a2|a3|a4|g2|g4)-.*|.*\+.*")
"""Machine types with GPUs, which GCP cannot move to another host."""
ATTACHED = re.compile(r"(?P<shape>[a-z0-9-]+)\+(?P<count>\d+)x(?P<card>[a-z0-9-]+)")
HYPERDISK = re.compile(r"(a3-ultragpu|a4|a4x|c4|c4a|c4d|g4|h4d|m4|n4|n4a|n4d|x4)-.*")
"""Types without persistent disks (docs.cloud.google.com/compute/docs/disks/hyperdisks)."""


Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Base:
    """The common properties of all machines of an offer: the image, the size of the disk in GiB, and the network."""

    image: Image
    disk_gb: int
    network: str


def call(spec: LaunchSpec, offer: OfferId, base: Base) -> tuple[str, Fields]:
    """The method of the InstancesClient and its arguments, apart from the project and the request's id. Raises
    SetupError."""
    fields = {"zone": offer.zone}
    if spec.count == 1:
        (name,) = names(spec.token, offer, 1)
        machine = _machine(spec, offer, base, f"zones/{offer.zone}/")
        return "insert_unary", {**fields, "instance_resource": {"name": name, **machine}}
    return "bulk_insert_unary", {**fields, "bulk_insert_instance_resource_resource": _several(spec, offer, base)}


def anywhere(spec: LaunchSpec, offer: OfferId, base: Base, zones: Collection[str], others: Collection[str]) -> Fields:
    """The arguments of a launch in any one of these zones and in none of the `others` of the region: GCP allows zones
    that are not named (google.cloud.compute_v1.LocationPolicy.locations). Raises SetupError."""
    allowed = {f"zones/{zone}": {"preference": "ALLOW"} for zone in zones}
    denied = {f"zones/{zone}": {"preference": "DENY"} for zone in others}
    policy = {"target_shape": "ANY_SINGLE_ZONE", "locations": allowed | denied}
    resource = _several(spec, offer, base) | {"location_policy": policy}
    return {"region": offer.region, "bulk_insert_instance_resource_resource": resource}


def _several(spec: LaunchSpec, offer: OfferId, base: Base) -> dict[str, Any]:
    """All or none, by name."""
    return {
        "count": spec.count,
        "min_count": spec.count,
        "per_instance_properties": {name: {"name": name} for name in names(spec.token, offer, spec.count)},
        "instance_properties": _machine(spec, offer, base, ""),
    }


def _machine(spec: LaunchSpec, offer: OfferId, base: Base, below: str) -> dict[str, Any]:
    """The fields of an Instance, or of InstanceProperties, which names types without the path `below` a zone."""

    def typed(kind: str, name: str) -> str:
        return f"{below}{kind}/{name}" if below else name

    attached = ATTACHED.fullmatch(offer.instance_type)
    shape = attached["shape"] if attached else offer.instance_type
    labels = {label(key): label(value) for key, value in spec.tags.items()}
    disk_type = "hyperdisk-balanced" if HYPERDISK.fullmatch(shape) else "pd-balanced"
    machine: dict[str, Any] = {
        "machine_type": typed("machineTypes", shape),
        "labels": labels,
        "metadata": {"items": [{"key": key, "value": value} for key, value in _metadata(spec).items()]},
        "scheduling": _scheduling(spec, offer),
        "tags": {"items": [MEMBER]},
        "disks": [
            {
                "boot": True,
                "auto_delete": True,
                "initialize_params": {
                    "source_image": base.image.name,
                    "disk_size_gb": base.disk_gb,
                    "disk_type": typed("diskTypes", disk_type),
                    "labels": labels,
                },
            }
        ],
        "network_interfaces": [
            {
                "network": base.network,
                "access_configs": [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}],
            }
        ],
    }
    if attached:
        card = typed("acceleratorTypes", attached["card"])
        machine["guest_accelerators"] = [{"accelerator_type": card, "accelerator_count": int(attached["count"])}]
    return machine


def _scheduling(spec: LaunchSpec, offer: OfferId) -> dict[str, Any]:
    fixed = offer.spot or WITH_GPUS.fullmatch(offer.instance_type)
    scheduling: dict[str, Any] = {
        "provisioning_model": "SPOT" if offer.spot else "STANDARD",
        "instance_termination_action": "DELETE",
        "on_host_maintenance": "TERMINATE" if fixed else "MIGRATE",
        "automatic_restart": False,
        "max_run_duration": {"seconds": max(LONGEST_RUN_S, spec.time_to_live_s or 0)},
    }
    if offer.spot:
        scheduling["preemption_notice_duration"] = {"seconds": NOTICE_S}
    return scheduling


def _metadata(spec: LaunchSpec) -> Mapping[str, str]:
    launch = {"token": spec.token, "tags": dict(spec.tags), "request": spec.fingerprint}
    values = {
        "startup-script": script(PROVIDER, spec.user_data, spec.time_to_live_s),
        LAUNCH: json.dumps(launch, sort_keys=True),
        "block-project-ssh-keys": "TRUE",
        "install-nvidia-driver": "True",  # read by Google's images for deep learning
    }
    if spec.time_to_live_s is not None:
        values[LIVES] = str(spec.time_to_live_s)
    for key, value in values.items():
        if len(value.encode()) > MOST_BYTES:
            text = f"{key} of a machine on GCP has {len(value.encode())} bytes; the limit is {MOST_BYTES}"
            raise SetupError(text, hint="shorten the job's set-up")
    return values
