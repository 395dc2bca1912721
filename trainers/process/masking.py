"""Mask: removes the values of secrets from text and output, in the forms in which programs write them.

For each value, and each line of a multi-line value, these forms are masked:

- the value itself, and as quoted by JSON, Python (`repr`, `ascii`), HTML, XML, POSIX shells, YAML, SQL and CSV;
- any of these quoted once more by JSON or Python: JSON in JSON, the repr of a JSON text;
- percent-encoded, with the sets of safe characters that libraries use, in upper or lower case;
- base64, standard and URL-safe, with any number of bytes before and after it; hexadecimal without separators.

`[secret NAME]` replaces them. A value shorter than MIN_CHARACTERS is not masked: it would occur in other text, and
masking it there would reveal it. Other forms are not found: part of a value, a value with something in between (wrapped
lines, colour codes, separators), other encodings, three nested encodings, or anything computed from it.
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
"""The longest value, enforced where secrets are accepted: the forms to search for take about fifty times as much.
"""

_HEAD = MIN_CHARACTERS  # bytes that identify a candidate; no form is shorter
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
    """Masks the values of `secrets`, one or several per name.

    `words` are byte strings of at least MIN_CHARACTERS that are removed without a replacement. `forms_of` is `forms`,
    or a cached version of it. A text is scanned once, regardless of the number and length of the values.
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
        for form in sorted(self._names, key=len, reverse=True):  # longest first: one form may start with another
            self._with_head.setdefault(form[:_HEAD], []).append(form)
        self._cut_heads = {head[:length] for head in self._with_head for length in range(1, _HEAD)}
        columns = zip(*self._with_head, strict=True) if self._with_head else [()]
        # matches any form's byte at each position of its head: most of a text is skipped without comparing forms
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
        except UnicodeDecodeError:  # a binary value began in the middle of a character
            return masked.decode("utf-8", "replace")

    def data(self, data: bytes) -> bytes:
        """`data` without the values; `data` must not be a part of a longer output."""
        kept, at = list[bytes](), 0
        for begin, form in self.matches(data, 0):
            kept += (data[at:begin], self.instead(form))
            at = begin + len(form)
        return b"".join((*kept, data[at:])) if kept else data

    def instead(self, form: bytes) -> bytes:
        """The replacement for a form found by `matches`."""
        name = self._names[form]
        return b"" if name is None else f"[secret {name}]".encode()

    def matches(self, data: bytes, start: int) -> Iterator[tuple[int, bytes]]:
        """All occurrences from `start` on: position and form."""
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
        """The position of the first possible beginning of a form that reaches the end of `data`; its length if there is
        none.
        """
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
    """Masks output as it arrives, including values split between pieces: a possible beginning of a value is held back.

    At most the length of one value is held back. `met` is called for each of the mask's words, after the output before
    the word was passed on.
    """

    def __init__(self, mask: Mask, out: Callable[[bytes], None], met: Callable[[], None] = lambda: None) -> None:
        self._mask = mask
        self._out = out
        self._met = met
        self._held = b""

    def feed(self, data: bytes) -> None:
        """Process more output."""
        self._work(self._held + data, over=False)

    def close(self) -> None:
        """Process the rest: there is no more output."""
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
                    break  # the apparent beginning of a value was the end of another
            if at <= held_from:
                break
        self._give(data[at:held_from])
        self._held = data[held_from:]

    def _give(self, data: bytes) -> None:
        if data:
            self._out(data)


def forms(value: str) -> frozenset[bytes]:
    """The forms in which a value may be written; empty if it is too short to mask."""
    parts = {value, *value.splitlines(), *map(str.strip, value.splitlines())} | {value.strip()}
    return frozenset(form for part in parts if len(part.strip()) >= MIN_CHARACTERS for form in _forms(part))


def _forms(value: str) -> Iterator[bytes]:
    quoted = {value, *_as_literal(value), *_as_markup(value), *_as_word(value)}
    for text in quoted.union(*map(_as_literal, quoted)):
        yield text.encode("utf-8", "surrogatepass")
    try:
        raw = value.encode("utf-8", "surrogateescape")  # as in the environment, even if it is not valid text
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
            begin = -(-8 * before // 6)  # these characters also depend on what precedes the value
            yield whole[begin:]
            yield whole.rstrip(b"=")[begin:]
            yield whole[begin : 8 * (before + len(raw)) // 6]  # without the character that depends on what follows


def _as_literal(value: str) -> Iterator[str]:
    """The value as part of a JSON string, including JSON for web pages, or of a Python string."""
    for text in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        yield text
        yield text.replace("/", "\\/")
        yield text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    for shown in (repr, ascii):
        yield from _inside_quotes(shown(value + "'\"")[1:])


def _inside_quotes(shown: str) -> tuple[str, str]:
    """Both forms in which Python writes apostrophes, for a value followed by `'"`, which is removed: a larger text may
    have other quotes than the value alone.
    """
    escaped = shown[:-4]
    return escaped, escaped.replace("\\'", "'")


def _as_markup(value: str) -> Iterator[str]:
    """The value as part of an HTML or XML document."""
    text = html.escape(value, quote=False)
    for quotation_mark, apostrophe in _AS_MARKUP:
        yield text.replace('"', quotation_mark).replace("'", apostrophe)


def _as_word(value: str) -> Iterator[str]:
    """The value in single or double quotes of a shell (shlex.quote, `set -x`), YAML, SQL or CSV."""
    for apostrophe in ("'\"'\"'", "'\\''", "''"):
        yield value.replace("'", apostrophe)
    yield value.replace('"', '""')
    yield re.sub(r'([\\"$`])', r"\\\1", value)


def _one_of(column: Iterable[int]) -> bytes:
    """A pattern that matches any of these bytes; it matches nothing if there are none."""
    return b"[" + b"".join(b"\\x%02x" % byte for byte in sorted(set(column))) + b"]" if column else b"(?!)"
