"""HTTP GET and POST with bounded waits: honours throttling and treats a truncated answer as an error.

For price lists without a client library. Errors never contain the query of a URL, which may hold keys.
"""

from __future__ import annotations

import json
import re
import ssl
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from providers.clock import Clock, SystemClock
from providers.collect.error_bodies import refuse_error
from providers.errors import (
    MAX_RETRY_AFTER_S,
    AuthError,
    CutOffError,
    FormatError,
    NotFoundError,
    ProviderError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)

if TYPE_CHECKING:
    import urllib3


class RefusedError(ProviderError):
    """Any other unsuccessful answer. `status` is its HTTP status code."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


FAULTS = frozenset({500, 502, 503, 504})
MAX_PAGE_BYTES = 256 << 20
MAX_LINE_BYTES = 1 << 20
SECRET_HEADERS = ("X-Goog-Api-Key",)
"""Headers that a redirect to another host must not carry, in addition to urllib3's own list."""
MAX_ERROR_TEXT_BYTES = 4096
"""How much of the body of an error is read: enough for a message."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts in wall seconds and the number of attempts. A `Retry-After` longer than `longest_wait_s` is not waited
    for here but left to the schedule.
    """

    connect_s: float = 5.0
    read_s: float = 30.0
    attempts: int = 3
    first_wait_s: float = 1.0
    longest_wait_s: float = 20.0


class Http:
    """Connections to one or more hosts, shared by threads. `ca_file` adds a private certificate authority."""

    def __init__(
        self, patience: Patience | None = None, clock: Clock | None = None, ca_file: str | None = None
    ) -> None:
        self.patience = Patience() if patience is None else patience
        self._clock: Clock = SystemClock() if clock is None else clock
        self._ca_file = ca_file
        self._pools: dict[str | None, urllib3.PoolManager] = {}

    def get_json(
        self, url: str, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """The body as JSON. Raises ProviderError; FormatError if it is not JSON."""
        return _json(self._body("GET", _with_query(url, query), headers, None), url)

    def post_json(self, url: str, body: object, headers: Mapping[str, str] | None = None) -> Any:
        """The JSON answer to a JSON body. Only for calls without side effects: they are repeated after a failure.
        Raises ProviderError; FormatError if the answer is not JSON.
        """
        sent = {"Content-Type": "application/json", **(headers or {})}
        return _json(self._body("POST", url, sent, json.dumps(body).encode()), url)

    def get_bytes(self, url: str, headers: Mapping[str, str] | None = None, most_bytes: int = MAX_PAGE_BYTES) -> bytes:
        """The decompressed body. Raises ProviderError; FormatError if it exceeds `most_bytes`."""
        return self._body("GET", url, headers, None, most_bytes)

    def lines(self, url: str, headers: Mapping[str, str] | None = None) -> Iterator[bytes]:
        """The lines of the body as they arrive, never all in memory; a truncated body still yields its complete lines
        first.

        Raises ProviderError, possibly after some lines; FormatError for a line longer than MAX_LINE_BYTES.
        """
        with _translated(url):
            response = self._send("GET", url, headers, None)
            try:
                rest = b""
                while block := response.read1(1 << 16, decode_content=True):  # stream() loses the last block
                    *whole, rest = (rest + block).split(b"\n")
                    yield from whole
                    if len(rest) > MAX_LINE_BYTES:
                        raise FormatError(f"{_place(url)}: a line is longer than {MAX_LINE_BYTES >> 20} MiB")
                _require_whole(response, url)
                if rest:
                    yield rest
            finally:
                response.release_conn()

    def _body(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        body: bytes | None,
        most_bytes: int = MAX_PAGE_BYTES,
    ) -> bytes:
        """Read the whole answer; a truncated one is requested once more."""
        for last in (False, True):
            try:
                with _translated(url):
                    response = self._send(method, url, headers, body)
                    try:
                        data = response.read(most_bytes + 1, decode_content=True)
                        if len(data) <= most_bytes:
                            _require_whole(response, url)
                        else:
                            response.close()
                    finally:
                        response.release_conn()
            except CutOffError:
                if last:
                    raise
                continue
            if len(data) > most_bytes:
                raise FormatError(f"{_place(url)}: the answer has more than {most_bytes:,} bytes")
            return bytes(data)
        raise AssertionError("one of two attempts returns or raises")

    def _pool(self, url: str) -> urllib3.PoolManager:
        """A connection pool, through the proxy that the environment names for this URL, if any."""
        import urllib3

        parts = urlsplit(url)
        skipped = urllib.request.proxy_bypass(parts.hostname or "")
        proxy = None if skipped else urllib.request.getproxies().get(parts.scheme)
        if proxy not in self._pools:
            if proxy:
                self._pools[proxy] = urllib3.ProxyManager(proxy, ssl_context=_tls(self._ca_file), maxsize=8)
            else:
                self._pools[proxy] = urllib3.PoolManager(ssl_context=_tls(self._ca_file), maxsize=8)
        return self._pools[proxy]

    def _send(
        self, method: str, url: str, headers: Mapping[str, str] | None, body: bytes | None
    ) -> urllib3.BaseHTTPResponse:
        """The response of a successful request; throttled and failed requests are repeated within limits."""
        import urllib3

        patience = self.patience
        timeout = urllib3.Timeout(connect=patience.connect_s, read=patience.read_s)
        secret = {*urllib3.Retry.DEFAULT_REMOVE_HEADERS_ON_REDIRECT, *SECRET_HEADERS}
        hops = urllib3.Retry(
            connect=0, read=0, other=0, status=0, redirect=5, raise_on_status=False, remove_headers_on_redirect=secret
        )
        error: ProviderError | None = None
        for attempt in range(patience.attempts):
            if error is not None:
                backoff_s = patience.first_wait_s * 2.0 ** (attempt - 1)
                wait_s = backoff_s if error.retry_after_s is None else error.retry_after_s
                if wait_s > patience.longest_wait_s:
                    raise error
                self._clock.sleep(wait_s)
            response = self._pool(url).request(
                method,
                url,
                headers={"Accept-Encoding": "gzip", **(headers or {})},
                body=body,
                timeout=timeout,
                retries=hops,
                preload_content=False,
            )
            if response.status < 300:
                _require_no_downgrade(url, response)
                return response
            error = _refusal(url, response)
            response.close()  # do not read the rest: it may never end
            response.release_conn()
            if not error.retryable:
                raise error
        assert error is not None
        raise error


def _require_no_downgrade(url: str, response: urllib3.BaseHTTPResponse) -> None:
    """Raises FormatError if an encrypted request was redirected to an unencrypted address."""
    hops = response.retries.history if response.retries is not None else ()
    open_ = [hop.redirect_location for hop in hops if (hop.redirect_location or "").lower().startswith("http://")]
    if url.lower().startswith("https://") and open_:
        response.close()
        raise FormatError(f"{_place(url)} redirects to {_place(str(open_[0]))}, which is not encrypted; not followed")


@cache
def _tls(ca_file: str | None) -> ssl.SSLContext:
    """Cached, because reading the system's certificate authorities takes 30 ms."""
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context


def _with_query(url: str, query: Mapping[str, str] | None) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}" if query else url


