"""StaticProvider: rents out the hosts that tradewind.toml declares.

A host keeps the records of its machines itself (providers.static.on_host); this side keeps nothing essential. A machine
is billed from the moment at which its launch was requested, for the duration that the host measured. So the two clocks
do not have to agree. A machine ends with its host: after a reboot it is gone.

A region's hosts are asked at the same time, and one that does not answer does not delay the others: its last known
machines are reported, as long as other hosts answered.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from providers.base import Covered, LaunchSpec, Quota
from providers.clock import Clock
from providers.errors import CapacityError, ConflictError, NotFoundError, ProviderError, SetupError, UnavailableError
from providers.hardware import GB
from providers.instance import EndReason, Instance, InstanceState
from providers.offer import Offer, OfferId
from providers.price import PricePoint
from providers.static.hosts import PROVIDER, Host
from providers.static.inspection import check, described, wants_gpus
from providers.static.on_host import INSTALL
from providers.static.prices import DeclaredPrices
from providers.static.ssh import Ssh, quoted_command

Json = Mapping[str, Any]
T = TypeVar("T")
MOST_AT_ONCE = 16
MOST_TEXT = 400
_ID = re.compile(rf"{PROVIDER}-[a-z0-9-]+")
ADDRESS_VARIABLE = "TRADEWIND_ADDRESS"
"""The environment variable with the address at which the other machines of a run reach this one
(orchestrator.nodes.seating)."""


class StaticProvider:
    """The provider `static`. Keeps the dates of prices and declared host keys in `state_dir`."""

    name = PROVIDER
    simulated = False
    listing_lag_s = 60.0  # a request may be delayed for a while and still launch: on_host.SLOWEST_S
    describe_every_s = 5.0

    def __init__(self, hosts: Sequence[Host], state_dir: Path, clock: Clock, ssh: Ssh | None = None) -> None:
        self._hosts = {host.name: host for host in hosts}
        self._clock = clock
        self._ssh = Ssh(state_dir) if ssh is None else ssh
        self._prices = DeclaredPrices(state_dir / "prices.json")
        self._sent: dict[str, set[str]] = {}  # token -> hosts that may have carried out its launch
        self._last: dict[str, dict[str, Instance]] = {}  # host -> its living machines when it last answered

    # --- Provider ---

    def offers(self) -> Sequence[Offer]:
        """One offer for each host, or for each group of equal hosts of a region."""
        return list({host.offer.id: host.offer for host in self._hosts.values()}.values())

    def prices(self) -> Sequence[PricePoint]:
        """The declared prices."""
        declared = {host.offer.id: host.slot_nano_usd_per_hour for host in self._hosts.values()}
        return self._prices.points(declared, self._clock.now_ms())

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        """See Provider.launch. The hosts of the offer are inspected first and checked against their declarations."""
        hosts = [host for host in self._hosts.values() if host.offer.id == spec.offer_id]
        if not hosts:
            raise self._unknown_offer(spec.offer_id)
        if (most := sum(host.slots for host in hosts)) < spec.count:
            raise CapacityError(
                f"{spec.offer_id} has {most} machine{'' if most == 1 else 's'} "
                f"({', '.join(host.name for host in hosts)}), and the job wants {spec.count} at once",
                hint="give equal hosts (GPUs, CPU cores, memory, price) one region and zone, or lower resources.nodes",
            )
        now_ms, fingerprint = self._clock.now_ms(), spec.fingerprint
        look = {"operation": "look", "token": spec.token, "install": spec.tags.get(INSTALL, "")}
        looks = self._ask_all(hosts, lambda host: {**look, "gpus": wants_gpus(host)})
        counts = self._known(looks, fingerprint)
        fresh = not counts
        if (left := spec.count - sum(counts.values())) > 0:
            counts |= self._places(spec, [host for host in hosts if host.name not in counts], looks, left)
        chosen = [host for host in hosts if host.name in counts]
        requests = {
            host.name: self._launch_request(host, spec, counts[host.name], fingerprint, now_ms) for host in chosen
        }
        self._sent.setdefault(spec.token, set()).update(requests)
        done = self._ask_all(chosen, lambda host: requests[host.name])
        failed = {name: error for name, error in done.items() if isinstance(error, ProviderError)}
        if failed:
            self._undo(spec.token, requests, failed, fresh=fresh)
            raise next(iter(failed.values()))
        return tuple(str(machine_id) for name in requests for machine_id in requests[name]["ids"])

    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        """See Provider.describe. Raises the error of a host that does not answer if none does."""
        by_host = self._by_host(instance_ids)
        found = self._ask_all(
            [self._hosts[name] for name in by_host], lambda host: {"operation": "report", "ids": by_host[host.name]}
        )
        instances: dict[str, Instance] = {}
        for name, answer in found.items():
            if isinstance(answer, ProviderError):
                if len(failures := _errors(found)) == len(found):
                    raise failures[0]
                known = self._last.get(name, {})
                instances |= {each: known[each] for each in by_host[name] if each in known}
            else:
                instances |= {each.id: each for each in self._remember(name, answer)}
        return [instances[each] for each in instance_ids if each in instances]

    def find(self, token: str, region: str) -> Sequence[Instance]:
        """See Provider.find. Raises the error of a host that does not answer, unless another has the machines."""
        hosts = [host for host in self._hosts.values() if host.region == region]
        found = self._ask_all(hosts, lambda _: {"operation": "report", "token": token})
        instances = self._all_of(found)
        if not instances and (failures := _errors(found)):
            raise failures[0]
        return instances

    def renew(self, instance_ids: Sequence[str], time_to_live_s: int) -> None:
        """See Provider.renew."""
        by_host = self._by_host(instance_ids)
        request = {"operation": "renew", "time_to_live_s": time_to_live_s}
        hosts = [self._hosts[name] for name in by_host]
        if failures := _errors(self._ask_all(hosts, lambda host: {**request, "ids": by_host[host.name]})):
            raise failures[0]

    def terminate(self, instance_id: str) -> None:
        """See Provider.terminate; returns once all processes have ended."""
        for name, ids in self._by_host([instance_id]).items():
            self._ssh.ask(self._hosts[name], {"operation": "end", "ids": ids})

    def list_owned(self, install: str) -> Sequence[Instance]:
        """See Provider.list_owned. For a host that does not answer: its last known machines."""
        found = self._ask_all(list(self._hosts.values()), lambda _: {"operation": "report", "install": install})
        failures = _errors(found)
        if failures and len(failures) == len(found):
            raise failures[0]
        away = [name for name, answer in found.items() if isinstance(answer, ProviderError)]
        last = [each for name in away for each in self._last.get(name, {}).values()]
        return [*self._all_of(found), *(each for each in last if each.tags.get(INSTALL) == install)]

    @property
    def quotas_limit_plans(self) -> bool:
        """See LimitsByQuota."""
        return True

    def quotas(self) -> Sequence[Quota]:
        """The machines of each offer, and how many are in use by any installation. The machines of a host that does not
        answer count as in use."""
        found = self._ask_all(list(self._hosts.values()), lambda _: {"operation": "look"})
        of_offer: dict[str, list[Host]] = {}
        for host in self._hosts.values():
            of_offer.setdefault(host.offer.id, []).append(host)
        return [_machines_of(hosts, found) for hosts in of_offer.values()]

    def classify(self, error: BaseException) -> ProviderError:
        """SetupError for unusable files, otherwise UnavailableError; ProviderErrors unchanged."""
        if isinstance(error, ProviderError):
            return error
        kind = SetupError if isinstance(error, PermissionError) else UnavailableError
        return kind(f"the static provider failed: {error!r}", hint="run: tradewind doctor")

    # --- AllowsShell ---

    def shell(self, instance_id: str, command: Sequence[str]) -> Sequence[str]:
        """See AllowsShell.shell."""
        for name in self._by_host([instance_id]):
            host = self._hosts[name]
            folder = f"{host.folder}/machines/{instance_id}/files"
            there = folder.replace("~", '"$HOME"', 1) if folder.startswith("~") else quoted_command([folder])
            run = quoted_command(command) if command else 'exec "$SHELL" -l'
            return self._ssh.command(host, f"cd {there} && {run}", terminal=not command, shared=False)
        raise NotFoundError(f"no declared host has the machine {instance_id!r}")

    # --- ExaminesHosts ---

    @property
    def host_names(self) -> Sequence[str]:
        """The declared hosts."""
        return list(self._hosts)

    def examine(self, host_name: str) -> str:
        """See ExaminesHosts.examine: the checks of a launch, and how far the clocks differ."""
        host = self._hosts[host_name]
        asked_ms = self._clock.now_ms()
        facts = self._ask_all([host], lambda _: {"operation": "look", "gpus": wants_gpus(host)})[host.name]
        if isinstance(facts, ProviderError):
            raise facts
        ahead_ms = int(facts["wall_ms"]) - (asked_ms + self._clock.now_ms()) // 2
        check(host, facts)
        return described(host, facts, ahead_ms)

    # --- launching ---

    @staticmethod
    def _known(looks: Mapping[str, Json | ProviderError], fingerprint: str) -> dict[str, int]:
        """How many machines of this launch each host has already started. Raises ConflictError."""
        known = {
            name: [each for each in found["known"] if _host_of(str(each["id"])) == name]
            for name, found in looks.items()
            if not isinstance(found, ProviderError)
        }
        if any(each["fingerprint"] != fingerprint for machines in known.values() for each in machines):
            raise ConflictError("the token was used for another request", hint="use a new token for a new request")
        return {name: len(machines) for name, machines in known.items() if machines}

    def _places(
        self, spec: LaunchSpec, hosts: Sequence[Host], looks: Mapping[str, Json | ProviderError], wanted: int
    ) -> dict[str, int]:
        """How many machines to start on which hosts: on as many different hosts as possible. Raises ProviderError."""
        errors: list[ProviderError] = []
        free: dict[str, int] = {}
        for host in hosts:
            found = looks[host.name]
            if isinstance(found, ProviderError):
                if host.name in self._sent.get(spec.token, ()):  # it may have carried out this launch
                    raise found
                errors.append(_not_there(found))
                continue
            try:
                check(host, found)
            except ProviderError as error:
                errors.append(error)
            else:
                free[host.name] = int(found["free_slots"])
        places: dict[str, int] = {}
        room = sum(free.values())
        for _ in range(wanted):
            best = max(free, key=lambda name: (free[name] > 0, -places.get(name, 0)), default="")
            if not best or free[best] == 0:
                raise errors[0] if errors and not free else self._no_room(spec, free, room, errors)
            free[best] -= 1
            places[best] = places.get(best, 0) + 1
        return places

    @staticmethod
    def _no_room(spec: LaunchSpec, hosts: Iterable[str], room: int, errors: Sequence[ProviderError]) -> CapacityError:
        others, names = f"; {errors[0]}" if errors else "", ", ".join(hosts)
        why = f"all slots of {names} are in use" if room == 0 else f"fewer slots of {names} are free ({room})"
        return CapacityError(
            f"{CapacityError.text(spec.count, spec.offer_id)}: {why}{others}",
            hint="wait, or end the machines there; those of other installations count, too",
        )

    def _launch_request(
        self, host: Host, spec: LaunchSpec, count: int, fingerprint: str, now_ms: int
    ) -> dict[str, Any]:
        peers = {} if host.peer_address is None else {ADDRESS_VARIABLE: host.peer_address}
        environment: dict[str, dict[str, str]] = {
            str(slot): {"CUDA_VISIBLE_DEVICES": host.gpus_of_slot(slot), **peers}
            if host.gpu and host.slots > 1
            else peers
            for slot in range(host.slots)
        }
        install = spec.tags.get(INSTALL, "")
        return {
            "operation": "launch",
            "token": spec.token,
            "fingerprint": fingerprint,
            "ids": [_machine_id(host.name, install, spec.token, ordinal) for ordinal in range(count)],
            "offer_id": spec.offer_id,
            "tags": dict(spec.tags),
            "user_data": spec.user_data,
            "time_to_live_s": spec.time_to_live_s,
            "accepted_ms": now_ms,
            "least_free_bytes": int(host.disk_gb * GB) + (spec.disk_gb << 30),
            "environment": environment,
        }

    def _undo(
        self, token: str, requests: Mapping[str, Json], failed: Mapping[str, ProviderError], *, fresh: bool
    ) -> None:
        """End the machines that a refused launch has started (all or none); machines that may still start are left to
        the next call."""
        if not fresh or any(error.retryable for error in failed.values()):
            return
        started = [self._hosts[name] for name in requests if name not in failed]
        self._ask_all(started, lambda host: {"operation": "end", "ids": requests[host.name]["ids"], "forget": True})
        self._sent.pop(token, None)

    def _unknown_offer(self, offer_id: str) -> NotFoundError:
        near = difflib.get_close_matches(offer_id, [offer.id for offer in self.offers()], n=1)
        return NotFoundError(f"no declared host is {offer_id!r}", hint=f"did you mean {near[0]!r}?" if near else "")

    # --- asking ---

    def _ask_all(self, hosts: Sequence[Host], request: Callable[[Host], Json]) -> dict[str, Json | ProviderError]:
        """The answer or the error of each host, asked at the same time."""

        def ask(host: Host) -> Json | ProviderError:
            asked = request(host)
            try:
                return _READ.get(str(asked["operation"]), _unread)(self._ssh.ask(host, asked))
            except ProviderError as error:
                return error
            except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
                what = f"{host.name} gave an invalid answer ({type(error).__name__}: {error})"
                return UnavailableError(
                    what, hint="check which program answers there, and the files in this host's folder"
                )
            except OSError as error:
                return self.classify(error)

        if len(hosts) < 2:
            return {host.name: ask(host) for host in hosts}
        with ThreadPoolExecutor(min(len(hosts), MOST_AT_ONCE)) as pool:
            return {host.name: answer for host, answer in zip(hosts, pool.map(ask, hosts), strict=True)}

    def _by_host(self, instance_ids: Sequence[str]) -> dict[str, list[str]]:
        by_host: dict[str, list[str]] = {}
        for instance_id in instance_ids:
            if (name := _host_of(instance_id)) in self._hosts:
                by_host.setdefault(name, []).append(instance_id)
        return by_host

    def _all_of(self, found: Mapping[str, Json | ProviderError]) -> list[Instance]:
        return [
            each
            for name, answer in found.items()
            if not isinstance(answer, ProviderError)
            for each in self._remember(name, answer)
        ]

    def _remember(self, host_name: str, answer: Json) -> list[Instance]:
        """The host's machines under this name only, also if it is declared under two names."""
        found = map(_instance, answer["machines"])
        instances = [each for each in found if _host_of(each.id) == host_name]
        known = self._last.setdefault(host_name, {})
        for instance in instances:
            if instance.alive:
                known[instance.id] = instance
            else:
                known.pop(instance.id, None)
        return instances


