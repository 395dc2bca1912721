"""Launching: makes the user data of machines that share nothing with the control plane, and knows the scope of each.

The first user data for a launch token is kept, sealed, as the object `boot`: a repeated launch must have the same user
data, and newly signed URLs would change it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from orchestrator.errors import SiteError
from orchestrator.formats.codec import dumps, loads
from orchestrator.nodes import sealing
from orchestrator.nodes.access.grants import url
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.access.lending import ACCESS
from orchestrator.nodes.access.scope import Scope, scope_of
from orchestrator.nodes.access.signing import quoted, utc_now
from orchestrator.nodes.boot.contact import MOST_SEATS_BYTES, SEATS, Urls
from orchestrator.nodes.boot.runtime_files import RuntimeFiles, runtime_files
from orchestrator.nodes.boot.user_data import user_data
from orchestrator.nodes.channel import MOST_SECRET_BYTES
from trainers.errors import ObjectStoreError
from trainers.objects.base import ObjectStore
from trainers.objects.opening import open_store
from trainers.objects.retry import Patience
from trainers.objects.services import place_of

VALID_S = 3600
"""For how long a machine may take from its order to its first contact."""
MACHINES = ("x86_64", "aarch64")  # machine types that Ray and torch are published for
DISK_BYTES = 1 << 30
LARGE_BYTES = 12 << 30  # torch with CUDA's libraries
BOOT = "boot"
RENEWED_S = 86_400
"""A launch writes an older runtime again: a runtime that no launch has used for UNUSED_S may be deleted."""
UNUSED_S = 2 * RENEWED_S
RUNTIMES, _ARCHIVE = "runtime", "runtime.zip"


@dataclass(frozen=True, slots=True)
class Remote:
    """A machine of another host: the job and run it is rented for, the place of the job's checkpoints, and the GPUs
    that its offer declares (`gpu` is a name of providers.hardware, None for none)."""

    job_id: str
    run_id: str
    checkpoint_root: str
    gpu: str | None = None
    gpu_count: int = 0


@dataclass(frozen=True, slots=True)
class _Record:
    user_data: str
    writes: tuple[str, ...]  # the first is that of the launch's control objects
    reads: tuple[str, ...]


class Launching:
    """`root` is the URL of everything that the installation stores; `key` returns the installation's key."""

    def __init__(
        self,
        root: str,
        installation_id: str,
        key: Callable[[], bytes],
        issuer: Issuer,
        now: Callable[[], datetime] = utc_now,
        files: Callable[[], RuntimeFiles] = runtime_files,
    ) -> None:
        self._root, self._installation_id, self._key, self._issuer = root, installation_id, key, issuer
        self._now, self._make_files = now, files
        self._opened: ObjectStore | None = None
        self._files: RuntimeFiles | None = None
        self._issues = False

    def user_data(self, token: str, machine: Remote, nodes: int = 1) -> str:
        """The user data of this machine, or of `nodes` such machines. Raises SiteError, ObjectStoreError."""
        record = self._record(token)
        if record is None:
            made = self._made(token, machine, nodes)
            sealed = sealing.locked(self._key(), dumps(made))
            record = made if self._store.put_if_absent(self._boot_key(token), sealed) else self._record(token)
            if record is None:
                raise SiteError(f"the user data of {token} is gone", hint="Tradewind tries again")
        return record.user_data

    def scope(self, place: str) -> Scope | None:
        """The scope of the machine at this place (nodes.channel.places); None if it was not made here. Raises
        SiteError, ObjectStoreError."""
        token, _, rank = place.partition("/")
        record = self._record(token)
        if record is None:
            return None
        control, *others = record.writes
        return Scope((f"{control}/{rank}" if rank else control, *others), record.reads)

    @property
    def _store(self) -> ObjectStore:
        if self._opened is None:
            self._opened = open_store(self._root, Patience(connect_s=2.0, request_s=30.0, tries=1))
        return self._opened

    def _boot_key(self, token: str) -> str:
        return f"control/{self._installation_id}/{token}/{BOOT}"

    def _record(self, token: str) -> _Record | None:
        if not self._store.remote:
            return None
        found = self._store.get(self._boot_key(token), MOST_SECRET_BYTES)
        return None if found is None else loads(_Record, sealing.unlocked(self._key(), found.data).encode())

    def _made(self, token: str, machine: Remote, nodes: int) -> _Record:
        control = f"control/{self._installation_id}/{token}"
        jobs = f"{self._root}/jobs/{self._installation_id}/{machine.job_id}"
        writes = (f"{self._root}/{control}", f"{machine.checkpoint_root}/{machine.job_id}", jobs)
        scope = scope_of(writes)  # before anything is stored
        files = self._uploaded()
        runtime = f"{self._root}/{RUNTIMES}/{files.digest}"
        scope = scope_of(writes, (runtime,))
        if not self._issues:  # before money is spent on a machine that could not be admitted
            self._issuer.issue(scope, f"tw-{token}")
            self._issues = True
        root = place_of(self._root)
        signer = self._issuer.signer(Scope(writes[:1], (runtime,)), VALID_S)

        def path(key: str) -> str:
            return quoted("/" + "/".join(part for part in (root.bucket, root.prefix, key) if part))

        def signed(method: str, key: str, *, if_absent: bool = False) -> tuple[str, str]:
            return path(key), signer.suffix(method, path(key), if_absent=if_absent)

        def machine_at(place: str) -> dict[str, tuple[str, str]]:
            return {
                "node": signed("PUT", f"{place}/node", if_absent=True),
                "registered": signed("GET", f"{place}/node"),
                "access": signed("GET", f"{place}/{ACCESS}"),
            }

        boot_token = sealing.boot_token(self._key(), token)
        objects = {"runtime": signed("GET", _archive_key(files)), **machine_at(control)}
        if nodes > 1:
            seats = dict[str, tuple[str, str]]()
            for rank in range(nodes):
                claim = f"{control}/{rank}/claim"
                own = machine_at(f"{control}/{rank}")
                own |= {"claim": signed("PUT", claim, if_absent=True), "claimed": signed("GET", claim)}
                seats |= {f"{rank}/{name}": url for name, url in own.items()}
            urls = Urls(signer.endpoint, signer.query, seats, signer.headers, signer.once)
            sealed_seats = sealing.locked(boot_token.encode(), dumps(urls))
            if len(sealed_seats) > MOST_SEATS_BYTES:
                raise SiteError(
                    f"the signed requests of {nodes} machines take {len(sealed_seats)} bytes; the limit is "
                    f"{MOST_SEATS_BYTES}",
                    hint="use fewer machines (resources.nodes)",
                )
            self._store.put(f"{control}/{SEATS}", sealed_seats)
            objects[SEATS] = signed("GET", f"{control}/{SEATS}")
        config = {
            "token": token,
            "nodes": nodes,
            "boot_token": boot_token,
            "store": f"{self._root}/control/{self._installation_id}",
            "machines": MACHINES,
            "gpu": machine.gpu,
            "gpus": machine.gpu_count,
            "runtime": {
                "digest": files.digest,
                "sha256": files.sha256,
                "pins": files.pins,
                "url": f"{self._root}/{_archive_key(files)}",
                "disk_bytes": DISK_BYTES,
                "large_bytes": LARGE_BYTES,
            },
            "urls": {
                "endpoint": signer.endpoint,
                "query": signer.query,
                "objects": objects,
                "headers": dict(signer.headers),
                "once": dict(signer.once),
            },
            "environment": self._issuer.passed_on(root.service),
        }
        node_url = url(signer, "PUT", path(f"{control}/node"), if_absent=True)
        return _Record(user_data(config, node_url, {**signer.headers, **signer.once}), scope.writes, scope.reads)

    def _uploaded(self) -> RuntimeFiles:
        """The runtime, which is in the store when this returns, and is not deleted from it before the machine boots."""
        if self._files is None:
            self._files = self._make_files()
        found = self._store.head(_archive_key(self._files))
        if found is None or self._now().timestamp() - found.modified_ms / 1000 > RENEWED_S:
            self._store.put(_archive_key(self._files), self._files.archive)
        return self._files


def _archive_key(files: RuntimeFiles) -> str:
    return f"{RUNTIMES}/{files.digest}/{_ARCHIVE}"


def digest_in(key: str) -> str | None:
    """The runtime whose archive an object is; None for objects of other programs, which may use the same names."""
    folder, _, name = key.removeprefix(f"{RUNTIMES}/").partition("/")
    return folder if name == _ARCHIVE and re.fullmatch("[0-9a-f]{32}", folder) else None


def unusable(error: ObjectStoreError) -> SiteError:
    """A refusal of the store, as an error for the launch of a machine."""
    return SiteError(f"machines of other hosts cannot be prepared: {error.message}", hint=error.hint)
