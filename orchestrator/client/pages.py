"""Pages: reads a listing to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar


class Page(Protocol):
    """The result of a listing."""

    @property
    def next_cursor(self) -> str | None:
        """The cursor of the next page; None on the last page."""
        ...


V = TypeVar("V", bound=Page)
A = ParamSpec("A")


def pages(listing: Callable[A, V], *args: A.args, **kwargs: A.kwargs) -> Iterator[V]:
    """All pages of a listing, such as `client.jobs.list`, called with these arguments. Raises the listing's errors.

    Every row that exists when the first page is read comes exactly once, even if rows are added; an added row comes
    once or not at all.
    """
    ask: Callable[..., Any] = partial(listing, *args, **kwargs)
    page: V = ask()
    yield page
    while page.next_cursor is not None:
        page = ask(cursor=page.next_cursor)
        yield page
