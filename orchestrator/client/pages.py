"""Pages: a listing read to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar


class Page(Protocol):
    """What a listing returns."""

    @property
    def next_cursor(self) -> str | None:
        """Of the page after it; None: this is the last one."""
        ...


V = TypeVar("V", bound=Page)
A = ParamSpec("A")


def pages(listing: Callable[A, V], *args: A.args, **kwargs: A.kwargs) -> Iterator[V]:
    """Every page of a listing, such as `client.jobs.list`, called with these arguments. Raises what it raises.

    Every row that was there at the first page comes exactly once, whatever is added meanwhile; a row added since comes
    once or not at all.
    """
    ask: Callable[..., Any] = partial(listing, *args, **kwargs)
    page: V = ask()
    yield page
    while page.next_cursor is not None:
        page = ask(cursor=page.next_cursor)
        yield page
