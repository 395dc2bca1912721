"""Follows the pages of a list and reports an error if they do not end."""

from __future__ import annotations

from providers.errors import FormatError

MOST_PAGES = 2_000
"""Pages have hundreds of rows each: this is several times the longest list of any cloud."""


class Pages:
    """The page links of one list (tokens or addresses). `what` names the list in errors."""

    def __init__(self, what: str, most: int = MOST_PAGES) -> None:
        self._what = what
        self._most = most
        self._seen: set[str] = set()

    def follow(self, link: str) -> str:
        """Returns the link if it is new. Raises FormatError if it was followed before (a loop) or there are too many
        pages.
        """
        if link in self._seen:
            raise FormatError(f"{self._what} does not end: a page links back to an earlier one ({link[:60]!r})")
        self._seen.add(link)
        if len(self._seen) >= self._most:
            raise FormatError(f"{self._what} has more than {self._most} pages")
        return link
