"""Requests to a host through the system's `ssh`, and the meaning of its failures.

The system's program is used instead of a library because it uses its users' configuration: agents, hardware keys, jump
hosts, ~/.ssh/config. One connection per host is kept open for CONNECTION_S after its last use, so most requests need no
new handshake. The arguments contain no secrets: the request goes through the standard input.
"""

from __future__ import annotations

import os
import re
import select
import selectors
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

from providers.errors import (
    AuthError,
    CapacityError,
    ConflictError,
    CutOffError,
    ProviderError,
    SetupError,
    TimedOutError,
    UnavailableError,
)
from providers.static.connection import folder_of_sockets, hang_up
from providers.static.hosts import Host
from providers.static.program import LEAST_PYTHON, answer_in, loader, program

CALL_S = 25.0
"""After this time, a request counts as not answered."""
LOOK_S = 0.5
PIECE_BYTES = 1 << 16
MOST_ANSWER_BYTES = 16 << 20
MOST_SAID_BYTES = 64 << 10
CONNECT_S = 8
CONNECTION_S = 30
_NO_ANSWER = 255  # ssh's own exit code; all others come from the host


class Ssh:
    """Connections to hosts. `state_dir` keeps host keys that tradewind.toml names."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir

    def ask(self, host: Host, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carry out one request of providers.static.on_host. Raises ProviderError."""
        check_key(host)
        text = program({**request, "folder": host.folder, "slots": host.slots})
        command = self.command(host, f"exec {shlex.quote(host.python)} -I -S -c {shlex.quote(loader())}")
        # A file for the errors: a connection that stays open may keep a pipe open, and this call would wait for it.
        with tempfile.TemporaryFile() as errors:
            try:
                code, output = _carried_out(command, text.encode(), errors)
            except FileNotFoundError as error:
                raise SetupError("ssh is not installed", hint="apt-get install openssh-client") from error
            except subprocess.TimeoutExpired as error:
                self._hang_up(host)
                raise TimedOutError(
                    f"{host.name} did not answer within {CALL_S:.0f} s", hint=_check_by_hand(host)
                ) from error
            except _Endless as error:
                self._hang_up(host)
                hint = f"make its shell print nothing at a login without a terminal: {login(host)} true"
                raise UnavailableError(f"the output of {host.name} does not end", hint=hint) from error
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - MOST_SAID_BYTES))
            said = errors.read().decode(errors="replace").strip()
        answer = answer_in(output.decode(errors="replace"))
        if answer is None:
            raise _failure(host, code, said)
        if "error" in answer:
            raise _refusal(host, str(answer["error"]), str(answer.get("message", "")))
        return answer

    def command(self, host: Host, remote: str, *, terminal: bool = False, shared: bool = True) -> tuple[str, ...]:
        """The command line that runs `remote` in the host's shell. `shared`: over the connection of the requests, which
        ends when a request is not answered."""
        config = ("-F", host.ssh_config) if host.ssh_config else ()
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": str(CONNECT_S),
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "3",
            "ControlMaster": "auto" if shared else "no",
            "ControlPath": str(self._socket(host)) if shared else "none",
            "ControlPersist": str(CONNECTION_S),
            "StrictHostKeyChecking": "accept-new" if host.accept_new_host_key else "yes",
            "ForwardAgent": "no",
            "ForwardX11": "no",
            "ClearAllForwardings": "yes",
            "Compression": "yes" if shared else "no",  # a request has 46 kB of text, compressed 14 kB
            "PermitLocalCommand": "no",
            "RequestTTY": "force" if terminal else "no",
            "LogLevel": "ERROR",
        }
        if host.key_file:
            options |= {"IdentityFile": _quoted(host.key_file), "IdentitiesOnly": "yes"}
        if host.host_key:
            options |= {"UserKnownHostsFile": _quoted(self._known_host(host)), "GlobalKnownHostsFile": "none"}
            options |= {"HostKeyAlias": host.name, "UpdateHostKeys": "no"}
        elif host.known_hosts:
            options["UserKnownHostsFile"] = _quoted(host.known_hosts)
        given = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        where = (*(("-p", str(host.port)) if host.port else ()), *(("-l", host.user) if host.user else ()))
        return ("ssh", *config, *given, *where, "--", host.address, remote)

    def _known_host(self, host: Host) -> str:
        """A file with the declared key of this host alone."""
        line = f"{host.name} {host.host_key}\n"
        path = self._state_dir / "host-keys" / f"{host.name}-{blake2b(line.encode(), digest_size=6).hexdigest()}"
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial = path.with_name(f".{path.name}.{os.getpid()}")
            partial.write_text(line)
            partial.replace(path)
        return str(path)

    def _socket(self, host: Host) -> Path:
        """The shared connection of this exact declaration in this installation."""
        return folder_of_sockets() / blake2b(f"{self._state_dir}|{host!r}".encode(), digest_size=8).hexdigest()

    def _hang_up(self, host: Host) -> None:
        """Close the shared connection: the next call makes a new one."""
        program, *rest = self.command(host, "")
        hang_up(self._socket(host), [program, "-O", "exit", *rest])


