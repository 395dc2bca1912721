"""The unix socket in the state folder through which submitters give secrets to this host's control plane.

The request is one line of JSON, `{"give": {JOB: {NAME: VALUE}}}`, and so is the response, `{"error": null | text}`.
Both ends check that the peer is the same user (SO_PEERCRED). Nothing of it is logged or stored.
"""

from __future__ import annotations

import os
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.engine.secret_values import Given, SecretValues
from orchestrator.errors import SiteError, TradewindError, UsageError
from orchestrator.formats.codec import dumps, loads
from trainers.process.masking import MAX_CHARACTERS

SOCKET = "secrets.sock"
MAX_MESSAGE_BYTES = 4 << 20
PATIENCE_S = 5.0
"""Wall seconds that a whole exchange may take."""

_PATIENCE = struct.pack("ll", int(PATIENCE_S), 0)  # struct timeval
QUEUE = 128  # connections that wait to be accepted
LOOK_EVERY_S = 0.05
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


@dataclass(frozen=True, slots=True)
class _Give:
    give: Given


@dataclass(frozen=True, slots=True)
class _Taken:
    error: str | None


class SecretLine:
    """A context manager that serves the socket for the leading control plane. `say` receives failures."""

    def __init__(self, folder: Path, secrets: SecretValues, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._secrets = secrets
        self._say = say
        self._listener = socket.socket(socket.AF_UNIX)
        self._own: tuple[int, int] | None = None  # identity of the socket's file
        self._wake, self._awake = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="tradewind-secrets", daemon=True)

    def __enter__(self) -> SecretLine:
        """Creates the socket and starts the thread."""
        try:
            (self._folder / SOCKET).unlink(missing_ok=True)  # left by a dead or deposed control plane
            with _short(self._folder) as short:
                self._listener.bind(short)
            (self._folder / SOCKET).chmod(0o600)  # before it listens
            self._own = self._identity()
            self._listener.listen(QUEUE)
        except OSError as error:  # jobs without secrets can still run
            self._say(f"secrets cannot be received: creating the socket {self._folder / SOCKET} failed: {error}")
        else:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops serving and removes the socket."""
        self._wake.close()
        if self._thread.is_alive():
            self._thread.join(timeout=PATIENCE_S)
        with suppress(FileNotFoundError):
            if self._identity() == self._own:  # it may belong to the successor
                (self._folder / SOCKET).unlink()
        self._listener.close()
        self._awake.close()

    def _identity(self) -> tuple[int, int]:
        found = (self._folder / SOCKET).stat()
        return found.st_ino, found.st_ctime_ns  # a file system may reuse the inode

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._listener, self._awake], [], [])
            if self._awake in ready:
                return
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                self._say(f"a connection for secrets failed: {error}")
                time.sleep(LOOK_EVERY_S)  # out of file descriptors, usually only briefly
                continue
            if _peer_uid(connection) != os.geteuid():
                with closing(connection), suppress(OSError):
                    _send(connection, "this control plane belongs to another user")
                continue
            # one thread per connection, so that a silent peer does not delay others
            threading.Thread(target=self._serve, args=(connection,), name="tradewind-secret", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with closing(connection):
                answer = self._answer(connection)
                _send(connection, answer)
        except OSError as error:
            self._say(f"a client that gave secrets disconnected: {error}")

    def _answer(self, connection: socket.socket) -> str | None:
        try:
            self._secrets.give(_given(loads(_Give, _line(connection))))
        except ValueError:
            return "the message is not one of this version of Tradewind"  # the error text could contain a secret
        except TradewindError as error:
            return str(error)
        return None


def hand_over(folder: Path, given: Given, *, patience_s: float = 0.0) -> bool:
    """Sends values to the control plane of this state folder; False if none listens within `patience_s` wall seconds.

    Raises SiteError if it does not accept them, UsageError for a value that is too long.
    """
    for values in given.values():
        for name, value in values.items():
            if len(value) > MAX_CHARACTERS:
                raise UsageError(
                    f"the secret {name} has {len(value)} characters; the limit is {MAX_CHARACTERS}",
                    hint="put it into a file and pass its path in a variable",
                )
    message = dumps(_Give(given)).encode() + b"\n"
    if len(message) > MAX_MESSAGE_BYTES:
        raise UsageError(
            f"the secrets have more than {MAX_MESSAGE_BYTES >> 20} MiB in total", hint="submit the jobs one by one"
        )
    give_up = time.monotonic() + patience_s
    while (connection := _connected(folder)) is None:
        if time.monotonic() >= give_up:
            return False
        time.sleep(LOOK_EVERY_S)
    with closing(connection):
        if _peer_uid(connection) != os.geteuid():
            raise SiteError(
                f"the socket {folder / SOCKET} belongs to another user; no secrets were sent", hint="remove that file"
            )
        try:
            connection.settimeout(PATIENCE_S)
            connection.sendall(message)
            error = loads(_Taken, _line(connection)).error
        except (OSError, ValueError) as failure:
            raise SiteError("the control plane did not accept the secrets", hint="see control-plane.log") from failure
    if error is not None:
        raise SiteError(f"the control plane did not accept the secrets: {error}", hint="see control-plane.log")
    return True


def _given(message: _Give) -> Given:
    """The secrets in a message. Raises ValueError for an invalid id, name or value."""
    for job_id, values in message.give.items():
        if not re.fullmatch(r"[\w-]{1,100}", job_id):
            raise ValueError
        for name, value in values.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", name):
                raise ValueError
            if len(value) > MAX_CHARACTERS or "\0" in value:
                raise ValueError
    return message.give


def _send(connection: socket.socket, error: str | None) -> None:
    connection.settimeout(PATIENCE_S)
    connection.sendall(dumps(_Taken(error)).encode() + b"\n")


def _line(connection: socket.socket) -> bytes:
    """One line, which must arrive within PATIENCE_S in total. Raises OSError, ValueError."""
    received = bytearray()
    give_up = time.monotonic() + PATIENCE_S
    while not received.endswith(b"\n"):
        connection.settimeout(max(give_up - time.monotonic(), 0.001))
        part = connection.recv(1 << 16)
        if not part:
            raise ConnectionError("it closed the connection")
        received += part
        if len(received) > MAX_MESSAGE_BYTES:
            raise ValueError
    return bytes(received)


def _connected(folder: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    connection.setsockopt(
        socket.SOL_SOCKET, socket.SO_SNDTIMEO, _PATIENCE
    )  # settimeout would fail at once if the queue is full
    try:
        with _short(folder) as short:
            connection.connect(short)
    except OSError:  # no socket, or no process listens
        connection.close()
        return None
    return connection


@contextmanager
def _short(folder: Path) -> Iterator[str]:
    """A path to the socket of at most 107 bytes (the limit of unix sockets), for a folder of any length."""
    directory = os.open(folder, os.O_PATH)
    try:
        yield f"/proc/self/fd/{directory}/{SOCKET}"
    finally:
        os.close(directory)


def _peer_uid(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return int(uid)
