"""The errors that all providers share.

ProviderError
 +- CapacityError      no such machine available now; another zone, type or time may have one
 +- QuotaError         the account's limit is reached
 +- PriceError         the spot price exceeds the requested maximum
 +- ThrottledError     too many calls; repeat the same call later
 +- AuthError          credentials are missing, expired or not sufficient
 |   +- NoCredentialsError       none were found
 |   +- ExpiredCredentialsError  they were valid and have expired
 |   +- PermissionDeniedError    they are valid but lack a permission; names the action and the policy that grants it
 |   +- ClockSkewError           this machine's clock differs too much from the provider's
 +- RegionDisabledError  the account has not enabled this region
 +- NotTogetherError   offers cannot be requested together: request one at a time
 +- ConflictError      the token was used before for a different request
 +- NotFoundError      no such instance, offer or provider
 +- SetupError         a library or local file that the provider needs is missing or damaged; nothing was sent
 +- UnavailableError   no answer, or a fault of the provider; the call MAY have taken effect
 |   +- TimedOutError            no answer in time
 |   +- CutOffError              the connection ended in the middle of an answer
 +- FormatError        an answer or file in an unknown format: none of it can be trusted

`scope` says what the error applies to, so that a caller knows what to avoid.
"""

from __future__ import annotations

from typing import Literal

Scope = Literal["request", "zone", "region", "cloud", "account"]
MAX_RETRY_AFTER_S = 6 * 3600.0
"""Upper limit for the wait that one answer can ask for: prices older than this are not current."""


class ProviderError(Exception):
    """Base of all provider errors. `hint` is the remedy in one sentence; `scope` is what the error applies to.

    `retry_after_s` is the wait that the provider asked for, limited to 0..MAX_RETRY_AFTER_S; None if it gave none or an
    invalid one. `retryable`: the same call may succeed later.
    """

    scope: Scope = "request"
    retryable = False

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        scope: Scope | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.hint = hint
        valid = retry_after_s is not None and retry_after_s >= 0  # False for NaN, which min() would let through
        self.retry_after_s = min(retry_after_s, MAX_RETRY_AFTER_S) if valid and retry_after_s is not None else None
        if scope is not None:
            self.scope = scope


class CapacityError(ProviderError):
    """The provider has no such machine at the moment. Applies to a zone unless `scope` says otherwise."""

    scope: Scope = "zone"

    @staticmethod
    def text(count: int, offer_id: str) -> str:
        """That so many machines of an offer are not available now."""
        return f"no capacity on {offer_id} now" if count == 1 else f"no capacity for {count} machines on {offer_id} now"


class QuotaError(ProviderError):
    """The account's limit for this kind of machine is reached, usually per region."""

    scope: Scope = "region"


class PriceError(ProviderError):
    """The spot price exceeds the maximum that the request allows."""

    scope: Scope = "zone"


class ThrottledError(ProviderError):
    """The account makes too many calls; the same call may succeed after `retry_after_s`."""

    scope: Scope = "account"
    retryable = True


class AuthError(ProviderError):
    """The provider does not accept the account's credentials."""

    scope: Scope = "account"


class NoCredentialsError(AuthError):
    """No credentials were found in this environment."""


class ExpiredCredentialsError(AuthError):
    """The credentials were valid and have expired."""


class PermissionDeniedError(AuthError):
    """`action` is the refused action in the provider's terms; the hint quotes the policy line that grants it."""

    def __init__(self, message: str, *, action: str = "", hint: str = "", scope: Scope | None = None) -> None:
        super().__init__(message, hint=hint, scope=scope)
        self.action = action


class ClockSkewError(AuthError):
    """The provider rejects signatures because this machine's clock differs too much from its own."""


class RegionDisabledError(ProviderError):
    """The account has not enabled this region."""

    scope: Scope = "region"


class NotTogetherError(ProviderError):
    """A launch cannot name several offers here. The error says nothing about the offers, and the call has launched
    nothing."""


class ConflictError(ProviderError):
    """The launch token was used before for a different request."""


class NotFoundError(ProviderError):
    """There is no such instance, offer, provider or source."""


class SetupError(ProviderError):
    """A library or local file that the provider needs is missing or damaged; nothing was sent."""

    scope: Scope = "cloud"


class UnavailableError(ProviderError):
    """The provider did not answer or failed. The call may have taken effect."""

    scope: Scope = "region"
    retryable = True


class TimedOutError(UnavailableError):
    """The provider did not answer in time. The call may have taken effect."""


class CutOffError(UnavailableError):
    """The connection ended in the middle of an answer. The call may have taken effect."""


class FormatError(ProviderError):
    """An answer or file is in an unknown format, so none of it can be trusted."""

    scope: Scope = "region"
