"""What holds for every test: no connection leaves this machine, nothing of the user's is seen, and the order.

Quick tests first, whole simulations in virtual time next, then browsers, and real Ray processes last.
"""

from __future__ import annotations

import gc
import ipaddress
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.postgres import Server

# The same examples every time, and no limit on how long one takes on a busy machine.
settings.register_profile("gate", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gate")

LATE_FOLDERS = ("sim", "crash", "web", "e2e")
_PERSONAL = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")


class LeavesThisMachine(OSError):
    """A test tried to reach another machine."""


def pytest_configure(config: pytest.Config) -> None:
    """Before anything of the project is imported."""
    sys.addaudithook(_stay_on_this_machine)
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job would hand down that it is ignored
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every child compiles Ray again
    os.environ.pop("COLUMNS", None)  # xdist sets a width for its workers; tables would be cut to it
    for name in [name for name in os.environ if name.startswith("TRADEWIND_") and name != "TRADEWIND_SHARED"]:
        del os.environ[name]
    home = Path(tempfile.mkdtemp(prefix="tradewind-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    for name in _PERSONAL:
        os.environ[name] = str(home / name.lower())
        Path(os.environ[name]).mkdir()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A Postgres server, started when the first test asks for it."""
    from tests.postgres import server

    with server() as started:
        yield started


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)


def pytest_collection_finish() -> None:
    """What was imported stays until the end: without this, each full garbage collection would look at it again."""
    gc.collect()
    gc.freeze()


def _turn(item: pytest.Item) -> int:
    if item.get_closest_marker("ray") is not None:
        return len(LATE_FOLDERS) + 1
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    return LATE_FOLDERS.index(folder) + 1 if folder in LATE_FOLDERS else 0


def _network() -> int:
    """The network namespace of this thread."""
    return os.stat("/proc/thread-self/ns/net").st_ino


_OUR_NETWORK = _network()


def _stay_on_this_machine(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what would leave this machine. An audit hook sees every socket of this process, however it is made."""
    if not event.startswith("socket."):
        return
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        sock, address = arguments
        if sock.family in (socket.AF_INET, socket.AF_INET6) and address is not None:
            _require_ours(event, address[0])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        _require_ours(event, arguments[0])


def _require_ours(event: str, host: object) -> None:
    name = host.decode() if isinstance(host, bytes) else host
    if _network() != _OUR_NETWORK:
        return  # of a laboratory (tests/machines): its cables lead nowhere else
    if name not in (None, "", "localhost", "<broadcast>", *_own_names()) and not _own_address(str(name)):
        raise LeavesThisMachine(f"{event} to {name}: a test may only reach this machine's own addresses")


@cache
def _own_names() -> Iterable[str]:
    return (socket.gethostname(),)


@cache
def _own_address(host: str) -> bool:
    """Whether a socket can be bound to it, which is so for the addresses of this machine alone."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return not address.is_multicast
