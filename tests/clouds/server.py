"""A cloud on loopback: an HTTP server in a thread, the requests that it received, and the faults that it simulates.

A cloud is a callable from Request to Response; all clouds of this folder share the faults: throttling, errors, hanging,
answers that are cut in half. Later work puts machines behind the same callables.
"""

from __future__ import annotations

import random
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        """The fields of a form-encoded body: EC2's query protocol."""
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))


@dataclass(frozen=True)
class Response:
    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


Cloud = Callable[[Request], Response]


@dataclass
class Fault:
    """Happens to requests that `match`, `times` times (None: always). One of the others is set.

    `cut` sends half of the real answer under its full length, then closes; `hang` answers only when the server ends;
    `lost` does what the request asks for, and closes without an answer.
    """

    match: Callable[[Request], bool]
    times: int | None = 1
    answer: Response | None = None
    hang: bool = False
    cut: bool = False
    lost: bool = False


class LoopbackServer:
    """`url` is where it listens, on `address` and `port` (0: any). `requests` is what it was asked, in order,
    faulty ones too."""

    def __init__(
        self, cloud: Cloud, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.throttled: Response | None = None
        self.throttled_fraction = 0.0
        self.cloud = cloud
        self._chance = random.Random(7)
        self._deciding = threading.Lock()
        self._ended = threading.Event()
        self._server = ThreadingHTTPServer((address, port), _handler(self))
        self._server.daemon_threads = True
        self._server.block_on_close = False
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._address, self._scheme = address, "http" if tls is None else "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self._address}:{self._server.server_address[1]}"

    def asked(self, part: str) -> list[Request]:
        """Requests whose path or form holds `part`."""
        return [request for request in self.requests if part in request.path or part.encode() in request.body]

    def serve(self, cloud: Cloud) -> None:
        """Forget everything and be this cloud from now on: clients keep their connections."""
        self.cloud = cloud
        self.requests, self.faults, self.throttled, self.throttled_fraction = [], [], None, 0.0

    def postpones(self, match: Callable[[Request], bool], answer: Response) -> list[Request]:
        """The next request that matches is answered so and not carried out; the list then holds it, for `cloud` to be
        called with when its effect comes."""
        late: list[Request] = []

        def first(request: Request) -> bool:
            if late or not match(request):
                return False
            late.append(request)
            return True

        self.faults.append(Fault(first, 1, answer=answer))
        return late

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: Request) -> tuple[Response, bool] | None:
        """(the answer, whether it is cut in half); None when there will be none."""
        with self._deciding:
            self.requests.append(request)
            fault = next((fault for fault in self.faults if fault.times != 0 and fault.match(request)), None)
            if fault is not None and fault.times is not None:
                fault.times -= 1
            throttled = self._chance.random() < self.throttled_fraction
        if fault is not None and fault.hang:
            self._ended.wait()
            return None
        if fault is not None and fault.lost:
            self.cloud(request)
            return None
        if fault is not None and fault.answer is not None:
            return fault.answer, False
        if throttled and self.throttled is not None:
            return self.throttled, False
        return self.cloud(request), fault is not None and fault.cut


def _handler(server: LoopbackServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = 1 << 16

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:  # the client has read enough
                self.close_connection = True

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            found = server.answer(Request(self.command, parts.path, query, dict(self.headers.items()), body))
            if found is None:
                self.close_connection = True
                return
            answer, cut = found
            self.send_response_only(answer.status)
            self.send_header("Date", answer.headers.get("Date") or self.date_time_string())
            self.send_header("Content-Type", answer.content_type)
            headers = {"content-length": str(len(answer.body))} | {
                name.lower(): value
                for name, value in answer.headers.items()
                if self.command == "HEAD" or name.lower() != "content-length"
            }
            for name, value in headers.items():
                if name != "date":
                    self.send_header(name, value)
            self.end_headers()
            self.close_connection = cut or self.close_connection
            if self.command == "HEAD":
                return
            self.wfile.write(answer.body[: len(answer.body) // 2] if cut else answer.body)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        def log_message(self, *arguments: Any) -> None:
            return

    return Handler


@contextmanager
def serving(cloud: Cloud, tls: ssl.SSLContext | None = None) -> Iterator[LoopbackServer]:
    server = LoopbackServer(cloud, tls)
    server.start()
    try:
        yield server
    finally:
        server.stop()
