"""Harbour's machines for Tradewind: a complete provider for a made-up cloud with a small REST API.

An example to copy; docs/providers.md explains it. HARBOUR_API_KEY is the account's key. HARBOUR_URL replaces the
address of the cloud, which tests use.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from urllib3 import exceptions

from providers import errors
from providers.base import LaunchSpec, Quota
from providers.clock import Clock
from providers.hardware import canonical_gpu
from providers.instance import EndReason, Instance, InstanceState
from providers.money import usd
from providers.offer import CapacityType, Offer, OfferId
from providers.price import PricePoint

NAME = "harbour"
URL = "https://api.harbour.example"
_KEYS = "create a key in Harbour's console and set HARBOUR_API_KEY"
_MEANINGS: Mapping[str, tuple[type[errors.ProviderError], str]] = {
    "no_capacity": (errors.CapacityError, ""),
    "quota_exceeded": (errors.QuotaError, "ask Harbour for a higher limit, or end other machines"),
    "key_reused": (errors.ConflictError, ""),
    "unknown_type": (errors.NotFoundError, "tradewind offers lists what Harbour has"),
    "unknown_machine": (errors.NotFoundError, ""),
    "invalid_api_key": (errors.AuthError, _KEYS),
    "forbidden": (errors.PermissionDeniedError, "give the key the permission machines:write"),
}
"""Harbour's error codes, each with our error and the remedy."""
_STATES = {"starting": InstanceState.PENDING, "running": InstanceState.RUNNING, "stopping": InstanceState.STOPPING}
_REASONS = {"deleted": EndReason.USER, "reclaimed": EndReason.PREEMPTED, "expired": EndReason.EXPIRED}


