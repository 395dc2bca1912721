"""On the path of child processes of tests: like tests/conftest.py, it refuses connections to other machines."""

import sys
from typing import Any


def _stay_on_this_machine(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    if host not in (None, "", "localhost", "::1") and not str(host).startswith("127."):
        raise OSError(f"{event} to {host}: a test may only reach this machine's own addresses")


sys.addaudithook(_stay_on_this_machine)