class _Endless(Exception):
    """The output is longer than any answer."""


def _carried_out(command: Sequence[str], unsent: bytes, errors: IO[bytes]) -> tuple[int, bytes]:
    """The exit code and the output of a command with this input. Raises FileNotFoundError, subprocess.TimeoutExpired
    after CALL_S, and _Endless; then it is killed."""
    output, give_up_s = bytearray(), time.monotonic() + CALL_S
    environment = {**os.environ, "LC_ALL": "C"}
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, env=environment, bufsize=0) as process,
        selectors.DefaultSelector() as ready,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            ready.register(process.stdout, selectors.EVENT_READ)
            ready.register(process.stdin, selectors.EVENT_WRITE)
            while not process.stdout.closed:
                if time.monotonic() > give_up_s:
                    raise subprocess.TimeoutExpired(command, CALL_S)
                for each, _ in ready.select(LOOK_S):
                    if each.fileobj is process.stdout:
                        piece = os.read(process.stdout.fileno(), PIECE_BYTES)
                        output += piece
                        if not piece:
                            ready.unregister(process.stdout)
                            process.stdout.close()
                    elif not (unsent := _written(process.stdin, unsent)):
                        ready.unregister(process.stdin)
                        process.stdin.close()
                if len(output) > MOST_ANSWER_BYTES or os.fstat(errors.fileno()).st_size > MOST_ANSWER_BYTES:
                    raise _Endless
            return process.wait(max(LOOK_S, give_up_s - time.monotonic())), bytes(output)
        finally:
            process.kill()


def _written(pipe: IO[bytes], unsent: bytes) -> bytes:
    """The rest after writing as much as fits; nothing if the pipe has no reader."""
    try:
        return unsent[os.write(pipe.fileno(), unsent[: select.PIPE_BUF]) :]
    except BrokenPipeError:
        return b""


def check_key(host: Host) -> None:
    """Raises AuthError if the private key is missing, or other users can read it."""
    if host.key_file is None:
        return
    try:
        mode = os.stat(host.key_file).st_mode
        with open(host.key_file, "rb"):
            pass
    except OSError as error:
        raise AuthError(
            f"the key of {host.name}, {host.key_file}, cannot be read: {error.strerror}",
            hint=f"correct key_file in [providers.static.hosts.{host.name}]",
            scope="region",
        ) from error
    if mode & 0o077:
        raise AuthError(
            f"the key of {host.name}, {host.key_file}, can be read by others (mode {mode & 0o777:04o})",
            hint=f"chmod 600 {shlex.quote(host.key_file)}",
            scope="region",
        )


def login(host: Host) -> str:
    """The command with which a person logs in to the host."""
    port = f" -p {host.port}" if host.port else ""
    key = f" -i {shlex.quote(host.key_file)}" if host.key_file else ""
    return f"ssh{port}{key} {host.user + '@' if host.user else ''}{host.address}"


def _check_by_hand(host: Host) -> str:
    return f"check that the host is up and that this works: {login(host)} true"