class HarbourProvider:
    """The provider `harbour`. It keeps no state between calls: the cloud stores everything."""

    name = NAME
    simulated = False
    listing_lag_s = 30.0  # Harbour's documentation: "lists are complete after 30 seconds"
    describe_every_s = 5.0

    def __init__(self, clock: Clock) -> None:
        """Reads the environment and sends nothing: commands that need no cloud work without an account."""
        self._clock, self._url = clock, os.environ.get("HARBOUR_URL", URL).rstrip("/")
        self._key = os.environ.get("HARBOUR_API_KEY", "")
        # No hidden retries: the caller knows which calls may be repeated, and when.
        self._http = urllib3.PoolManager(timeout=urllib3.Timeout(connect=5, read=30), retries=False)

    def offers(self) -> Sequence[Offer]:
        """Everything on Harbour's price list whose GPU Tradewind knows."""
        return [offer for offer, _ in self._list()]

    def prices(self) -> Sequence[PricePoint]:
        """The prices of the same list."""
        now_ms = self._clock.now_ms()
        return [
            PricePoint(offer.id, usd(row["usd_per_hour"]), min(row["since_ms"], now_ms), now_ms, "Harbour's price list")
            for offer, row in self._list()
        ]

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        """See Provider.launch. Our token is Harbour's idempotency key, so a repeated launch finds the first one's
        machines; labels and the time to live are part of the same request, so no machine is ever without them."""
        try:
            offer = OfferId.parse(spec.offer_id)
        except ValueError as error:
            raise errors.NotFoundError(str(error)) from error
        request = asdict(spec) | {"type": offer.instance_type, "region": offer.region, "spot": offer.spot}
        return tuple(row["id"] for row in self._call("POST", "/v1/machines", request)["machines"])

    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        """See Provider.describe."""
        found = {each.id: each for each in self._machines(id=list(instance_ids))} if instance_ids else {}
        return [found[each] for each in instance_ids if each in found]

    def find(self, token: str, region: str) -> Sequence[Instance]:
        """See Provider.find."""
        return list(self._machines(token=token, region=region))

    def renew(self, instance_ids: Sequence[str], time_to_live_s: int) -> None:
        """See Provider.renew. Harbour ignores machines that have ended or never existed."""
        if instance_ids:
            self._call("PATCH", "/v1/machines", {"ids": list(instance_ids), "time_to_live_s": time_to_live_s})

    def terminate(self, instance_id: str) -> None:
        """See Provider.terminate."""
        try:
            self._call("DELETE", f"/v1/machines/{quote(instance_id, safe='')}")
        except errors.NotFoundError:
            return  # a machine that does not exist has ended

    def list_owned(self, install: str) -> Sequence[Instance]:
        """See Provider.list_owned."""
        return [each for each in self._machines(tag=f"tradewind-install:{install}") if each.alive]

    def quotas(self) -> Sequence[Quota]:
        """The account's limit on machines."""
        machines = self._call("GET", "/v1/account")["machines"]
        return [Quota("machines", "account", machines["limit"], machines["used"])]

    def classify(self, error: BaseException) -> errors.ProviderError:
        """Convert errors of urllib3, and unexpected errors, to our errors."""
        if isinstance(error, errors.ProviderError):
            return error
        if isinstance(error, exceptions.TimeoutError):
            return errors.TimedOutError("Harbour did not answer in time")
        if isinstance(error, exceptions.ProtocolError):
            return errors.CutOffError("the connection ended in the middle of Harbour's answer")
        if isinstance(error, KeyError | TypeError | ValueError):
            return errors.FormatError(f"Harbour's answer is not as documented: {error!r}")
        return errors.UnavailableError(f"Harbour cannot be reached: {error}")

    def _list(self) -> Iterator[tuple[Offer, Mapping[str, Any]]]:
        for row in self._call("GET", "/v1/types")["types"]:
            if gpu := canonical_gpu(row["gpu"]):
                kind = CapacityType.SPOT if row["spot"] else CapacityType.ON_DEMAND
                size = (gpu, row["gpus"], row["cores"], row["memory_gb"] * 10**9)
                yield Offer(NAME, row["region"], "", row["type"], *size, kind), row

    def _machines(self, **query: str | list[str]) -> Iterator[Instance]:
        """All pages of a list of machines."""
        page: str | None = ""
        while page is not None:
            answer = self._call("GET", f"/v1/machines?{urlencode({**query, 'page': page}, doseq=True)}")
            yield from map(_instance, answer["machines"])
            page = answer["next"]

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send one request, once. Raises ProviderError."""
        if not self._key:
            raise errors.NoCredentialsError("no API key of Harbour was found", hint=_KEYS)
        try:
            headers = {"Authorization": f"Bearer {self._key}"}
            reply = self._http.request(method, self._url + path, json=body, headers=headers)
            if reply.status < 400:
                return json.loads(reply.data)
        except Exception as error:
            raise self.classify(error) from error
        code, text = _refusal(reply)
        message = f"{method} {path.partition('?')[0]}: {code}: {text}"
        if reply.status == 429:
            wait = reply.headers.get("Retry-After", "")
            raise errors.ThrottledError(message, retry_after_s=float(wait) if wait.isdigit() else None)
        if reply.status >= 500 and code not in _MEANINGS:
            raise errors.UnavailableError(message)
        kind, hint = _MEANINGS.get(code, (errors.ProviderError, ""))
        raise kind(message, hint=hint)


def _refusal(reply: urllib3.BaseHTTPResponse) -> tuple[str, str]:
    """Harbour's code and message; for an answer that is not from Harbour, such as a proxy's, the status."""
    try:
        answer = json.loads(reply.data)
        return str(answer["code"]), str(answer["message"])
    except (ValueError, TypeError, KeyError):
        return str(reply.status), str(reply.reason)


def _instance(row: Mapping[str, Any]) -> Instance:
    """A machine as Harbour describes it. Harbour bills from the start of a machine to its end, in milliseconds."""
    ended = row["ended_ms"] is not None
    return Instance(
        id=row["id"],
        provider=NAME,
        offer_id=row["offer_id"],
        token=row["token"],
        state=InstanceState.TERMINATED if ended else _STATES[row["state"]],
        billed_from_ms=row["started_ms"],
        billed_to_ms=row["ended_ms"],
        end_reason=_REASONS.get(row["why_ended"], EndReason.FAILED) if ended else None,
        notice_deadline_ms=row["reclaimed_at_ms"],
        tags=row["tags"],
    )
