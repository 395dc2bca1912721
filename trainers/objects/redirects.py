"""Redirects: a store's answer never leads our requests elsewhere, because they carry credentials."""

from __future__ import annotations

import urllib.request


class Stay(urllib.request.HTTPRedirectHandler):
    """For urllib.request.build_opener: a redirect is an HTTPError, as other refusals are."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""
