"""What can go wrong at a provider, in words that every provider shares.

ProviderError
 +- CapacityError      no such machine there now; another zone, type or moment may have one
 +- QuotaError         the account may not have more of it
 +- PriceError         the spot price exceeds the maximum that was asked
 +- ThrottledError     too many calls; the same call later
 +- AuthError          credentials missing, expired or not allowed
 |   +- NoCredentialsError       none were found
 |   +- ExpiredCredentialsError  they were right once
 |   +- PermissionDeniedError    they are right, and may not do this: names the action and the line that grants it
 |   +- ClockSkewError           this machine's clock is too far from the provider's
 +- RegionDisabledError  the account has not switched this region on
 +- ConflictError      the token was used before for something else
 +- NotFoundError      no such instance, offer or provider
 +- SetupError         a library or file of ours that the provider needs is missing or damaged; nothing was sent
 +- UnavailableError   the provider did not answer, or answered with a fault of its own; the call MAY have taken effect
 |   +- TimedOutError            no answer in time
 |   +- CutOffError              the connection ended in the middle of an answer
 +- FormatError        an answer or file that is not in the form we know: nothing in it can be trusted

 `scope` says how far the verdict reaches, so that a caller knows what to avoid.
"""

from __future__ import annotations

from typing import Literal

Scope = Literal["request", "zone", "region", "cloud", "account"]
MAX_RETRY_AFTER_S = 6 * 3600.0
"""Nobody is kept away for longer by one answer: prices that are older than that are no prices of now."""


class ProviderError(Exception):
    """Base of all. `hint` is the remedy in one sentence.

    `retry_after_s` is how long the provider asked to wait: from 0 to MAX_RETRY_AFTER_S, whatever was asked. None: it
    did not say, or what it said is no time.
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
        said = retry_after_s is not None and retry_after_s >= 0  # not true of NaN, which would outlive every min()
        self.retry_after_s = min(retry_after_s, MAX_RETRY_AFTER_S) if said and retry_after_s is not None else None
        if scope is not None:
            self.scope = scope


class CapacityError(ProviderError):
    scope: Scope = "zone"


class QuotaError(ProviderError):
    scope: Scope = "region"


class PriceError(ProviderError):
    scope: Scope = "zone"


class ThrottledError(ProviderError):
    scope: Scope = "account"
    retryable = True


class AuthError(ProviderError):
    scope: Scope = "account"


class NoCredentialsError(AuthError):
    pass


class ExpiredCredentialsError(AuthError):
    pass


class PermissionDeniedError(AuthError):
    """`action` is what was refused, in the provider's words; the hint quotes the line of policy that grants it."""

    def __init__(self, message: str, *, action: str = "", hint: str = "", scope: Scope | None = None) -> None:
        super().__init__(message, hint=hint, scope=scope)
        self.action = action


class ClockSkewError(AuthError):
    pass


class RegionDisabledError(ProviderError):
    scope: Scope = "region"


class ConflictError(ProviderError):
    pass


class NotFoundError(ProviderError):
    pass


class SetupError(ProviderError):
    scope: Scope = "cloud"


class UnavailableError(ProviderError):
    scope: Scope = "region"
    retryable = True


class TimedOutError(UnavailableError):
    pass


class CutOffError(UnavailableError):
    pass


class FormatError(ProviderError):
    scope: Scope = "region"
