"""Units, colour and terminal widths.

Text from users, jobs and feeds is made safe here: control characters could rewrite the screen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import category, east_asian_width

from orchestrator.formats import readable
from orchestrator.formats.hidden import HIDDEN, visible
from orchestrator.formats.readable import LAST_MS, iso
from orchestrator.model import Estimate
from providers.money import about_usd, format_usd
from providers.offer import OfferId, short_zone

if TYPE_CHECKING:
    from orchestrator.services.views import JobView

SIMULATED = "simulated"
NO_PROVIDER = "no provider (see docs/providers.md)"
FOLDED_INDENT = 4
COMMAND = ": tradewind "
_COMMAND_WORD = COMMAND.removeprefix(": ")
_PASTED = re.compile(r"(?:^|(?<=: )|(?<=, then ))tradewind (?:[^;]*; |[^;]*)|(?<= )\(tradewind [^;)]*\)\S* ?")
_NEXT_COMMAND = re.compile(r"(?<=, then) (?=tradewind )")
_BETWEEN_WORDS = re.compile(r"(?<!\d) | (?!(?:s|min|h|d|days|years|%|[kMGT]?B)(?!\w))")
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_PAINT = re.compile(f"(\x1b\\[(?:0|{'|'.join(_CODES.values())})m)")  # the only escape sequences that are sent
_STATES = {
    "running": "green",
    "finished": "green",
    "ok": "green",
    "failed": "red",
    "fail": "red",
    "cancelled": "yellow",
    "paused": "yellow",
    "warn": "yellow",
    "migrating": "cyan",
    "starting": "cyan",
}


@dataclass(frozen=True, slots=True)
class Screen:
    """The target of text: whether it shows colours, its columns (None: unlimited), and the requested detail: all
    columns (`wide`), all reasons (`why`). `command` is the command as typed, for repeating it; `file` is the given job
    file, quoted for a shell."""

    color: bool = False
    width: int | None = None
    height: int | None = None
    wide: bool = False
    why: bool = False
    command: str = ""
    file: str = ""

    @property
    def limit(self) -> int | None:
        """The most columns of a line; `--wide` removes the limit."""
        return None if self.wide else self.width

    def __call__(self, text: str, style: str) -> str:
        """`text` in `style`, or unchanged on a screen without colours. Empty text stays empty."""
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.color and text else text

    def state(self, text: str, state: str | None = None) -> str:
        """A word in the colour of a state; the colour is never the only sign of the state."""
        style = _STATES.get(state if state is not None else text.strip())
        return self(text, style) if style is not None else text


def clean(text: str) -> str:
    """`text` without control characters, on one line."""
    return "".join(" " if category(c) in HIDDEN else c for c in text)


def clipped(text: str, width: int | None) -> str:
    """`text`, cut at a word and ended with dots if it is wider than `width`."""
    if width is None or width_of(text) <= width:
        return text
    return f"{folded(text, width - 4)[0]} ..."


def shown(text: str) -> str:
    """Like `visible`, for several lines that may have our colours; applied last to all text for people."""
    if text.isprintable():
        return text
    parts = _PAINT.split(text)
    return "".join(part if index % 2 else visible(part, "\t\n") for index, part in enumerate(parts))


def width_of(text: str) -> int:
    """Columns that `text` takes on a terminal; our colours take none."""
    plain = _PAINT.sub("", text)
    return sum(2 if east_asian_width(c) in "WF" else 0 if category(c) == "Mn" else 1 for c in plain)


def folded(text: str, width: int | None) -> list[str]:
    """`text` wrapped at spaces to `width` columns. A longer word stays whole, and so does a command after a colon,
    after `then` or in brackets, so that it can be pasted. Each of several commands (`A, then B`) may begin a line."""
    if width is None or width_of(text) <= width:
        return [text]
    lines: list[str] = []
    for word in _words(text):
        if lines and width_of(lines[-1]) + 1 + width_of(word) <= width:
            lines[-1] += f" {word}"
        elif word:
            lines.append(word)
    return lines


def longest_word(text: str) -> int:
    """Columns of the longest word; commands are ignored, as they may be wider than the screen."""
    return max(
        (width_of(word) for word in _words(text) if not word.removeprefix("(").startswith(_COMMAND_WORD)), default=0
    )


def _words(text: str) -> Iterator[str]:
    """The words of `text`; a command counts as one word, and so does a number with its unit."""
    prose = 0
    for command in _PASTED.finditer(text):
        if between := text[prose : max(command.start() - 1, 0)]:
            yield from _BETWEEN_WORDS.split(between)
        yield from _NEXT_COMMAND.split(command[0].removesuffix(" "))
        prose = command.end()
    if prose == 0 or prose < len(text):
        yield from _BETWEEN_WORDS.split(text[prose:])


def fitted(text: str, width: int | None) -> str:
    """Several lines, each wrapped at spaces, with continuation lines indented by four columns more. A command at the
    end of a line is never wrapped, so that it can be pasted."""
    if width is None:
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        if width_of(line) > width and COMMAND in line:
            head, _, command = line.rpartition(COMMAND)
            commands = folded(f"{_COMMAND_WORD}{command}", width - 2)
            lines += [*fitted(f"{head}:", width).split("\n"), *(f"  {each}" for each in commands)]
            continue
        bare = line.lstrip(" ")
        indent = " " * (len(line) - len(bare))
        if width_of(line) <= width:
            lines.append(line)
            continue
        first, *rest = folded(bare, width - len(indent) - FOLDED_INDENT)
        lines += [indent + first, *(f"{indent}{' ' * FOLDED_INDENT}{each}" for each in rest)]
    return "\n".join(lines)


def rows(text: str, width: int | None) -> int:
    """Rows that `text` takes on a terminal of `width` columns, where wider lines continue in the next row."""
    return sum(1 if width is None else max(1, -(-width_of(line) // width)) for line in text.split("\n"))


def money(nano_usd: int | None, places: int = 2) -> str:
    """An amount in US dollars with `places` decimals; "-" for None."""
    return "-" if nano_usd is None else format_usd(nano_usd, places)


def amount(nano_usd: int | None) -> str:
    """An amount that need not be exact: `$12.29`, below a dollar `$0.1365`."""
    return "-" if nano_usd is None else about_usd(nano_usd)


def budget_amount(nano_usd: int | None) -> str:
    """A configured amount: like `amount`, but with as many decimals as needed, so that it is never rounded."""
    if nano_usd is None:
        return "-"
    return max(amount(nano_usd), format_usd(nano_usd, 9).rstrip("0"), key=len)


def counted(jobs: int) -> str:
    """`1 job`, `12 jobs`."""
    return "1 job" if jobs == 1 else f"{jobs} jobs"


def rate(nano_usd_per_hour: int | None) -> str:
    """`$1.2100/h`."""
    return "-" if nano_usd_per_hour is None else f"{format_usd(nano_usd_per_hour, 4)}/h"


def span(seconds: float | None) -> str:
    """A duration as in sentences; "-" for None."""
    return "-" if seconds is None else readable.span(seconds)


def between(low: str, high: str) -> str:
    """The interval as `low to high`; "" if both texts are equal."""
    return "" if low == high else f"{low} to {high}"


def likely(interval: str) -> str:
    """The text after a figure that lies in this interval with 90% probability; "" without an interval."""
    return f" (90%: {interval})" if interval else ""


def finish_range(low_s: float, high_s: float, left_s: float | None) -> str:
    """The time to finish, from the 5th to the 95th percentile (seconds). `left_s` is the time until the deadline (None:
    no deadline). If the 95th percentile is the deadline, the job may choose to wait for spot capacity until then, so
    the text says that instead of a duration. "" if both have the same text."""
    if left_s is not None and abs(high_s - left_s) < 1:
        return f"{span(low_s)} or more, as it may wait until its deadline"
    return between(span(low_s), span(high_s))


def instant(at_ms: int | None) -> str:
    """`2026-11-21 10:03:26 UTC`."""
    if at_ms is None:
        return "-"
    return "after the year 9999" if at_ms > LAST_MS else f"{iso(at_ms)[:19].replace('T', ' ')} UTC"


def moment(at_ms: int) -> str:
    """`11-21 10:03:26`, for columns."""
    return iso(at_ms)[5:19].replace("T", " ")


def number(value: float | None, digits: int = 4) -> str:
    """A number with `digits` significant digits, without an exponent if it is large; "-" for None."""
    if value is None:
        return "-"
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if 10**digits <= abs(rounded) < 1e15 else f"{value:.{digits}g}"


def scaled(value: float, unit: str) -> str:
    """A value with three digits and a metric prefix: `10.8 kB`, `26 MB`, `5.68 TFLOP`."""
    for prefix in ("", "k", "M", "G", "T"):
        if float(f"{value:.3g}") < 1000:
            return f"{value:.3g} {prefix}{unit}"
        value /= 1000
    return f"{value:,.0f} P{unit}"


def ways_to_know(file: str) -> str:
    """How to get from ratios to a forecast."""
    return f"measure a step: tradewind profile {file or 'FILE'}; or add `expected:` to the job file"


def where(offer_id: str) -> str:
    """`provider/zone` of an offer, or its region if it has no zone."""
    return short_zone(offer_id)


def machine(offer_id: str) -> str:
    """The provider's name for the machine of an offer."""
    return OfferId.parse(offer_id).instance_type


