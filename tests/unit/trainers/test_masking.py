"""The values of secrets in whatever form a program writes them, whole or in pieces."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
import urllib.parse
from collections.abc import Callable
from itertools import pairwise
from xml.sax import saxutils

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.process.masking import MAX_CHARACTERS, MIN_CHARACTERS, Mask, Stream, forms

KEY = 'corr/ect+horse="battery" 4711\u00e9'
PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nEFAASCBKcwggSjAgEAAoIBAQ\n-----END KEY-----\n"
QUOTES = 'it\'s <b>"R&D"</b> `$HOME`'
RAW = KEY.encode()

WRITTEN: dict[str, Callable[[str], str]] = {
    "plain": lambda value: value,
    "json": json.dumps,
    "json, as it is": lambda value: json.dumps(value, ensure_ascii=False),
    "json for javascript": lambda value: json.dumps(value).replace("/", "\\/"),
    "repr": lambda value: repr({"token": value}),
    "repr of bytes": lambda value: repr(value.encode()),
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 for urls": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
    "basic authentication": lambda value: base64.b64encode(b"me:" + value.encode()).decode(),
    "url": lambda value: f"https://me:{urllib.parse.quote(value, safe='')}@host",
    "path": urllib.parse.quote,
    "form": lambda value: urllib.parse.urlencode({"token": value}),
    "small percent": lambda value: re.sub("%..", lambda found: found[0].lower(), urllib.parse.quote(value, safe="")),
    "hexadecimal": lambda value: value.encode().hex(),
    "capital hexadecimal": lambda value: value.encode().hex().upper(),
    "json in json": lambda value: json.dumps(json.dumps({"token": value})),
    "json in json, as it is": lambda value: json.dumps(json.dumps([value], ensure_ascii=False), ensure_ascii=False),
    "json in json, half as it is": lambda value: json.dumps(json.dumps([value], ensure_ascii=False)),
    "repr of json": lambda value: repr(json.dumps([value])),
    "repr of bytes of json": lambda value: repr(json.dumps([value]).encode()),
    "json of repr": lambda value: json.dumps(repr({"token": value})),
    "repr of repr": lambda value: repr(repr(value)),
    "repr of more": lambda value: repr(f"it's {value}"),
    "repr of other quotes": lambda value: repr(f'"it" {value}'),
    "json of html": lambda value: json.dumps(html.escape(value)),
    "json in a web page": lambda value: (
        json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    ),
    "html": html.escape,
    "html text": lambda value: html.escape(value, quote=False),
    "markupsafe": lambda value: html.escape(value).replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
    "xml": lambda value: saxutils.escape(value, {"'": "&apos;", '"': "&quot;"}),
    "shlex": shlex.quote,
    "shell": lambda value: "'" + value.replace("'", "'\\''") + "'",
    "shell, in quotation marks": lambda value: '"' + re.sub(r'([\\"$`])', r"\\\1", value) + '"',
    "yaml": lambda value: "'" + value.replace("'", "''") + "'",
    "csv": lambda value: '"' + value.replace('"', '""') + '"',
    "javascript": lambda value: urllib.parse.quote(value, safe="!'()*"),
    "quote_plus": urllib.parse.quote_plus,
    "requests": lambda value: urllib.parse.quote(value, safe="!#$%&'()*+,/:;=?@[]~"),
}


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("value", [KEY, "hunter2", "p\u00e4ss w\u00f6rd", PEM.strip(), QUOTES, "C:\\new\\key"])
def test_a_value_is_masked_in_every_form_in_which_programs_write_it(form: str, value: str) -> None:
    mask = Mask({"TOKEN": value})
    written = WRITTEN[form](value)
    masked = mask.text(f"it is {written}, and so on")
    assert "[secret TOKEN]" in masked
    assert masked.endswith(", and so on")
    assert len(masked) < len("it is [secret TOKEN], and so on") + 24  # no more than what was written around it


@given(st.binary(max_size=20), st.binary(max_size=20), st.sampled_from([base64.b64encode, base64.urlsafe_b64encode]))
def test_of_a_value_in_base64_at_any_place_at_most_one_character_on_each_side_is_left(
    before: bytes, after: bytes, encode: Callable[[bytes], bytes]
) -> None:
    masked = Mask({"TOKEN": KEY}).data(encode(before + RAW + after))
    assert b"[secret TOKEN]" in masked
    left = len(masked) - len(b"[secret TOKEN]")
    assert left <= -(-len(before) * 8 // 6) + -(-len(after) * 8 // 6) + 4  # with what pads it


def test_the_lines_of_a_value_are_masked_each() -> None:
    text = "".join(f"log: {line}\n" for line in PEM.splitlines())
    assert Mask({"KEY": PEM}).text(text) == "log: [secret KEY]\n" * 4


def test_short_values_are_not_looked_for_and_say_nothing_of_themselves() -> None:
    short = "x" * (MIN_CHARACTERS - 1)
    assert forms(short) == forms("      ") == frozenset()
    assert Mask({"A": short, "B": "", "C": " \n"}).text(f"{short} and innocent text") == f"{short} and innocent text"


def test_bytes_that_are_no_text_are_masked_as_they_are_and_as_python_shows_them() -> None:
    value = b"\xff\xfe secret \x80".decode(errors="surrogateescape")
    mask = Mask({"BYTES": value})
    assert mask.data(b"<\xff\xfe secret \x80>") == b"<[secret BYTES]>"
    assert mask.text(f"<{value}>") == "<[secret BYTES]>"
    assert mask.text(f"{{'x': {value!r}}}") == "{'x': '[secret BYTES]'}"
    assert mask.text("\ud800 unpaired") == "\ud800 unpaired"


def test_the_longest_of_several_values_wins() -> None:
    assert Mask({"A": "tokentoken", "B": "tokentokentoken"}).text("tokentokentoken tokentoken") == (
        "[secret B] [secret A]"
    )


def one_by_one(values: dict[str, str], data: bytes) -> bytes:
    """What a mask does, said as simply as can be: the first place, there the longest form, then what follows it."""
    for at in range(len(data)):
        found = [value for value in values.values() if data.startswith(value.encode(), at)]
        if found:
            value = max(found, key=len)
            (name,) = (name for name in values if values[name] == value)
            return data[:at] + f"[secret {name}]".encode() + one_by_one(values, data[at + len(value) :])
    return data


@given(
    st.lists(st.sampled_from(["abcab", "ababc", "abcabcabd", "aaaaa", "aaaaaaab", "a", "b", "c", "\n"]), max_size=12)
)
def test_every_occurrence_is_found_as_if_each_form_were_looked_for_at_each_place(parts: list[str]) -> None:
    values = {"A": "abcab", "B": "abcabcabd", "C": "aaaaa", "D": "aaaaaaab"}
    data = "".join(parts).encode()
    assert Mask(values).data(data) == one_by_one(values, data)


def test_the_longest_value_that_is_taken_over_is_masked_as_well() -> None:
    long = "".join(f"{number:05}\"'<&\\\u00e9" for number in range(MAX_CHARACTERS // 11))
    assert Mask({"A": long}).text(f"<{json.dumps(json.dumps(long))}>") == '<"\\"[secret A]\\"">'


# As it comes


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


@given(
    st.lists(st.sampled_from([b"abcab", b"abcabcabd", b"abc", b"ab", b"c", b"d", b"\n", RAW, RAW[:7], b"secret"])),
    st.lists(st.integers(0, 10_000), max_size=12),
)
def test_it_makes_no_difference_in_which_pieces_output_comes(parts: list[bytes], cuts: list[int]) -> None:
    mask = Mask({"A": "abcab", "B": "abcabcabd", "KEY": KEY})
    data, out = b"".join(parts), list[bytes]()
    stream = Stream(mask, out.append)
    for piece in pieces(data, cuts):
        stream.feed(piece)
    stream.close()
    assert b"".join(out) == mask.data(data)


def test_what_cannot_be_a_value_is_given_out_at_once_and_what_can_is_held_back() -> None:
    out: list[bytes] = []
    stream = Stream(Mask({"A": "topsecret"}), out.append)
    for piece in (b"step 1\n", b"loss: tops", b"ail\ntopsec"):
        stream.feed(piece)
    assert b"".join(out) == b"step 1\nloss: topsail\n"
    stream.close()
    assert b"".join(out) == b"step 1\nloss: topsail\ntopsec"


def test_a_word_is_taken_out_and_reported_after_what_came_before_it() -> None:
    reported: list[object] = []
    stream = Stream(Mask({"A": "topsecret"}, words=(b"<now>",)), reported.append, lambda: reported.append("now"))
    stream.feed(b"one <no")
    stream.feed(b"w>two")
    stream.close()
    assert reported == [b"one ", "now", b"two"]
