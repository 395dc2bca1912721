"""The names of machines on GCP, which identify a machine even after GCP has forgotten it.

GCP keeps only the name of a deleted machine, in its log of operations. So the name contains the launch token, the
machine's number within its launch, and a digest of its machine type and capacity type. Tradewind's id is the zone and
this name.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from hashlib import blake2b

from providers.errors import SetupError
from providers.offer import CapacityType, OfferId

PROVIDER = "gcp"
UNKNOWN = "unknown"
"""The type of a forgotten machine whose type is no longer configured."""
_TOKEN = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_NAME = re.compile(rf"tw-({_TOKEN.pattern})-(\d+)-([0-9a-f]{{6}})")
_ID = re.compile(rf"{PROVIDER}-([a-z0-9-]+?)-(tw-.+)")
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")


def names(token: str, offer: OfferId, count: int) -> list[str]:
    """The names of the machines of a launch. Raises SetupError for a token that does not fit into a name."""
    if not _TOKEN.fullmatch(token):
        raise SetupError(f"{token!r} is not a launch token for GCP: at most 32 small letters, digits and dashes")
    kind = _kind(offer.instance_type, offer.capacity_type)
    return [f"tw-{token}-{number}-{kind}" for number in range(count)]


def pattern(token: str) -> str:
    """Matches the names of all machines of a token."""
    return f"tw-{token}-[0-9]+-[0-9a-f]{{6}}"


def token_of(name: str) -> str:
    """The launch token in a name; "" if the name is not of this provider."""
    found = _NAME.fullmatch(name)
    return found[1] if found else ""


def offer_of(zone: str, name: str, machine_types: Iterable[str]) -> OfferId:
    """The offer in a name if its type is one of `machine_types`, otherwise an offer with the type UNKNOWN."""
    found = _NAME.fullmatch(name)
    for machine_type in machine_types:
        for capacity in CapacityType:
            if found and found[3] == _kind(machine_type, capacity):
                return OfferId(PROVIDER, region_of_zone(zone), zone, machine_type, capacity)
    return OfferId(PROVIDER, region_of_zone(zone), zone, UNKNOWN, CapacityType.ON_DEMAND)


def instance_id(zone: str, name: str) -> str:
    """Tradewind's id of a machine."""
    return f"{PROVIDER}-{zone}-{name}"


def place_of(instance_id: str) -> tuple[str, str] | None:
    """The zone and the name; None if the id is not of this provider."""
    found = _ID.fullmatch(instance_id)
    return (found[1], found[2]) if found and _NAME.fullmatch(found[2]) else None


def region_of_zone(zone: str) -> str:
    """us-central1 of us-central1-a."""
    return zone.rpartition("-")[0]


def network_name(install: str) -> str:
    """The name of the network of an installation."""
    return f"tradewind-{_digest(install, 8)}"


def request_id(token: str, fingerprint: str, attempt: int) -> str:
    """The id of a launch request, a UUID. GCP carries out each id once and answers a repetition with the first result,
    so each attempt after a refusal has a new id."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"tradewind:{token}:{fingerprint}:{attempt}"))


def label(text: str) -> str:
    """A tag's key or value as a label: unchanged if GCP allows it, otherwise with disallowed characters replaced and a
    digest."""
    if _LABEL.fullmatch(text):
        return text
    return f"{re.sub('[^a-z0-9_-]', '-', text.lower())[:50]}-{_digest(text, 6)}"


def _kind(machine_type: str, capacity: CapacityType) -> str:
    return _digest(f"{machine_type}/{capacity}", 3)


def _digest(text: str, size_bytes: int) -> str:
    return blake2b(text.encode(), digest_size=size_bytes).hexdigest()
