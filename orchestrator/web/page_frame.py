"""What every page needs in addition to its figures: navigation, theme, notes and the addresses of its JSON and CSV."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlencode

from orchestrator.reports.html.render import STYLE

STATIC = Path(__file__).parent / "static"
PAGES = (
    ("/", "Overview"),
    ("/jobs", "Jobs"),
    ("/costs", "Costs"),
    ("/market", "Market"),
    ("/migrations", "Migrations"),
    ("/plans", "Plans"),
    ("/policies", "Policies"),
    ("/health", "Health"),
)


@dataclass(frozen=True)
class PageFrame:
    """The frame of one page. `here` is the address of its navigation entry, `path` the address of the page."""

    here: str
    path: str
    at_ms: int
    theme: str = ""
    simulated: str = ""
    message: str = ""
    command: str = ""
    live: bool = False
    twin: Callable[[str], str] | None = None
    inline_style: str = ""
    pages: tuple[tuple[str, str], ...] = PAGES

    @staticmethod
    def asset(name: str) -> str:
        """The address of a file, which changes with its content so that browsers may keep it."""
        return f"/static/{name}?v={_digest(name)}"


def static_file(name: str) -> Path:
    """The path of a static file."""
    return STYLE if name == STYLE.name else STATIC / name


_digests: dict[str, str] = {}


def _digest(name: str) -> str:
    if name not in _digests:
        _digests[name] = sha256(static_file(name).read_bytes()).hexdigest()[:12]
    return _digests[name]


def address(path: str, **given: str | int | None) -> str:
    """A path with those arguments that are not None."""
    kept = {name: value for name, value in given.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path


def command(*words: str, **options: str | None) -> str:
    """A command that prints the same figures, quoted for a shell; options without a value are omitted."""
    given = [part for name, value in options.items() if value for part in (f"--{name}", value)]
    return shlex.join(["tradewind", *words, *given])
