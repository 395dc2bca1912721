"""Redirects: requests do not follow a store's redirects, because they carry credentials."""

from __future__ import annotations

import urllib.request


class Stay(urllib.request.HTTPRedirectHandler):
    """For urllib.request.build_opener: a redirect is an HTTPError, like other refusals."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""
