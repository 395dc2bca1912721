"""Records of launches, kept because Azure at once forgets a machine that was deleted or preempted.

Each machine has a record of its own: the SSH public key that Azure requires for a Linux machine, as a resource of the
same name. It costs nothing, and its tags outlive the machine. The private key is not kept. Methods raise azure.core's
exceptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from providers.azure import rows
from providers.azure.codes import ABSENT
from providers.azure.session import ONCE, Connections, error_code, rows_of
from providers.instance import EndReason, Instance, InstanceState

OFFER, ASKED, BEGAN, ENDED = "tradewind-offer", "tradewind-asked", "tradewind-began", "tradewind-ended"
TAGS_VERSION = "2021-04-01"
_OWN = (OFFER, ASKED, BEGAN, ENDED)


@dataclass(frozen=True, slots=True)
class Record:
    """The record of the machine `name`."""

    name: str
    region: str
    tags: Mapping[str, str]
    public_key: str

    @property
    def asked_ms(self) -> int:
        """When the machine was first requested, by this host's clock."""
        return int(self.tags[ASKED])

    @property
    def ended(self) -> tuple[EndReason, int] | None:
        """Why and when (epoch ms) the machine ended; None as far as this is unknown."""
        reason, _, at_ms = self.tags.get(ENDED, "").partition(" ")
        return (EndReason(reason), int(at_ms)) if at_ms else None

    def instance(self, reason: EndReason, ended_ms: int) -> Instance:
        """The machine in its state at the end."""
        began_ms = int(self.tags[BEGAN]) if BEGAN in self.tags else None
        kept = {name: value for name, value in rows.kept_tags(self.tags).items() if name not in _OWN}
        return Instance(
            rows.instance_id(self.region, self.name),
            rows.PROVIDER,
            self.tags[OFFER],
            self.tags[rows.TOKEN],
            InstanceState.TERMINATED,
            began_ms,
            None if began_ms is None else max(began_ms, ended_ms),
            reason,
            None,
            kept,
        )


class Records:
    """The records in a resource group, whose id is `group`."""

    def __init__(self, connections: Connections, group: str) -> None:
        self._connections, self._group = connections, group
        self._group_name = group.rpartition("/")[2]

    def get(self, name: str) -> Record | None:
        """The record of a machine."""
        try:
            found = self._connections.compute.ssh_public_keys.get(self._group_name, name)
        except Exception as error:
            if error_code(error) in ABSENT:
                return None
            raise
        return _record(found.as_dict())

    def create(self, name: str, region: str, tags: Mapping[str, str]) -> Record:
        """Create the record of a machine before the machine itself."""
        body = {"location": region, "tags": dict(tags), "properties": {"publicKey": _public_key()}}
        made = self._connections.compute.ssh_public_keys.create(self._group_name, name, body, **ONCE)
        return _record(made.as_dict())

    def note(self, name: str, **tags: str) -> None:
        """Add to the record and keep the rest."""
        self.tag(f"{self._group}/providers/Microsoft.Compute/sshPublicKeys/{name}", tags)

    def tag(self, resource: str, tags: Mapping[str, str]) -> None:
        """Set tags of a resource and keep its other tags."""
        body = {"operation": "Merge", "properties": {"tags": dict(tags)}}
        path = f"{resource}/providers/Microsoft.Resources/tags/default"
        self._connections.send("PATCH", path, TAGS_VERSION, body)

    def remove(self, name: str) -> None:
        """Delete the record of a machine. Succeeds if there is none."""
        self._connections.compute.ssh_public_keys.delete(self._group_name, name)

    def all(self) -> Iterator[Record]:
        """All records of Tradewind's."""
        try:
            listed = self._connections.compute.ssh_public_keys.list_by_resource_group(self._group_name)
            for found in rows_of("ARM's list of SSH keys", listed):
                row = found.as_dict()
                if ASKED in rows.tags_of(row):
                    yield _record(row)
        except Exception as error:
            if error_code(error) not in ABSENT:  # the resource group
                raise


def _record(row: Mapping[str, Any]) -> Record:
    return Record(
        str(row["name"]),
        rows.region_of(row),
        rows.tags_of(row),
        str((row.get("properties") or {}).get("publicKey", "")),
    )


@cache
def _public_key() -> str:
    """A public key whose private half is discarded. One per process is enough, because it is never used."""
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = rsa.generate_private_key(public_exponent=65537, key_size=3072).public_key()
    return f"{key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()} tradewind"
