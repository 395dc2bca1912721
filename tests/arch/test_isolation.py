"""Tests reach this machine alone, and see nothing of the user who runs them."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ELSEWHERE = "192.0.2.1"  # reserved for documentation (RFC 5737): nobody has it
REFUSED = "own addresses"


def test_a_connection_to_another_machine_is_refused_at_once() -> None:
    with pytest.raises(OSError, match=REFUSED), socket.socket() as connection:
        connection.connect((ELSEWHERE, 80))
    with pytest.raises(OSError, match=REFUSED):
        socket.create_connection((ELSEWHERE, 80))
    with pytest.raises(OSError, match=REFUSED), socket.socket() as connection:
        connection.connect_ex((ELSEWHERE, 80))


def test_a_datagram_to_another_machine_is_refused() -> None:
    with pytest.raises(OSError, match=REFUSED), socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", (ELSEWHERE, 53))


@pytest.mark.parametrize("host", ["example.com", b"example.com", ELSEWHERE, "2001:db8::1"])
def test_no_name_of_another_machine_is_looked_up(host: str | bytes) -> None:
    with pytest.raises(OSError, match=REFUSED):
        socket.getaddrinfo(host, 80)


def test_asyncio_is_refused_too() -> None:
    def connect() -> None:
        asyncio.run(asyncio.open_connection(ELSEWHERE, 80))

    # A browser that another test has open may have an event loop running in this thread.
    with ThreadPoolExecutor(1) as elsewhere, pytest.raises(OSError, match=REFUSED):
        elsewhere.submit(connect).result()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", socket.gethostname()])
def test_this_machine_answers(host: str) -> None:
    with socket.create_server(("", 0)) as server, socket.socket() as client:
        client.connect((host, server.getsockname()[1]))


def test_unix_sockets_are_free(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / "s"))
        server.listen()
        client.connect(str(tmp_path / "s"))


def test_children_may_cache_byte_code_and_see_neither_the_users_home_nor_settings() -> None:
    code = """if True:
        import os, sys
        ours = [name for name in os.environ if name.startswith("TRADEWIND_") and name != "TRADEWIND_SHARED"]
        print(sys.dont_write_bytecode, os.path.expanduser("~"), len(ours))
    """
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert shown == ["False", os.environ["HOME"], "0"]
    assert "tradewind-tests-" in os.environ["HOME"]
