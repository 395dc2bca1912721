"""What `doctor` says of GCP with no, wrong, expired and read-only credentials, which google-auth itself finds."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google.auth
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.oauth2 import credentials

from providers.clock import VirtualClock
from providers.collect.permissions import Access
from providers.gcp.calls import CALLS, policy
from providers.gcp.logins import KEY_FILE
from providers.gcp.names import network_name
from providers.gcp.permissions import access
from providers.gcp.provider import GcpProvider
from providers.gcp.session import SCOPE, Connections
from providers.gcp.settings import Settings
from providers.policy import Use, permissions
from tests.clouds.compute import FAMILY, PROJECT, Compute
from tests.clouds.gcp import GcpCloud, GcpMachine, GcpZone, a2_skus
from tests.clouds.server import Fault, LoopbackServer, Response

A2 = GcpMachine("a2-highgpu-1g", "nvidia-tesla-a100", 1)
IMAGE = f"projects/debian-cloud/global/images/family/{FAMILY}"
NEEDED = permissions(CALLS, Use.PRICES, Use.MACHINES, Use.NETWORKS)
READING = [each for each in NEEDED if each.endswith((".get", ".list", ".getFromFamily"))]
TOKEN = Response(body=b'{"access_token": "ya29.x", "expires_in": 3600, "token_type": "Bearer"}')


@pytest.fixture(scope="module")
def key() -> str:
    made = rsa.generate_private_key(65537, 2048)
    form = serialization.PrivateFormat.PKCS8
    return made.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


@dataclass
class Login:
    """The files in which google-auth looks for credentials, and Google's token service behind them."""

    server: LoopbackServer
    gce: Compute
    folder: Path
    key: str
    monkeypatch: pytest.MonkeyPatch

    def put(self, **info: Any) -> None:
        """The file of a key or of a user's login, for its owner's eyes only."""
        file = self.folder / "key.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps({"token_uri": f"{self.server.url}/token", **info}))
        self.monkeypatch.setenv(KEY_FILE, str(file))

    def service_account(self) -> None:
        self.put(type="service_account", client_email="tw@p.iam", private_key=self.key, project_id=PROJECT)

    def user(self) -> None:
        """What `gcloud auth application-default login` makes. Its token service is fixed in the library."""
        self.monkeypatch.setattr(f"{credentials.__name__}._GOOGLE_OAUTH2_TOKEN_ENDPOINT", f"{self.server.url}/token")
        self.put(type="authorized_user", client_id="c", client_secret="s", refresh_token="r")

    def answers(self, answer: Response) -> None:
        """The token service answers so."""
        self.server.faults.append(Fault(lambda request: request.path == "/token", None, answer=answer))

    def refuses(self, description: str, **more: str) -> None:
        body = {"error": "invalid_grant", "error_description": description, **more}
        self.answers(Response(400, json.dumps(body).encode()))

    def settings(self) -> Settings:
        return Settings(("us-central1",), (A2.name,), IMAGE, 100, PROJECT, catalog=self.server.url)

    def doctor(self) -> list[Access]:
        """What doctor finds. google-auth finds the credentials, as in the product; they are used on the loopback."""
        found, _ = google.auth.default(scopes=[SCOPE])
        connections = Connections(PROJECT, self.server.url, call_s=2.0, patience_s=0.0, credentials=found)
        return access(connections, settings=self.settings())


@pytest.fixture
def login(
    server: LoopbackServer,
    environment: pytest.MonkeyPatch,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    key: str,
) -> Login:
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("HOME", str(tmp_path))
    lists = GcpCloud({"us-central1-a": GcpZone([A2])}, a2_skus(["us-central1"]), page_rows=50)
    clock = VirtualClock(start_ms=1_790_000_000_000)
    lists.forward = gce = Compute(clock, lists, lambda _: "1", lambda _: None)  # type: ignore[arg-type, return-value]
    server.serve(lists)
    return Login(server, gce, tmp_path, key, monkeypatch)


def test_without_any_the_login_is_named(login: Login) -> None:
    (found,) = access(settings=login.settings())
    assert (found.works, found.detail) == (False, "no GCP credentials were found")
    assert found.remedy == "run: gcloud auth application-default login"


@pytest.mark.parametrize(("text", "said"), [(None, "was not found"), ("{}", "does not have a valid type")])
def test_a_file_that_is_no_key_is_named(login: Login, text: str | None, said: str) -> None:
    login.put()
    file = Path(os.environ[KEY_FILE])
    file.unlink() if text is None else file.write_text(text)
    (found,) = access(settings=login.settings())
    assert found.detail.startswith(f"{KEY_FILE}: ")
    assert str(file) in found.detail
    assert said in found.detail
    assert "correct it or unset it" in found.remedy


