"""Authorizes actions: a token that is printed once, a cookie that a browser gets for it, and a proof in every form.

The cookie is not readable by scripts and is not sent from other sites. The proof (CSRF) is a digest of the token, in
each form; a request without it changes nothing. The message that a page shows after an action is sealed with the token,
so that a link from another site cannot make a page show a message.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

COOKIE = "tradewind_token"


def same(given: str, token: str) -> bool:
    """Whether a text is the token, in constant time."""
    return bool(token) and hmac.compare_digest(given.encode(), token.encode())


def proof_of(token: str) -> str:
    """The proof that forms carry."""
    return hmac.new(token.encode(), b"form", sha256).hexdigest()


def sealed(text: str, token: str) -> str:
    """The text, signed for `unsealed` with the same token."""
    return f"{hmac.new(token.encode(), f'said {text}'.encode(), sha256).hexdigest()}.{text}"


def unsealed(given: str, token: str) -> str:
    """The sealed text; empty if it is not sealed with this token."""
    _, _, text = given.partition(".")
    return text if token and hmac.compare_digest(given.encode(), sealed(text, token).encode()) else ""
