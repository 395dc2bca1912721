"""Handover: the data that the start of a machine passes to its agent through pipes. The environment is not used,
because every other process of the same user, such as the job's program, can read it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NoReturn

from orchestrator.formats.codec import dumps, loads
from orchestrator.nodes.boot.contact import Urls

BOOT_FD = "TRADEWIND_BOOT_FD"
"""From user data: a Handover without variables, as JSON."""
ACCESS_FD = "TRADEWIND_ACCESS_FD"
"""From the provider of machines on this host: NAME=value, each followed by a zero byte."""
_ACCESS = ("AWS_", "AZURE_", "GOOGLE_")


@dataclass(frozen=True, slots=True)
class Handover:
    """`urls` are for a machine that has no credentials yet; `variables` give access to the store."""

    boot_token: str = ""
    urls: Urls | None = None
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def taken(cls) -> Handover:
        """The data passed to this process. Removes the variables from its environment. Raises CodecError."""
        booted = _read(BOOT_FD)
        given = loads(cls, booted) if booted else cls()
        pairs = (part.partition("=") for part in _read(ACCESS_FD).decode().split("\0") if part)
        own = {name: os.environ.pop(name) for name in [*os.environ] if name.startswith(_ACCESS)}
        return cls(
            given.boot_token, given.urls, {**own, **given.variables, **{name: value for name, _, value in pairs}}
        )

    def pass_on(self, command: list[str]) -> NoReturn:
        """Replace this process by another one that receives the same data."""
        memory = os.memfd_create("handover")  # a pipe may hold less, and it has no reader yet
        with open(memory, "wb", closefd=False) as file:
            file.write(dumps(self).encode())
        os.lseek(memory, 0, os.SEEK_SET)
        os.set_inheritable(memory, True)
        os.environ[BOOT_FD] = str(memory)
        os.execv(sys.executable, [sys.executable, *command])


def _read(variable: str) -> bytes:
    descriptor = os.environ.pop(variable, None)
    if descriptor is None:
        return b""
    with open(int(descriptor), "rb") as pipe:
        return pipe.read()
