"""Mask: text and output without the values of secrets, in the forms in which programs write them.

Plain, base64 (standard and URL-safe, at every alignment), percent-encoded, JSON- and Python-escaped, hexadecimal; and
the lines of a value of several lines. `[secret NAME]` stands in their place. A value of fewer than MIN_CHARACTERS is
not looked for: it would be found in innocent text, and tell by that what it is. What a program computes from a value
(a digest, a part of it, a form not listed) cannot be known here. Must not know: who writes, where to.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

MIN_CHARACTERS = 5
_HEAD = 4  # bytes of a form by which its beginning is looked for


class Mask:
    """Knows the values of `secrets` by name, of each one or several. `words` are further byte strings to be taken out,
    each with nothing in its place."""

    def __init__(self, secrets: Mapping[str, str | Iterable[str]], *, words: tuple[bytes, ...] = ()) -> None:
        found: dict[bytes, str] = {}
        for name, given in secrets.items():
            for value in [given] if isinstance(given, str) else given:
                found |= dict.fromkeys(forms(value), name)
        self._names: dict[bytes, str | None] = {**dict.fromkeys(words), **found}
        self._forms = sorted(self._names, key=len, reverse=True)  # the longest first: one may begin another
        self._pattern = re.compile(b"|".join(map(re.escape, self._forms)))
        self.longest_bytes = max(map(len, self._forms), default=0)

    def text(self, text: str) -> str:
        """`text` without the values."""
        raw = text.encode("utf-8", "surrogatepass")
        masked = self.data(raw)
        if masked == raw:
            return text
        try:
            return masked.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:  # a value that is no text began in the middle of a character
            return masked.decode("utf-8", "replace")

    def data(self, data: bytes) -> bytes:
        """The same for bytes that are all there is."""
        return self._pattern.sub(self.instead, data) if self._occurs(data) else data

    def _occurs(self, data: bytes) -> bool:
        return any(form in data for form in self._forms)  # far quicker than the pattern, which then has to be tried

    def instead(self, found: re.Match[bytes]) -> bytes:
        """What stands in the place of one of `matches`."""
        name = self._names[found[0]]
        return b"" if name is None else f"[secret {name}]".encode()

    def matches(self, data: bytes, start: int) -> Iterator[re.Match[bytes]]:
        """Every occurrence from `start` on."""
        return self._pattern.finditer(data, start) if self._occurs(data) else iter(())

    def unfinished(self, data: bytes, start: int) -> int:
        """Where the first beginning of a form lies that reaches the end of `data`; its length when there is none."""
        first = len(data)
        for form in self._forms:
            at = max(start, len(data) - len(form) + 1)
            while 0 <= (at := data.find(form[:_HEAD], at, first + _HEAD)) < first:
                if form.startswith(data[at:]):
                    first = at
                    break
                at += 1
            for at in range(max(start, len(data) - _HEAD + 1), first):
                if form.startswith(data[at:]):
                    first = at
                    break
        return first


class Stream:
    """Masks output as it comes, also a value that comes in pieces: what may be the beginning of one is held back.

    At most one value's length of it. `met` is told of each of the mask's words, once what came before is given out.
    """

    def __init__(self, mask: Mask, out: Callable[[bytes], None], met: Callable[[], None] = lambda: None) -> None:
        self._mask = mask
        self._out = out
        self._met = met
        self._held = b""

    def feed(self, data: bytes) -> None:
        """More output."""
        self._work(self._held + data, over=False)

    def close(self) -> None:
        """There is no more."""
        self._work(self._held, over=True)

    def _work(self, data: bytes, *, over: bool) -> None:
        mask, at = self._mask, 0
        while True:
            held_from = len(data) if over else mask.unfinished(data, at)
            for found in mask.matches(data, at):
                if found.start() >= held_from:
                    break
                self._give(data[at : found.start()])
                instead = mask.instead(found)
                self._give(instead) if instead else self._met()
                at = found.end()
                if at > held_from:
                    break  # what seemed to begin a value was the end of another
            if at <= held_from:
                break
        self._give(data[at:held_from])
        self._held = data[held_from:]

    def _give(self, data: bytes) -> None:
        if data:
            self._out(data)


def forms(value: str) -> set[bytes]:
    """How the value may be written. Empty for one that is too short to be looked for."""
    parts = {value, *value.splitlines(), *map(str.strip, value.splitlines())} | {value.strip()}
    return {form for part in parts if len(part.strip()) >= MIN_CHARACTERS for form in _forms(part)}


def _forms(value: str) -> Iterator[bytes]:
    yield value.encode("utf-8", "surrogatepass")
    try:
        raw = value.encode("utf-8", "surrogateescape")  # as the environment holds it, also where it is no text
    except UnicodeEncodeError:
        raw = value.encode("utf-8", "surrogatepass")
    yield raw
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    for text in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], ascii(value)[1:-1]):
        yield text.encode("utf-8", "surrogatepass")
        yield text.replace("/", "\\/").encode("utf-8", "surrogatepass")
    yield repr(value)[1:-1].encode("utf-8", "surrogatepass")
    yield repr(raw)[2:-1].encode()
    for quoted in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield quoted.encode()
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quoted).encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            whole = encode(b"\0" * before + raw)
            begin = -(-8 * before // 6)  # characters that what stands before the value decides, too
            yield whole[begin:]
            yield whole.rstrip(b"=")[begin:]
            yield whole[begin : 8 * (before + len(raw)) // 6]  # without one that what follows decides, too
