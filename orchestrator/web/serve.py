"""Serves the dashboard until Ctrl-C, and opens the browser."""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from orchestrator.errors import UsageError
from orchestrator.web.app import create_app
from orchestrator.web.site import Site

BACKLOG = 256
_ALL = ("0.0.0.0", "::")


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any free one. Raises UsageError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise UsageError(
            f"cannot listen on {host}, port {port}: {error.strerror}",
            hint="choose another one: --port 0 takes a free one",
        ) from error
    return made


def server_of(site: Site) -> uvicorn.Server:
    """The server of a site; `run(sockets=[...])` serves until its `should_exit` is set."""
    config = uvicorn.Config(
        create_app(site),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


@contextmanager
def serving(site: Site, port: int = 0) -> Iterator[str]:
    """The address of a site that a thread serves on loopback. Raises UsageError."""
    with listen("127.0.0.1", port) as made:
        server = server_of(site)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [made]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{made.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def serve(site: Site, host: str, port: int, *, opens: bool, tell: Callable[[str], None]) -> None:
    """Serve until Ctrl-C. `tell` gets the address; `opens` opens the browser at it. Raises UsageError."""
    with listen(host, port) as made:
        bound = made.getsockname()[1]
        name = f"[{host}]" if ":" in host else "127.0.0.1" if host in _ALL else host
        address = f"http://{name}:{bound}/"
        tell(address)
        if opens:
            threading.Timer(0.5, webbrowser.open, [address]).start()
        server_of(site).run(sockets=[made])