def capacity(offer_id: str) -> str:
    """`spot` or `on-demand`."""
    return OfferId.parse(offer_id).capacity_type.replace("_", "-")


def ratio(value: Estimate | None) -> str:
    """`0.42 x A100-80GB`: a speed relative to a reference machine."""
    return "-" if value is None else f"{value.value:.2g} x {value.provenance}"


def progress(job: JobView) -> str:
    """`1200/20000 (6%)`; for a finished job that did not count all its steps, `0/500 (finished)`."""
    if not job.total_steps:
        return str(job.step)
    uncounted = job.state == "finished" and job.step < job.total_steps
    share = job.state if uncounted else job.percent_done
    return f"{job.step}/{job.total_steps} ({share})"


def note_simulated(simulated: bool, what: str = "prices and costs") -> str:
    """The note below simulated figures; empty if nothing is simulated."""
    return f"{what} are {SIMULATED}: a market on this machine, no real money" if simulated else ""


def lacks_secrets(names: Sequence[str]) -> str:
    """The note below a plan whose jobs need secrets that this environment lacks; otherwise empty."""
    return f"to submit, export secrets that are missing or empty here: {', '.join(names)}" if names else ""


def next_page(command: str, cursor: str | None, what: str = "next page") -> str:
    """The command that continues a listing, as a line; empty on the last page."""
    return f"{what}: {again(command, '--cursor', cursor)}" if command and cursor is not None else ""


def again(command: str, option: str, value: int | str) -> str:
    """A command with an option set, replacing its previous value."""
    bare = re.sub(rf" {option}[= ]\S+", "", command)
    return f"{bare} {option} {value}"


def blocks(*parts: str) -> str:
    """Parts below each other; empty parts are left out."""
    return "\n".join(part for part in parts if part)
