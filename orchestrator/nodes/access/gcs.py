"""Grants of Google Cloud Storage: access tokens with a credential access boundary.

A boundary limits what a token reaches and cannot extend it. Tokens last for an hour, or for up to 12 hours if they are
a service account's (machines.role) and the organisation allows that
(constraints/iam.allowServiceAccountCredentialLifetimeExtension). Buckets need uniform bucket-level access.
https://cloud.google.com/iam/docs/downscoping-short-lived-credentials
https://cloud.google.com/iam/docs/create-short-lived-credentials-direct
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from orchestrator.errors import SiteError
from orchestrator.nodes.access.grants import Issued, NoLimitedAccess, Signer
from orchestrator.nodes.access.scope import Scope
from trainers.objects.credentials import BEARER
from trainers.objects.services import Place

STORAGE, TOKENS = "https://storage.googleapis.com", "https://sts.googleapis.com"
LASTS_S = 3_600
LONGEST_S = 43_200
LEAST_S = 600
"""A machine may take this long from its order to its first contact. Every request for the token of a machine's service
account returns the same token until five minutes before it expires."""
ANSWER_S = 10.0
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
USER, VIEWER, CREATOR = (f"inRole:roles/storage.object{role}" for role in ("User", "Viewer", "Creator"))
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_HINT = (
    "give the control plane's account the role roles/storage.objectUser on the bucket, enable the bucket's uniform "
    "bucket-level access, and enable the Security Token Service API"
)
_SHARING = "; machines.share_credentials lends machines the control plane's own token"


class GcsGrants:
    """Implements Grants. `role` is the e-mail address of a service account whose tokens are requested."""

    variables = ("GOOGLE_BASE_URL", "GOOGLE_ALLOW_HTTP")

    def __init__(
        self, now: Callable[[], datetime], *, role: str | None, share: bool, environ: Mapping[str, str]
    ) -> None:
        self._now, self._role, self._share, self._environ = now, role, share, environ

    def issue(self, scope: Scope, name: str) -> Issued:  # noqa: ARG002
        """See Issuer.issue."""
        writes, reads = scope.places()
        boundary = None if self._share else [*rules(writes, USER, lists=True), *rules(reads, VIEWER)]
        return self._issued(boundary, _HINT + _SHARING, LONGEST_S)

    def signer(self, scope: Scope, for_s: int) -> Signer:
        """See Issuer.signer. Its requests carry a token that can create and read objects of `scope.writes` and read
        those of `scope.reads`, but replace or delete none. It is never the control plane's own token, because user data
        is not sealed."""
        writes, reads = scope.places()
        issued = self._issued([*rules(writes, CREATOR), *rules((*writes, *reads), VIEWER)], _HINT, for_s)
        if issued.for_s < min(for_s, LEAST_S):
            raise SiteError(
                f"Google's token of the control plane ends in {issued.for_s:.0f} s, too soon for a machine to start",
                hint="Tradewind tries again; tokens of a service account (machines.role) last as long as requested",
            )
        endpoint = (self._environ.get("GOOGLE_BASE_URL") or STORAGE).rstrip("/")
        return TokenSigner(endpoint, {"Authorization": f"Bearer {issued.values[BEARER]}"})

    def _issued(self, boundary: Sequence[Mapping[str, Any]] | None, hint: str, longest_s: int) -> Issued:
        """A token with this boundary (without one, the control plane's own token), valid for `longest_s` if Google
        allows a choice. Raises NoLimitedAccess, SiteError."""
        try:
            from google.auth import exceptions
            from google.auth.transport.requests import Request
            from google.oauth2.sts import Client
        except ModuleNotFoundError as error:
            raise SiteError(
                "lending access to gs:// needs google-auth, which is not installed",
                hint="pip install 'tradewind[gcp]'",
            ) from error
        send = Request()

        def request(*args: Any, **options: Any) -> Any:
            """Google's libraries report a busy service as a refusal."""
            answer = send(*args, **{"timeout": ANSWER_S, **options})
            if answer.status in (408, 429) or answer.status >= 500:
                raise exceptions.TransportError(f"status {answer.status}")
            return answer

        try:
            token, for_s = self._own(request, longest_s)
            if boundary is None:
                return Issued({BEARER: token}, for_s)
            answer = Client(f"{(self._environ.get('GOOGLE_BASE_URL') or TOKENS).rstrip('/')}/v1/token").exchange_token(
                request,
                _EXCHANGE,
                token,
                _ACCESS_TOKEN,
                requested_token_type=_ACCESS_TOKEN,
                additional_options={"accessBoundary": {"accessBoundaryRules": list(boundary)}},
            )
        except exceptions.DefaultCredentialsError as error:
            raise SiteError(
                "the control plane has no credentials for the bucket",
                hint="set GOOGLE_APPLICATION_CREDENTIALS, or run: gcloud auth application-default login",
            ) from error
        except (exceptions.OAuthError, exceptions.RefreshError) as error:
            why = str(error.args[0] if error.args else error)[:300]
            if getattr(error, "retryable", False):
                raise SiteError(f"Google's token service is busy: {why}", hint="Tradewind tries again") from error
            raise NoLimitedAccess(f"Google issues no access token limited to a job: {why}", hint=hint) from error
        except exceptions.GoogleAuthError as error:
            raise SiteError(f"Google's token service does not answer: {error}", hint="Tradewind tries again") from error
        except (ValueError, TypeError, KeyError) as error:  # not JSON, or of another form
            raise _no_answer(error) from error
        return _issued(answer, for_s)

    def _own(self, request: Callable[..., Any], longest_s: int) -> tuple[str, float]:
        """A token of this process, or of `role` for up to `longest_s`, and for how many seconds it is valid. Raises the
        exceptions of google.auth."""
        from google.auth import default, impersonated_credentials
        from google.auth.exceptions import RefreshError
        from google.oauth2.credentials import Credentials

        given = self._environ.get(BEARER)
        source = Credentials(given) if given else default(scopes=[SCOPE])[0]
        if self._role is None:
            if not given:
                source.refresh(request)
            return str(source.token), self._left_s(source)
        shortest_s = min(longest_s, LASTS_S)
        for lasts_s in (longest_s, shortest_s):
            asked = impersonated_credentials.Credentials(source, self._role, [SCOPE], lifetime=lasts_s)
            try:
                asked.refresh(request)
            except RefreshError:
                if lasts_s == shortest_s:
                    raise
            else:
                break
        return str(asked.token), self._left_s(asked)

    def _left_s(self, credentials: Any) -> float:
        """google.auth's `expiry` is in UTC but has no time zone."""
        if credentials.expiry is None:
            return LASTS_S
        return float(max(60.0, (credentials.expiry.replace(tzinfo=UTC) - self._now()).total_seconds()))


def _issued(answer: Mapping[str, Any], for_s: float) -> Issued:
    """The token in the service's answer, for at most `for_s`: a limited token does not outlive the token that it was
    made from. Raises SiteError if the answer has no token."""
    try:
        token, lasts_s = answer["access_token"], float(answer.get("expires_in") or for_s)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _no_answer(error) from error
    if not isinstance(token, str) or not token or not lasts_s > 0:
        raise _no_answer(f"a token for {lasts_s} s" if token else "no token")
    return Issued({BEARER: token}, min(lasts_s, for_s, LONGEST_S))


def _no_answer(why: object) -> SiteError:
    return SiteError(f"the answer of Google's token service is not valid: {why!s}", hint="Tradewind tries again")


@dataclass(frozen=True, slots=True)
class TokenSigner:
    """Implements Signer."""

    endpoint: str
    headers: Mapping[str, str]
    query: str = ""
    once: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({"x-goog-if-generation-match": "0"}))

    def suffix(self, method: str, path: str, *, if_absent: bool = False) -> str:  # noqa: ARG002
        """See Signer.suffix."""
        return ""


def rules(places: Sequence[Place], role: str, *, lists: bool = False) -> list[dict[str, Any]]:
    """The rules of a boundary that allows the role's actions on objects of these folders and, if `lists`, listing them:
    one rule per bucket."""
    found = []
    for bucket in sorted({place.bucket for place in places}):
        prefixes = [_quoted(f"{place.prefix}/") for place in places if place.bucket == bucket]
        parts = [f"resource.name.startsWith('projects/_/buckets/{bucket}/objects/{prefix}')" for prefix in prefixes]
        if lists:
            asked = "api.getAttribute('storage.googleapis.com/objectListPrefix', '')"
            parts += [f"{asked}.startsWith('{prefix}')" for prefix in prefixes]
        found.append(
            {
                "availableResource": f"//storage.googleapis.com/projects/_/buckets/{bucket}",
                "availablePermissions": [role],
                "availabilityCondition": {"expression": " || ".join(parts)},
            }
        )
    return found


def _quoted(text: str) -> str:
    """Escaped for a string of the Common Expression Language."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
