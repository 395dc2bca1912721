"""Why google-auth gets no token: the table of reasons that Google's token service gives.

The reasons are in the text of an `invalid_grant` (RFC 6749, 5.2) and are not documented, so each row names where it was
observed. Any other reason is treated as an expired login.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from providers.errors import (
    AuthError,
    ClockSkewError,
    ExpiredCredentialsError,
    NoCredentialsError,
    ProviderError,
)

if TYPE_CHECKING:
    from google.auth import exceptions

KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
LOGIN = "run: gcloud auth application-default login"
_OTHER_ACCOUNT = (
    "create a key of an existing account (gcloud iam service-accounts list; gcloud iam service-accounts keys create "
    f"KEY.json --iam-account=ACCOUNT) and set {KEY_FILE} to it; or {LOGIN}"
)
_NEW_KEY = f"gcloud iam service-accounts keys create KEY.json --iam-account=ACCOUNT; set {KEY_FILE} to KEY.json"
_CLOCK = "set this machine's clock (timedatectl set-ntp true)"


@dataclass(frozen=True, slots=True)
class _Reason:
    pattern: re.Pattern[str]
    kind: type[AuthError]
    what: str
    hint: str
    source: str


def _reason(pattern: str, kind: type[AuthError], what: str, hint: str, source: str) -> _Reason:
    return _Reason(re.compile(pattern, re.I), kind, what, hint, source)


_GONE = "the service account of the key was deleted or disabled"
REASONS = (
    _reason(r"reasonable timeframe|\biat\b", ClockSkewError, "GCP rejects the time of this machine's token", _CLOCK,
            "googleapis/google-cloud-python issue 8736"),
    _reason("account not found", AuthError, _GONE, _OTHER_ACCOUNT, "googleapis/google-cloud-php issue 3622"),
    _reason("robot is disabled", AuthError, _GONE, _OTHER_ACCOUNT, "googleapis/google-api-ruby-client issue 720"),
    _reason("account has been deleted", AuthError, "the account was deleted", _OTHER_ACCOUNT,
            "GAM-team/GAM pull request 1171"),
    _reason("invalid jwt signature", AuthError, "the key of the service account was deleted", _NEW_KEY,
            "googleapis/google-cloud-python issue 10004"),
    _reason("rapt|reauth", ExpiredCredentialsError, "the login is too old for the organisation", LOGIN,
            "pulumi/pulumi-gcp issue 479"),
    _reason("expired or revoked", ExpiredCredentialsError, "the login has expired or was revoked", LOGIN,
            "googleapis/python-bigquery-pandas issue 78"),
)  # fmt: skip


def not_refreshed(error: exceptions.RefreshError) -> ProviderError:
    """The error for a refused token."""
    text = str(error.args[0] if error.args else error)[:200]
    for reason in REASONS:
        if reason.pattern.search(str(error)):
            return reason.kind(f"{reason.what}: {text}", hint=reason.hint)
    return ExpiredCredentialsError(f"GCP credentials are no longer valid: {text}", hint=LOGIN)


def not_found(error: exceptions.DefaultCredentialsError) -> ProviderError:
    """The error for missing credentials: the named file may not be a valid key file."""
    if os.environ.get(KEY_FILE):
        return NoCredentialsError(f"{KEY_FILE}: {str(error)[:300]}", hint=f"correct it or unset it; or {LOGIN}")
    return NoCredentialsError("no GCP credentials were found", hint=LOGIN)
