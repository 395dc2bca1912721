"""Whose token of Google is limited and lent, and for how long: google.auth is replaced, which asks fixed hosts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from orchestrator.errors import SiteError
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.access.scope import scope_of
from tests.clouds import gcs
from tests.clouds.gcs import TOKEN
from tests.clouds.guarded_gcs import GuardedGcs
from tests.clouds.server import serving
from trainers.objects.credentials import BEARER

NOW = datetime(2031, 1, 1, 12, tzinfo=UTC)
ROLE = "machines@ours.iam.gserviceaccount.com"
SCOPE = scope_of(("gs://a-bucket/tw/control/install/launch-1",))


@dataclass
class Own:
    """The credentials of a machine's service account. Its token ends in `left_s`, no matter who asks."""

    left_s: float
    token: str = ""
    expiry: datetime | None = None

    def refresh(self, _: Any) -> None:
        self.token, self.expiry = TOKEN, (NOW + timedelta(seconds=self.left_s)).replace(tzinfo=None)


class Impersonated:
    """Tokens of a service account last as long as is asked. `asked` are (source's token, account, seconds)."""

    asked: ClassVar[list[tuple[str, str, int]]] = []

    def __init__(self, source: Any, account: str, _scopes: list[str], lifetime: int) -> None:
        self._source, self._account, self._lifetime = source, account, lifetime

    def refresh(self, _: Any) -> None:
        self.asked.append((self._source.token, self._account, self._lifetime))
        self.token, self.expiry = TOKEN, (NOW + timedelta(seconds=self._lifetime)).replace(tzinfo=None)


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Where Google's services are, without any credentials."""
    monkeypatch.setattr("google.auth.impersonated_credentials.Credentials", Impersonated)
    monkeypatch.setattr(Impersonated, "asked", [])
    with serving(GuardedGcs()) as server:
        yield {name: value for name, value in gcs.environment(server).items() if name != BEARER}


def own(monkeypatch: pytest.MonkeyPatch, left_s: float) -> None:
    monkeypatch.setattr("google.auth.default", lambda scopes: (Own(left_s), None))


def issuer(environ: dict[str, str], role: str | None = None) -> Issuer:
    return Issuer(lambda: NOW, role=role, environ=environ)


def test_a_token_that_ends_before_a_machine_could_start_is_put_into_no_user_data(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own(monkeypatch, 330)  # as the metadata server gives it out shortly before it has another one
    with pytest.raises(SiteError, match="330 s") as caught:
        issuer(environ).signer(SCOPE, 3600)
    assert "tries again" in caught.value.hint
    assert issuer(environ).issue(SCOPE, "tw").for_s == 330  # a machine at work is given a newer one in time
    own(monkeypatch, 3500)
    assert issuer(environ).signer(SCOPE, 3600).headers["Authorization"]


def test_a_role_is_taken_on_for_no_longer_than_a_first_contact_may_take(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own(monkeypatch, 330)
    issuer(environ, ROLE).signer(SCOPE, 3600)
    issuer(environ, ROLE).issue(SCOPE, "tw")
    assert [seconds for _, _, seconds in Impersonated.asked] == [3600, 43_200]


def test_a_token_that_is_given_takes_on_the_role_too(environ: dict[str, str]) -> None:
    issuer({**environ, BEARER: "given"}, ROLE).issue(SCOPE, "tw")
    assert Impersonated.asked == [("given", ROLE, 43_200)]