def _json(data: bytes, url: str) -> Any:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{_place(url)}: the answer is not JSON: {data[:80]!r}") from error
    refuse_error(_place(url), 200, found)
    return found


def _place(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _refusal(url: str, response: urllib3.BaseHTTPResponse) -> ProviderError:
    status, place = response.status, _place(url)
    read = b"" if status in FAULTS else response.read(MAX_ERROR_TEXT_BYTES, decode_content=True)
    text = read[:300].decode(errors="replace").strip()
    message = f"{place} answered {status}: {text}" if text else f"{place} answered {status}"
    if status == 429 or (status == 503 and response.headers.get("Retry-After")):
        return ThrottledError(message, retry_after_s=retry_after_s(response.headers))
    if status in FAULTS:
        return UnavailableError(message)
    if status in (401, 403):
        return AuthError(message)
    if status == 404:
        return NotFoundError(message)
    return RefusedError(message, status)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The wait in seconds that `Retry-After` asks for, at most MAX_RETRY_AFTER_S; None if it is missing or invalid.

    A date is relative to the answer's own `Date` header: both use the server's clock, and this machine's may be wrong.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    header = lowered.get("retry-after", "").strip()
    try:
        wait_s = float(header)
    except ValueError:
        until, now = _instant_s(header), _instant_s(lowered.get("date", ""))
        if until is None or now is None:
            return None
        wait_s = max(0.0, until - now)
    return min(wait_s, MAX_RETRY_AFTER_S) if wait_s >= 0 else None


def _instant_s(date: str) -> float | None:
    try:
        at = parsedate_to_datetime(date)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _require_whole(response: urllib3.BaseHTTPResponse, url: str) -> None:
    if response.length_remaining:
        raise CutOffError(f"{_place(url)}: the last {response.length_remaining} bytes of the answer are missing")


_CONNECTION = re.compile(r"^HTTPS?Connection\(.*?\): ")
"""The prefix of urllib3's messages: it repeats the host, which our message already names."""


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Convert urllib3's exceptions to provider errors."""
    from urllib3 import exceptions

    place = _place(url)
    try:
        yield
    except exceptions.HTTPError as error:
        cause = error.reason if isinstance(error, exceptions.MaxRetryError) and error.reason else error
        if isinstance(cause, exceptions.NewConnectionError):  # refused or unknown host; urllib3 counts it as a timeout
            raise UnavailableError(f"{place} cannot be reached: {_CONNECTION.sub('', str(cause))}") from error
        if isinstance(cause, exceptions.ReadTimeoutError | exceptions.ConnectTimeoutError):
            raise TimedOutError(f"{place} did not answer in time", hint="the next poll tries again") from error
        if isinstance(cause, exceptions.IncompleteRead | exceptions.ProtocolError | exceptions.DecodeError):
            raise CutOffError(f"{place}: the connection ended in the middle of the answer") from error
        raise UnavailableError(f"{place} cannot be reached: {cause}") from error
