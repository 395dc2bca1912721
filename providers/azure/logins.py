"""Why azure-identity gets no token: the table of Entra ID's codes (AADSTS...).

Sources: [codes] "Microsoft Entra authentication and authorization error codes" (learn.microsoft.com/entra/
identity-platform/reference-error-codes); [identity] TROUBLESHOOTING.md of azure-identity (github.com/Azure/
azure-sdk-for-python, sdk/identity); [seen] in issues, not documented there: Azure-Samples/ms-identity-python-webapp 67
(7000222). Any other code means that Entra ID does not accept the credentials. An error without a code means that no
credentials were found, or that Entra ID could not be reached with those that were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from providers.error_codes import Meaning, row
from providers.errors import (
    AuthError,
    ClockSkewError,
    ExpiredCredentialsError,
    NoCredentialsError,
    ProviderError,
    UnavailableError,
)

LOGIN = "run: az login"
_APP = "AZURE_CLIENT_ID and AZURE_TENANT_ID: az ad sp list --show-mine"
_SECRET = "set AZURE_CLIENT_SECRET to the value of a secret, not to its id; a new one: az ad app credential reset --id "
_SECRET += "AZURE_CLIENT_ID"
_EXPIRED = "create a new secret and set AZURE_CLIENT_SECRET to it: az ad app credential reset --id AZURE_CLIENT_ID"
_CERTIFICATE = "check AZURE_CLIENT_CERTIFICATE_PATH: az ad app credential list --cert --id AZURE_CLIENT_ID"
_CLOCK = "set this machine's clock (timedatectl set-ntp true)"
_FORBIDDEN = "a rule of the organisation forbids this login: ask its administrator, or use a service principal"


def _rows() -> Iterator[tuple[str, Meaning]]:
    yield from row("7000215 7000216", AuthError, "account", "codes", _SECRET)
    yield from row("7000222", ExpiredCredentialsError, "account", "seen", _EXPIRED)
    yield from row("700016", AuthError, "account", "identity", f"check {_APP}")
    yield from row("90002 900023", AuthError, "account", "codes", f"check {_APP}")
    yield from row("700027", AuthError, "account", "codes", _CERTIFICATE)
    yield from row("700024", ClockSkewError, "account", "codes", _CLOCK)
    yield from row("700082 70043 50173 700084", ExpiredCredentialsError, "account", "codes", LOGIN)
    yield from row("50076 50079 50158", ExpiredCredentialsError, "account", "codes", LOGIN)
    yield from row("90006 90033", UnavailableError, "account", "codes")
    yield from row("53003 53000", AuthError, "account", "codes", _FORBIDDEN)


CODES: Mapping[str, Meaning] = dict(_rows())
_UNREACHED = re.compile(r"Authentication failed: (HTTPS?Connection.*|\('Connection aborted.*)")


def no_token(text: str) -> ProviderError:
    """The meaning of azure-identity's refusal."""
    code = re.search(r"AADSTS(\d+)", text)
    if code is None:
        if "not within its valid time range" in text:
            return ClockSkewError(text[:300], hint=_CLOCK)
        if (unreached := _UNREACHED.search(text)) is not None:
            return UnavailableError(f"Azure's login service cannot be reached: {unreached[1][:200]}")
        hint = f"{LOGIN}; or set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET"
        return NoCredentialsError("no Azure credentials were found", hint=hint)
    said = re.split(r"\s*Trace ID:|\n", text[code.start() :], maxsplit=1)[0][:300]
    if (meaning := CODES.get(code[1])) is None:
        return AuthError(said, hint=f"{LOGIN}; or check {_APP}")
    return meaning.kind(said, hint=meaning.hint)