def _host_of(instance_id: str) -> str:
    """The host whose name is in the id of a machine; "" if the id is not of this provider."""
    provider, _, rest = instance_id.partition("-")
    return rest.rpartition("-")[0] if provider == PROVIDER else ""


def _unread(answer: Json) -> Json:
    """The answer to this operation is not read."""
    return answer


def _report(answer: Json) -> Json:
    return {"machines": [each for each in answer["machines"] if _instance(each)]}


def _look(answer: Json) -> Json:
    gpus = answer["gpus"]
    return {
        **{name: int(answer[name]) for name in ("free_slots", "free_bytes", "wall_ms")},
        **{name: _printable(answer[name]) for name in ("architecture", "python")},
        "bash": bool(answer["bash"]),
        "known": [{name: str(each[name]) for name in ("id", "fingerprint")} for each in answer["known"]],
        "gpus": gpus and {"names": list(map(_printable, gpus["names"])), "why": _printable(gpus["why"])},
    }


def _printable(text: object) -> str:
    """Text of a host for messages."""
    return "".join(each if each.isprintable() else " " for each in str(text)[:MOST_TEXT])


_READ: Mapping[str, Callable[[Json], Json]] = {"report": _report, "look": _look}
"""Readers of a host's answer, by operation: the same facts in the right types. They raise the errors of reading wrong
types."""


