"""Mask: text and output without the values of secrets, in the forms in which programs write them.

Of each value, and of each line of a value of several lines, these are looked for:

- the value as it is, as JSON, Python (`repr`, `ascii`), HTML, XML, POSIX shells, YAML, SQL and CSV quote it;
- JSON and Python once more around any of these: JSON in JSON, the repr of a JSON text;
- percent-encoded, with the sets of safe characters that libraries use, in capitals or small letters;
- base64, standard and URL-safe, with any number of bytes before and after it; hexadecimal without separators.

`[secret NAME]` stands in their place. A value of fewer than MIN_CHARACTERS is not looked for: it would be found in
innocent text, and tell by that what it is. Nothing else is found: a part of a value, a value with anything in between
(line breaks of a wrapped text, colour codes, separators), other encodings, three of them in each other, what is
computed from it.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

MIN_CHARACTERS = 5
MAX_CHARACTERS = 16 << 10
"""Of a value, as whoever takes values over holds it to: what is looked for is some fifty times as large."""

_HEAD = MIN_CHARACTERS  # bytes by which a form is looked for; none is shorter
_SAFE_IN_PERCENT = ("", "/", "!'()*", "!#$%&'()*+,/:;=?@[]~")  # all, urllib, JavaScript, requests
_AS_MARKUP = (  # quotation marks and apostrophes of: text, html.escape, markupsafe, attributes of XML
    ('"', "'"),
    ("&quot;", "&#x27;"),
    ("&#34;", "&#39;"),
    ("&quot;", "'"),
    ("&quot;", "&#39;"),
    ("&quot;", "&apos;"),
)


class Mask:
    """Knows the values of `secrets` by name, of each one or several. `words` are further byte strings of at least
    MIN_CHARACTERS to be taken out, each with nothing in its place. `forms_of` is `forms`, or remembers what it gave.

    A text is gone through once, however many and long the values are.
    """

    def __init__(
        self,
        secrets: Mapping[str, str | Iterable[str]],
        *,
        words: tuple[bytes, ...] = (),
        forms_of: Callable[[str], Iterable[bytes]] | None = None,
    ) -> None:
        found: dict[bytes, str] = {}
        for name, given in secrets.items():
            for value in [given] if isinstance(given, str) else given:
                found |= dict.fromkeys((forms_of or forms)(value), name)
        self._names: dict[bytes, str | None] = {**dict.fromkeys(words), **found}
        self._with_head: dict[bytes, list[bytes]] = {}
        for form in sorted(self._names, key=len, reverse=True):  # the longest first: one may begin another
            self._with_head.setdefault(form[:_HEAD], []).append(form)
        self._cut_heads = {head[:length] for head in self._with_head for length in range(1, _HEAD)}
        columns = zip(*self._with_head, strict=True) if self._with_head else [()]
        # a byte of each form at every place of its head: most of a text is passed over without asking for a form
        self._maybe = re.compile(b"".join(map(_one_of, columns)), re.DOTALL)
        self.longest_bytes = max(map(len, self._names), default=0)

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
        kept, at = list[bytes](), 0
        for begin, form in self.matches(data, 0):
            kept += (data[at:begin], self.instead(form))
            at = begin + len(form)
        return b"".join((*kept, data[at:])) if kept else data

    def instead(self, form: bytes) -> bytes:
        """What stands in the place of one of `matches`."""
        name = self._names[form]
        return b"" if name is None else f"[secret {name}]".encode()

    def matches(self, data: bytes, start: int) -> Iterator[tuple[int, bytes]]:
        """Every occurrence from `start` on: where it begins, and in which form."""
        at = start
        while (maybe := self._maybe.search(data, at)) is not None:
            begin = maybe.start()
            at = begin + 1
            for form in self._with_head.get(maybe[0], ()):
                if data.startswith(form, begin):
                    yield begin, form
                    at = begin + len(form)
                    break

    def unfinished(self, data: bytes, start: int) -> int:
        """Where the first beginning of a form lies that reaches the end of `data`; its length when there is none."""
        at = max(start, len(data) - self.longest_bytes + 1)
        while (maybe := self._maybe.search(data, at)) is not None:
            begin = maybe.start()
            at = begin + 1
            if (possible := self._with_head.get(maybe[0])) is not None:
                rest = data[begin:]
                if any(len(form) > len(rest) and form.startswith(rest) for form in possible):
                    return begin
        for begin in range(max(start, len(data) - _HEAD + 1), len(data)):
            if data[begin:] in self._cut_heads:
                return begin
        return len(data)


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
            for begin, form in mask.matches(data, at):
                if begin >= held_from:
                    break
                self._give(data[at:begin])
                instead = mask.instead(form)
                self._give(instead) if instead else self._met()
                at = begin + len(form)
                if at > held_from:
                    break  # what seemed to begin a value was the end of another
            if at <= held_from:
                break
        self._give(data[at:held_from])
        self._held = data[held_from:]

    def _give(self, data: bytes) -> None:
        if data:
            self._out(data)


def forms(value: str) -> frozenset[bytes]:
    """How the value may be written. Empty for one that is too short to be looked for."""
    parts = {value, *value.splitlines(), *map(str.strip, value.splitlines())} | {value.strip()}
    return frozenset(form for part in parts if len(part.strip()) >= MIN_CHARACTERS for form in _forms(part))


def _forms(value: str) -> Iterator[bytes]:
    quoted = {value, *_as_literal(value), *_as_markup(value), *_as_word(value)}
    for text in quoted.union(*map(_as_literal, quoted)):
        yield text.encode("utf-8", "surrogatepass")
    try:
        raw = value.encode("utf-8", "surrogateescape")  # as the environment holds it, also where it is no text
    except UnicodeEncodeError:
        raw = value.encode("utf-8", "surrogatepass")
    yield raw
    for text in _inside_quotes(repr(raw + b"'\"")[2:]):
        yield text.encode()
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    for percent in (*(quote(raw, safe=safe) for safe in _SAFE_IN_PERCENT), quote_plus(raw)):
        yield percent.encode()
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), percent).encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            whole = encode(b"\0" * before + raw)
            begin = -(-8 * before // 6)  # characters that what stands before the value decides, too
            yield whole[begin:]
            yield whole.rstrip(b"=")[begin:]
            yield whole[begin : 8 * (before + len(raw)) // 6]  # without one that what follows decides, too


def _as_literal(value: str) -> Iterator[str]:
    """Inside a string of JSON, also as for web pages, or of Python."""
    for text in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        yield text
        yield text.replace("/", "\\/")
        yield text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    for shown in (repr, ascii):
        yield from _inside_quotes(shown(value + "'\"")[1:])


def _inside_quotes(shown: str) -> tuple[str, str]:
    """Both ways in which Python shows apostrophes, of something with `'"` at its end, which is cut off: around all
    there may be other quotes than around the value alone."""
    escaped = shown[:-4]
    return escaped, escaped.replace("\\'", "'")


def _as_markup(value: str) -> Iterator[str]:
    """In a page or a document of HTML or XML."""
    text = html.escape(value, quote=False)
    for quotation_mark, apostrophe in _AS_MARKUP:
        yield text.replace('"', quotation_mark).replace("'", apostrophe)


def _as_word(value: str) -> Iterator[str]:
    """Between apostrophes or quotation marks of a shell (shlex.quote, `set -x`), of YAML, SQL or CSV."""
    for apostrophe in ("'\"'\"'", "'\\''", "''"):
        yield value.replace("'", apostrophe)
    yield value.replace('"', '""')
    yield re.sub(r'([\\"$`])', r"\\\1", value)


def _one_of(column: Iterable[int]) -> bytes:
    """A pattern for any of these bytes, for none if there are none."""
    return b"[" + b"".join(b"\\x%02x" % byte for byte in sorted(set(column))) + b"]" if column else b"(?!)"