@pytest.mark.parametrize(
    ("description", "said", "remedy"),
    [
        ("Invalid grant: account not found", "was deleted or disabled", "gcloud iam service-accounts list"),
        ("Robot is disabled.", "was deleted or disabled", "gcloud iam service-accounts list"),
        ("Invalid JWT Signature.", "the key of the service account was deleted", "service-accounts keys create"),
    ],
)
def test_a_key_of_no_account_is_distinguished_from_a_login_that_is_over(
    login: Login, description: str, said: str, remedy: str
) -> None:
    login.service_account()
    login.refuses(description)
    (found,) = login.doctor()
    assert (found.what, found.works) == ("identity", False)
    assert said in found.detail
    assert description in found.detail
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("description", "more", "said"),
    [
        ("Token has been expired or revoked.", {}, "has expired or was revoked"),
        ("reauth related error (rapt_required)", {"error_subtype": "invalid_rapt"}, "too old for the organisation"),
    ],
)
def test_a_login_that_is_over_says_to_log_in_again(
    login: Login, description: str, more: dict[str, str], said: str
) -> None:
    login.user()
    login.refuses(description)
    (found,) = login.doctor()
    assert said in found.detail
    assert found.remedy == "run: gcloud auth application-default login"


def test_a_token_service_that_does_not_answer_is_no_wrong_login(login: Login) -> None:
    login.service_account()
    login.server.faults.append(Fault(lambda request: request.path == "/token", None, lost=True))
    (found,) = login.doctor()
    assert "cannot be reached" in found.detail
    assert "login" not in found.remedy


def test_read_only_credentials_lack_exactly_what_costs_or_changes(login: Login) -> None:
    login.service_account()
    login.answers(TOKEN)
    login.gce.granted = frozenset(READING)
    lacking = [each for each in login.doctor() if not each.works]
    assert [each.what for each in lacking] == ["permissions"]
    (_, _, named) = lacking[0].detail.partition(" are missing: ")
    assert named.split(", ") == [each for each in NEEDED if each not in READING]
    assert lacking[0].needed
    assert "tradewind doctor --policy gcp" in lacking[0].remedy
    assert f"add-iam-policy-binding {PROJECT}" in lacking[0].remedy
    assert all(each in policy(list(Use)).text for each in named.split(", "))


def test_one_missing_permission_is_named_also_by_the_check_that_needs_it(login: Login) -> None:
    login.service_account()
    login.answers(TOKEN)
    login.gce.granted = frozenset(NEEDED) - {"compute.instances.list"}
    lacking = {each.what: each for each in login.doctor() if not each.works}
    assert list(lacking) == ["permissions", "list of machines"]
    assert lacking["permissions"].detail == f"1 of {len(NEEDED)} permissions are missing: compute.instances.list"
    assert "compute.instances.list" in lacking["list of machines"].remedy


def test_with_the_role_every_check_passes_and_nothing_is_changed(login: Login) -> None:
    login.service_account()
    login.answers(TOKEN)
    login.gce.granted = frozenset(NEEDED)
    assert [each for each in login.doctor() if not each.works] == []
    changes = [each.path for each in login.server.requests if each.method not in ("GET", "HEAD")]
    assert set(changes) == {"/token", f"/v1/projects/{PROJECT}:testIamPermissions"}


def test_without_the_resource_manager_the_permissions_are_not_checked_and_it_says_how(login: Login) -> None:
    login.service_account()
    login.answers(TOKEN)
    refused = Response(403, b'{"error": {"code": 403, "message": "API has not been used in project"}}')
    login.server.faults.append(Fault(lambda request: request.path.endswith(":testIamPermissions"), answer=refused))
    found = {each.what: each for each in login.doctor()}
    assert found["permissions"].works
    assert "not checked" in found["permissions"].detail
    assert "gcloud services enable cloudresourcemanager" in found["permissions"].detail


def test_what_prices_need_is_asked_for_and_nothing_else(login: Login) -> None:
    """The permissions for machines and networks are proved in test_compute.py and test_compute_networks.py."""
    login.gce.networks.add(network_name("tw-1"))
    connections = Connections(PROJECT, login.server.url, call_s=2.0, patience_s=0.0)
    GcpProvider(login.settings(), VirtualClock(start_ms=1_790_000_000_000), connections).prices()
    lists = {each.path.rpartition("/")[2] for each in login.server.requests if "/compute/" in each.path}
    access(connections, settings=login.settings())
    lists |= {each.path.rpartition("/")[2] for each in login.server.requests if each.path.endswith("Types")}
    assert sorted(f"compute.{each}.list" for each in lists) == sorted(permissions(CALLS, Use.PRICES))
