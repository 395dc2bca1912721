"""Escaped HTML elements: the only module that writes tags.

Job names, projects and messages are untrusted text: they reach a page only through `element` or `text`, which show
hidden characters as escapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from orchestrator.formats.hidden import visible


class Html(str):
    """A string that is already markup."""

    __slots__ = ()


def text(value: object) -> Html:
    """A value as escaped text; Html unchanged."""
    return value if isinstance(value, Html) else Html(_escaped(str(value)))


def element(name: str, *content: object, **attributes: object) -> Html:
    """`element("a", "x", class_="y")` -> `<a class="y">x</a>`. Underscores become dashes, None is omitted."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(_attribute(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>{join(content)}</{name}>")


def join(parts: Iterable[object]) -> Html:
    """Concatenates parts, escaping text."""
    return Html("".join(text(part) for part in parts))


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Sequence[int] = (),
    foot: Iterable[Sequence[object]] = (),
) -> Html:
    """A table with a caption and scoped headers. The first column is the row header; those in `numbers` are
    right-aligned."""

    def row(cells: Sequence[object], scope: str) -> Html:
        made = [
            element(
                "th" if i == 0 else "td", cell, scope=scope if i == 0 else None, class_="n" if i in numbers else None
            )
            for i, cell in enumerate(cells)
        ]
        return element("tr", *made)

    titles = [element("th", h, scope="col", class_="n" if i in numbers else None) for i, h in enumerate(head)]
    body = element("tbody", *(row(cells, "row") for cells in rows))
    ends = [row(cells, "row") for cells in foot]
    end = element("tfoot", *ends) if ends else ""
    made = element("table", element("caption", caption), element("thead", element("tr", *titles)), body, end)
    return element("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _escaped(plain: str) -> str:
    return escape(visible(plain, "\t\r\n"), quote=True)


def _attribute(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
