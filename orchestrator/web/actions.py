"""Who may act: a token that is printed once, a cookie that a browser gets for it, and a proof on every form.

The cookie is not readable by scripts and is not sent from other sites. The proof (CSRF) is a digest of the token, in
each form; a request without it changes nothing.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

COOKIE = "tradewind_token"


def same(given: str, token: str) -> bool:
    """Whether a text is the token, in constant time."""
    return bool(token) and hmac.compare_digest(given.encode(), token.encode())


def proof_of(token: str) -> str:
    """What a form carries."""
    return hmac.new(token.encode(), b"form", sha256).hexdigest()
