"""Lending: keeps the access of every machine valid for as long as the control plane asks for it.

A thread issues credentials, seals them to the machine's key and writes them to its object `access`, and renews them at
half of their lifetime. The control plane's loop only names the machines in use.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.errors import SiteError
from orchestrator.nodes import sealing
from orchestrator.nodes.access.grants import NoLimitedAccess
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.access.scope import Scope
from trainers.errors import ObjectStoreError
from trainers.objects.base import ObjectStore

ACCESS = "access"
FORGET_S = 600.0
AGAIN_S = (1.0, 60.0)  # after a failure: first and longest wait
NEVER = float("inf")  # for a machine that needs no access


def purpose(token: str) -> str:
    """The purpose that sealed access states."""
    return f"{ACCESS}:{token}"


@dataclass(slots=True)
class _Borrower:
    public_key: str
    asked_at: float
    due_at: float
    failures: int = 0
    refused: str | None = None


class Lender:
    """`scope_of` returns what the machine of a token may reach, None if it needs nothing; it may take seconds and raise
    SiteError and ObjectStoreError."""

    def __init__(
        self,
        store: ObjectStore,
        issuer: Issuer,
        scope_of: Callable[[str], Scope | None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._issuer, self._scope_of, self._monotonic = store, issuer, scope_of, monotonic
        self._borrowers: dict[str, _Borrower] = {}
        self._changing = threading.Lock()
        self._wake, self._closed = threading.Event(), False
        self._thread: threading.Thread | None = None

    def lend(self, token: str, public_key: str) -> None:
        """Keep the access of this machine valid. Never blocks; repeat it while the machine is in use."""
        now = self._monotonic()
        with self._changing:
            known = self._borrowers.get(token)
            if known is not None and known.public_key == public_key:
                known.asked_at = now
                return
            self._borrowers[token] = _Borrower(public_key, now, now)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="lender", daemon=True)
                self._thread.start()
        self._wake.set()

    def refused(self, token: str) -> str | None:
        """Why this machine or another one of its launch gets no access, if the store has refused."""
        with self._changing:
            of_launch = (each for place, each in self._borrowers.items() if token in (place, place.partition("/")[0]))
            return next((each.refused for each in of_launch if each.refused), None)

    def close(self) -> None:
        """Stop."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            for token, borrower in self._due():
                self.serve(token, borrower)
            self._wake.wait(self._pause_s())
            self._wake.clear()

    def _pause_s(self) -> float | None:
        now = self._monotonic()
        with self._changing:
            next_at = min((each.due_at for each in self._borrowers.values()), default=NEVER)
        return None if next_at == NEVER else max(0.05, next_at - now)

    def _due(self) -> list[tuple[str, _Borrower]]:
        now = self._monotonic()
        with self._changing:
            for token in [token for token, each in self._borrowers.items() if now - each.asked_at > FORGET_S]:
                del self._borrowers[token]
            return [(token, each) for token, each in self._borrowers.items() if now >= each.due_at]

    def serve(self, token: str, borrower: _Borrower) -> None:
        """Write new access for one machine."""
        now = self._monotonic()
        try:
            scope = self._scope_of(token)
            if scope is None:
                borrower.due_at = NEVER
                return
            issued = self._issuer.issue(scope, f"tw-{token.replace('/', '-')}")
            content = {**issued.values, "for_s": f"{issued.for_s:.0f}"}
            self._store.put(f"{token}/{ACCESS}", sealing.seal(borrower.public_key, purpose(token), content))
        except (SiteError, ObjectStoreError) as error:
            borrower.failures += 1
            borrower.due_at = now + min(AGAIN_S[1], AGAIN_S[0] * 2.0 ** min(borrower.failures - 1, 6))
            if isinstance(error, NoLimitedAccess):
                borrower.refused = f"{error} ({error.hint})"
            return
        borrower.failures, borrower.refused, borrower.due_at = 0, None, now + issued.for_s / 2
