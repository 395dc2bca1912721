"""A machine's access to the store, kept in its agent's memory for the agent and the job's program."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Protocol

from orchestrator.errors import SiteError
from orchestrator.nodes import sealing
from orchestrator.nodes.access.lending import purpose
from trainers.objects.credentials import WHERE, WITH, Lent

if TYPE_CHECKING:
    from nacl.public import PrivateKey

MOST_S = 7 * 86_400.0
LOOK_PARTS = 12  # the agent looks for newer credentials after this fraction of their lifetime


class Access(Protocol):
    """A trainer's access to checkpoints in a bucket."""

    def variables(self) -> Mapping[str, str]:
        """Environment variables for the trainer."""
        ...

    def take(self, sealed: bytes) -> bool:
        """Use these credentials from now on. Raises SiteError."""
        ...

    def refresh(self, read: Callable[[], bytes | None]) -> None:
        """Look for newer credentials if it is time. Raises SiteError, ObjectStoreError."""
        ...


class OwnAccess:
    """Access by the variables that the agent was started with."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)

    def variables(self) -> Mapping[str, str]:
        """See Access.variables."""
        return self._variables

    def take(self, sealed: bytes) -> bool:  # noqa: ARG002
        """See Access.take. Nothing is lent in this case."""
        return False

    def refresh(self, read: Callable[[], bytes | None]) -> None:
        """See Access.refresh. These credentials do not change."""


class BorrowedAccess:
    """Credentials that the control plane has sealed to the agent's key, and replaces before they expire. `plain` are
    the other variables for the store. Programs of the job get them from an endpoint on the loopback interface
    (trainers.objects.credentials), so that they always have the newest.
    """

    def __init__(
        self,
        key: PrivateKey,
        token: str,
        plain: Mapping[str, str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._key, self._token, self._plain, self._monotonic = key, token, dict(plain), monotonic
        self._seen = b""
        self._content: Mapping[str, str] = {}
        self._taken_at = self._looked_at = 0.0
        self._for_s = 0.0
        self._endpoint: _Endpoint | None = None
        self._starting = threading.Lock()

    def take(self, sealed: bytes) -> bool:
        """Use these credentials from now on; False if they are already in use. Raises SiteError if they are for another
        machine or damaged."""
        self._looked_at = self._monotonic()
        if sealed == self._seen:
            return False
        content = sealing.opened(self._key, sealed, purpose(self._token))
        try:
            for_s = float(content.pop("for_s"))
            if not 0 < for_s <= MOST_S:  # anyone with write access here can seal
                raise ValueError(for_s)
        except (KeyError, ValueError) as error:
            raise SiteError(
                "the credentials do not state how long they are valid", hint="Tradewind reads them again"
            ) from error
        self._seen, self._content, self._for_s, self._taken_at = sealed, content, for_s, self._looked_at
        return True

    def refresh(self, read: Callable[[], bytes | None]) -> None:
        """See Access.refresh."""
        if self._monotonic() - self._looked_at >= self._for_s / LOOK_PARTS:
            sealed = read()
            if sealed is not None:
                self.take(sealed)

    def credentials(self) -> Lent:
        """The current credentials. `expires_at` is by this machine's clock."""
        content, left_s = self._content, self._taken_at + self._for_s - self._monotonic()
        asked_again_s = min(left_s, self._for_s / LOOK_PARTS)
        return Lent(content, datetime.now(UTC) + timedelta(seconds=asked_again_s))  # noqa: TID251

    def variables(self) -> Mapping[str, str]:
        """See Access.variables. They contain no credentials, only the address of the endpoint that serves them."""
        with self._starting:
            if self._endpoint is None:
                aws = "AWS_ACCESS_KEY_ID" in self._content
                self._endpoint = _Endpoint(self.credentials, _AWS if aws else _OWN)
        return {**self._plain, **self._endpoint.variables()}


@dataclass(frozen=True, slots=True)
class _Form:
    """The form of an endpoint's answers, and the variables by which programs find it."""

    where: str
    with_token: str
    words: Callable[[Lent], Mapping[str, object]]


def _aws_words(lent: Lent) -> Mapping[str, object]:
    return {
        "AccessKeyId": lent.values.get("AWS_ACCESS_KEY_ID", ""),
        "SecretAccessKey": lent.values.get("AWS_SECRET_ACCESS_KEY", ""),
        "Token": lent.values.get("AWS_SESSION_TOKEN", ""),
        "Expiration": lent.expires_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _own_words(lent: Lent) -> Mapping[str, object]:
    return {"values": dict(lent.values), "expires_at": lent.expires_at.isoformat()}


_AWS = _Form("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN", _aws_words)
_OWN = _Form(WHERE, WITH, _own_words)


class _Endpoint:
    """Answers requests that carry its token."""

    def __init__(self, credentials: Callable[[], Lent], form: _Form) -> None:
        self._token, self._form = secrets.token_hex(24), form
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._token, lambda: form.words(credentials())))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="access", daemon=True).start()

    def variables(self) -> dict[str, str]:
        where = f"http://127.0.0.1:{self._server.server_address[1]}/access"
        return {self._form.where: where, self._form.with_token: self._token}


def _handler(token: str, answer: Callable[[], Mapping[str, object]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not secrets.compare_digest(self.headers.get("Authorization", "").encode(), token.encode()):
                self.send_error(403)
                return
            body = json.dumps(answer()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return Handler
