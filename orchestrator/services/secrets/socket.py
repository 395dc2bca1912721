"""Where a submitter hands over secrets to the control plane of this host: a unix socket in the state folder.

A line of JSON there, `{"give": {JOB: {NAME: VALUE}}}`, and one back, `{"error": null | text}`. Both ends check that the
other is the same user (SO_PEERCRED). Nothing that is said here is written anywhere.
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
"""How long one who gives secrets may take for the whole of it."""

_PATIENCE = struct.pack("ll", int(PATIENCE_S), 0)  # struct timeval
QUEUE = 128  # of those who wait to be listened to
LOOK_EVERY_S = 0.05
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


@dataclass(frozen=True, slots=True)
class _Give:
    give: Given


@dataclass(frozen=True, slots=True)
class _Taken:
    error: str | None


class SecretLine:
    """Listens between entering and leaving, for the control plane that leads. `say` hears what goes wrong."""

    def __init__(self, folder: Path, secrets: SecretValues, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._secrets = secrets
        self._say = say
        self._listener = socket.socket(socket.AF_UNIX)
        self._own: tuple[int, int] | None = None  # of the socket's file
        self._wake, self._awake = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="tradewind-secrets", daemon=True)

    def __enter__(self) -> SecretLine:
        try:
            (self._folder / SOCKET).unlink(missing_ok=True)  # that of a control plane which is gone, or was deposed
            with _short(self._folder) as short:
                self._listener.bind(short)
            (self._folder / SOCKET).chmod(0o600)  # before anybody can connect: it does not listen yet
            self._own = self._identity()
            self._listener.listen(QUEUE)
        except OSError as error:  # jobs without secrets need none
            self._say(f"no secrets can be given: the socket {self._folder / SOCKET} cannot be made: {error}")
        else:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._wake.close()
        if self._thread.is_alive():
            self._thread.join(timeout=PATIENCE_S)
        with suppress(FileNotFoundError):
            if self._identity() == self._own:  # not the successor's
                (self._folder / SOCKET).unlink()
        self._listener.close()
        self._awake.close()

    def _identity(self) -> tuple[int, int]:
        found = (self._folder / SOCKET).stat()
        return found.st_ino, found.st_ctime_ns  # a file system may give the number to the next file

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._listener, self._awake], [], [])
            if self._awake in ready:
                return
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                self._say(f"somebody could not give secrets: {error}")
                time.sleep(LOOK_EVERY_S)  # out of file descriptors: that lasts a moment
                continue
            if _peer_uid(connection) != os.geteuid():
                with closing(connection), suppress(OSError):
                    _send(connection, "this control plane belongs to another user")
                continue
            # one thread each: whoever is silent keeps nobody else waiting
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
            return "the message is not one of this version of Tradewind"  # the text of the error could quote a value
        except TradewindError as error:
            return str(error)
        return None


def hand_over(folder: Path, given: Given, *, patience_s: float = 0.0) -> bool:
    """Give values to the control plane that uses this state folder; False when none listens within `patience_s`.

    Raises SiteError when it does not take them, UsageError for a value that is too long.
    """
    for values in given.values():
        for name, value in values.items():
            if len(value) > MAX_CHARACTERS:
                raise UsageError(
                    f"the secret {name} has {len(value)} characters, and {MAX_CHARACTERS} are the most",
                    hint="hand it over in a file of your own, and its path in a variable",
                )
    message = dumps(_Give(given)).encode() + b"\n"
    if len(message) > MAX_MESSAGE_BYTES:
        raise UsageError(
            f"these are more than {MAX_MESSAGE_BYTES >> 20} MiB of secrets at once", hint="submit the jobs one by one"
        )
    give_up = time.monotonic() + patience_s
    while (connection := _connected(folder)) is None:
        if time.monotonic() >= give_up:
            return False
        time.sleep(LOOK_EVERY_S)
    with closing(connection):
        if _peer_uid(connection) != os.geteuid():
            raise SiteError(f"another user listens at {folder / SOCKET}: nothing was given", hint="remove that file")
        try:
            connection.settimeout(PATIENCE_S)
            connection.sendall(message)
            error = loads(_Taken, _line(connection)).error
        except (OSError, ValueError) as failure:
            raise SiteError("the control plane did not take the secrets", hint="see control-plane.log") from failure
    if error is not None:
        raise SiteError(f"the control plane did not take the secrets: {error}", hint="see control-plane.log")
    return True


def _given(message: _Give) -> Given:
    """Raises ValueError for an id, a name or a value that cannot be one."""
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
    """Up to the end of the line, which has PATIENCE_S to come, however it is cut. Raises OSError, ValueError."""
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
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _PATIENCE)  # settimeout would not wait at a full queue
    try:
        with _short(folder) as short:
            connection.connect(short)
    except OSError:  # no socket, or nobody listens any more
        connection.close()
        return None
    return connection


@contextmanager
def _short(folder: Path) -> Iterator[str]:
    """The socket's name in 107 bytes, however long that of the folder is."""
    directory = os.open(folder, os.O_PATH)
    try:
        yield f"/proc/self/fd/{directory}/{SOCKET}"
    finally:
        os.close(directory)


def _peer_uid(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return int(uid)
