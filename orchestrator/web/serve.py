"""Serves the dashboard, at a low priority, until Ctrl-C, and opens the browser."""

from __future__ import annotations

import os
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import uvicorn

from orchestrator.errors import UsageError
from orchestrator.web.app import create_app
from orchestrator.web.site import Site

BACKLOG = 256
LOWEST_PRIORITY = 19
_ALL = ("0.0.0.0", "::")


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 selects a free port. Raises UsageError."""
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
            hint="choose another port; --port 0 selects a free one",
        ) from error
    return made


def give_way(*, sparing: threading.Thread | None = None) -> None:
    """Lower the CPU priority of this process as far as possible, and leave one core to others, so that it never delays
    others, above all a control plane on the same machine. A thread may be exempted (`sparing`), with the processes that
    it starts."""
    spared = None if sparing is None else sparing.native_id
    cores = sorted(os.sched_getaffinity(0))
    for thread in map(int, os.listdir("/proc/self/task")):  # on Linux, each thread has its own priority and cores
        if thread != spared:
            with suppress(ProcessLookupError):  # it has just ended
                os.setpriority(os.PRIO_PROCESS, thread, LOWEST_PRIORITY)
                os.sched_setaffinity(thread, cores[1:] or cores)


def server_of(site: Site) -> uvicorn.Server:
    """The server of a site; `run(sockets=[...])` serves until `should_exit` is set."""
    app = create_app(site)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    app.state.ending = lambda: server.should_exit
    return server


@contextmanager
def serving(site: Site, port: int = 0) -> Iterator[str]:
    """Serves a site on loopback in a thread during the block, and yields its address. Raises UsageError."""
    with listen("127.0.0.1", port) as made, served(site, made):
        yield address_of(made)


def address_of(listening: socket.socket) -> str:
    """The address of a site served on this loopback socket."""
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def served(site: Site, listening: socket.socket) -> Iterator[None]:
    """Serve a site in a thread during the block."""
    server = server_of(site)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def serve(site: Site, host: str, port: int, *, opens: bool, tell: Callable[[str], None]) -> None:
    """Serve until Ctrl-C. `tell` is called with the address; with `opens`, the browser opens it. Raises UsageError."""
    with listen(host, port) as made:
        bound = made.getsockname()[1]
        name = f"[{host}]" if ":" in host else "127.0.0.1" if host in _ALL else host
        address = f"http://{name}:{bound}/"
        tell(address)
        browser = threading.Timer(0.5, webbrowser.open, [address]) if opens else None
        if browser is not None:
            browser.start()
        give_way(sparing=browser)
        server_of(site).run(sockets=[made])
