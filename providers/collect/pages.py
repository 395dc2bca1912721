"""The pages of a list that a server sends: they end, or the list is an error."""

from __future__ import annotations

from providers.errors import FormatError

MOST_PAGES = 2_000
"""Of hundreds of rows each: several times what the longest list of any cloud has."""


class Pages:
    """The links of one list from page to page: tokens or addresses. `what` names the list in an error."""

    def __init__(self, what: str, most: int = MOST_PAGES) -> None:
        self._what = what
        self._most = most
        self._seen: set[str] = set()

    def follow(self, link: str) -> str:
        """The link, if it leads on. Raises FormatError for one that was followed before: the list is a circle, though
        it may be a wide one; and for one too many."""
        if link in self._seen:
            raise FormatError(f"{self._what} has no end: a page leads back to an earlier one ({link[:60]!r})")
        self._seen.add(link)
        if len(self._seen) >= self._most:
            raise FormatError(f"{self._what} has more than {self._most} pages")
        return link