def _errors(found: Mapping[str, T | ProviderError]) -> list[ProviderError]:
    return [answer for answer in found.values() if isinstance(answer, ProviderError)]


def _machines_of(hosts: Sequence[Host], looks: Mapping[str, Json | ProviderError]) -> Quota:
    """How many machines the hosts of an offer have, and how many are in use."""
    offer, free, silent = hosts[0].offer, 0, list[str]()
    for host in hosts:
        look = looks[host.name]
        if isinstance(look, ProviderError):
            silent.append(host.name)
        else:
            free += min(max(int(look["free_slots"]), 0), host.slots)
    limit, names = sum(host.slots for host in hosts), ", ".join(host.name for host in hosts)
    covers = Covered("machines", (offer.region,), (offer.instance_type,), zones=(offer.zone,))
    absent = f"no answer from {', '.join(silent)}; run: tradewind doctor" if silent else ""
    return Quota("machines", names, limit, limit - free, covers, absent, owned=True)


def _not_there(error: ProviderError) -> ProviderError:
    """The error for a launch that was not sent to a host, because the host did not answer an earlier request."""
    return CapacityError(str(error), hint=error.hint) if isinstance(error, UnavailableError) else error


def _instance(row: Json) -> Instance:
    state = InstanceState(row["state"])
    ended = state is InstanceState.TERMINATED
    accepted_ms = int(row["accepted_ms"])
    machine_id = str(row["id"])
    if not _ID.fullmatch(machine_id):
        raise ValueError(f"{machine_id[:MOST_TEXT]!r} is not the id of a machine")
    return Instance(
        machine_id,
        PROVIDER,
        str(OfferId.parse(str(row["offer_id"]))),
        str(row["token"]),
        state,
        accepted_ms,
        accepted_ms + int(row["lasted_ms"]) if ended else None,
        EndReason(row["reason"]) if ended else None,
        None,
        {str(name): str(value) for name, value in row["tags"].items()},
    )


def _machine_id(host_name: str, install: str, token: str, ordinal: int) -> str:
    digest = blake2b(f"{install}|{token}|{ordinal}".encode(), digest_size=6).hexdigest()
    return f"{PROVIDER}-{host_name}-{digest}"