def _failure(host: Host, code: int, said: str) -> ProviderError:
    """The error for a call without an answer."""
    last = said.splitlines()[-1].strip() if said else ""
    if code != _NO_ANSWER or not said:  # ssh reports its own failures, but not that a signal ended the host's program
        return _no_python(host, code, said)
    if re.search(r"Permission denied|Too many authentication failures|No more authentication methods", said):
        return AuthError(
            f"{host.name} refuses the key: {last}",
            hint=f"install it with: {login(host).replace('ssh', 'ssh-copy-id', 1)}",
            scope="region",
        )
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in said or ("host key for" in said.lower() and "has changed" in said):
        return AuthError(
            f"the host key of {host.name} ({host.address}) has changed: the connection may be intercepted, or the "
            "host was reinstalled",
            hint="compare it with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the host; only if it matches, "
            + ("correct host_key" if host.host_key else f"run: ssh-keygen -R {host.address}"),
            scope="region",
        )
    if "Host key verification failed" in said:
        return AuthError(
            f"the host key of {host.name} ({host.address}) is not known, so it may be another machine",
            hint=f"log in once and compare the key: {login(host)}; or set host_key or accept_new_host_key = true",
            scope="region",
        )
    if "Could not resolve hostname" in said:
        hint = f"correct address in [providers.static.hosts.{host.name}]"
        return UnavailableError(f"{host.name}: the address {host.address!r} cannot be resolved", hint=hint)
    if re.search(
        r"[Bb]ad configuration option|Bad owner or permissions|Can't open user config|no such identity|invalid format",
        said,
    ):
        return SetupError(f"ssh cannot be used for {host.name}: {last}", hint=_check_by_hand(host), scope="region")
    if re.search(r"closed|reset|Broken pipe", said):
        return CutOffError(f"the connection to {host.name} ended: {last}", hint=_check_by_hand(host))
    return UnavailableError(f"{host.name} cannot be reached: {last}", hint=_check_by_hand(host))


def _no_python(host: Host, code: int, said: str) -> ProviderError:
    if code in (126, 127):
        least = ".".join(map(str, LEAST_PYTHON))
        return SetupError(
            f"{host.name} has no {host.python}",
            hint=f"install Python {least} or newer there, or set python in [providers.static.hosts.{host.name}]",
            scope="region",
        )
    last = said.splitlines()[-1].strip() if said else ""
    if code < 0 or code > 128 or not said:  # killed, or the connection ended without a message
        return CutOffError(f"{host.name} gave no answer (exit code {code}) {last}".strip(), hint=_check_by_hand(host))
    return UnavailableError(
        f"{host.python} on {host.name} failed (exit code {code}): {last}", hint=f"try: {login(host)} {host.python} -V"
    )


def _refusal(host: Host, kind: str, message: str) -> ProviderError:
    """The error for a host's refusal."""
    section = f"[providers.static.hosts.{host.name}]"
    if kind == "conflict":
        return ConflictError(message, hint="use a new token for a new request")
    if kind == "capacity":
        return CapacityError(
            f"{host.name} is in use: {message}", hint="wait, or end the machines there; other installations count, too"
        )
    if kind == "python":
        least = ".".join(map(str, LEAST_PYTHON))
        return SetupError(
            f"{host.name} has Python {message}; {least} or newer is needed",
            hint=f'install it there, and name it: python = "python{least}" in {section}',
            scope="region",
        )
    if kind == "shell":
        return SetupError(
            f"the shell of {host.name} reads the input meant for its commands: does it ask something at each login?",
            hint=f"make it ask only on a terminal ([ -t 0 ]), for example in ~/.bashrc; to test: echo | {login(host)} "
            "cat",
            scope="region",
        )
    if kind == "temporary":
        return SetupError(f"{host.name}: {message}", hint="give this user write permission there", scope="region")
    if kind == "slots":
        return SetupError(
            f"{host.name}: {message}", hint=f"give all users of {host.address} write permission there", scope="region"
        )
    if kind == "bash":
        return SetupError(f"{host.name} has no bash", hint="install bash there", scope="region")
    if kind == "disk":
        return SetupError(
            f"{host.name} has too little free disk space: {message}",
            hint=f"free some space in {host.folder} there, or set folder or disk_gb in {section}",
            scope="region",
        )
    return UnavailableError(f"{host.name}: {message}", hint=_check_by_hand(host))


def _quoted(path: str) -> str:
    """A path as an option's value in ssh's own syntax."""
    return '"' + path.replace("%", "%%") + '"'


def quoted_command(words: Sequence[str]) -> str:
    """Words as one command for the host's shell."""
    return " ".join(map(shlex.quote, words))
