"""What `doctor` says of Azure with no, wrong, expired and read-only credentials, which azure-identity itself finds, and
that the role it prints is what Azure is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from providers.azure.calls import CALLS, policy
from providers.azure.permissions import access
from providers.azure.prices.risk import Evictions
from providers.azure.session import Connections
from providers.collect.permissions import Access
from providers.errors import PermissionDeniedError
from providers.policy import Store, Use, permissions
from tests.clouds.arm import SUBSCRIPTION
from tests.clouds.arm_account import Account, opened, spec
from tests.clouds.azure import Token
from tests.clouds.rbac import Enforced
from tests.clouds.server import Cloud, LoopbackServer, Request, Response

NEEDED = permissions(CALLS, Use.PRICES, Use.MACHINES, Use.NETWORKS)
SECRET = "AADSTS7000215: Invalid client secret provided. Ensure the secret being sent in the request is the client "
SECRET += "secret value, not the client secret ID, for a secret added to app 'c'."
TRACE = "\r\nTrace ID: 6f6c\r\nCorrelation ID: 5fc8\r\nTimestamp: 2026-09-06 06:03:00Z"
ALL = ["AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET"]


@dataclass
class Entra:
    """Entra ID in front of a cloud. `refusal`: its answer to a request for a token; "": it issues one."""

    url: str
    inner: Cloud
    refusal: str = ""

    def __call__(self, request: Request) -> Response:
        if request.path.endswith("/.well-known/openid-configuration"):
            tenant = f"{self.url}/{request.path.split('/')[1]}"
            about = {"issuer": f"{tenant}/v2.0", "authorization_endpoint": f"{tenant}/oauth2/v2.0/authorize"}
            return _json({**about, "token_endpoint": f"{tenant}/oauth2/v2.0/token"})
        if not request.path.endswith("/oauth2/v2.0/token"):
            return self.inner(request)
        if self.refusal:
            body = {"error": "invalid_client", "error_description": f"{self.refusal}{TRACE}"}
            return _json({**body, "error_codes": [int(self.refusal[6:].partition(":")[0])]}, 401)
        return _json({"token_type": "Bearer", "expires_in": 3599, "access_token": Token().get_token().token})


@dataclass
class Login:
    """An account, and Entra ID before it."""

    account: Account
    entra: Entra
    roles: Enforced
    connections: Connections

    def doctor(self) -> dict[str, Access]:
        """The findings of doctor by check, of the checks that need an account."""
        settings = self.account.connect()._settings
        found = {each.what: each for each in access(self.connections, settings=settings)}
        assert found.pop("retail prices, without an account").works
        return found


@pytest.fixture
def login(
    arm_clients: tuple[LoopbackServer, LoopbackServer, Connections], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Login:
    from azure.identity import DefaultAzureCredential

    account = opened(*arm_clients, "tw-1")
    server, _, known = arm_clients
    roles = Enforced(server.cloud, account.arm)
    server.cloud = entra = Entra(server.url, roles)
    for name, value in zip(ALL, ("c", "t", "s"), strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))
    options: dict[str, Any] = {"authority": server.url, "disable_instance_discovery": True}
    options |= {"connection_verify": known._ca_file, "retry_total": 0}
    credential = DefaultAzureCredential(**options)
    connections = Connections(SUBSCRIPTION, server.url, known._ca_file, credential, call_s=5.0, attempts=1)
    return Login(account, entra, roles, connections)


def test_without_a_login_it_is_named(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    from azure.identity import DefaultAzureCredential

    for name in ALL:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "dev")  # not that of this machine
    login.connections._credential = DefaultAzureCredential()
    (found,) = login.doctor().values()
    assert (found.what, found.works, found.detail) == ("identity", False, "no Azure credentials were found")
    assert "az login" in found.remedy
    assert "AZURE_CLIENT_SECRET" in found.remedy


def test_a_login_service_that_cannot_be_reached_is_not_a_lack_of_credentials(login: Login) -> None:
    from azure.identity import DefaultAzureCredential

    silent = {"authority": "https://127.0.0.1:1", "disable_instance_discovery": True, "retry_total": 0}
    login.connections._credential = DefaultAzureCredential(**silent)
    (found,) = login.doctor().values()
    assert found.detail.startswith("Azure's login service cannot be reached: HTTPSConnection")
    assert "az login" not in found.remedy


def test_the_log_of_azure_identity_is_not_printed(tmp_path: Path) -> None:
    """azure-identity logs what each of a dozen logins lacks."""
    script = """
from providers.azure.session import Connections
try:
    Connections("s").credential.get_token("https://management.azure.com/.default")
except Exception as error:
    print(type(error).__name__)
"""
    environ = {"PATH": "/nowhere", "HOME": str(tmp_path), "AZURE_TOKEN_CREDENTIALS": "dev"}
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("ClientAuthenticationError\n", "")


@pytest.mark.parametrize(
    ("refusal", "said", "remedy"),
    [
        (SECRET, "not the client secret ID", "AZURE_CLIENT_SECRET to the value of a secret"),
        (
            "AADSTS7000222: The provided client secret keys for app 'c' are expired.",
            "are expired",
            "create a new secret",
        ),
        ("AADSTS700016: Application with identifier 'c' was not found in the directory 't'.", "'c'", "AZURE_CLIENT_ID"),
        ("AADSTS90002: Tenant 't' not found.", "Tenant 't'", "AZURE_TENANT_ID"),
        ("AADSTS53003: Access has been blocked by Conditional Access policies.", "blocked", "administrator"),
        ("AADSTS999999: Something new.", "Something new", "AZURE_CLIENT_ID"),
    ],
)
def test_what_entra_id_refuses_is_said_with_its_remedy(login: Login, refusal: str, said: str, remedy: str) -> None:
    login.entra.refusal = refusal
    (found,) = login.doctor().values()
    assert (found.what, found.works) == ("identity", False)
    assert found.detail.startswith("AADSTS")
    assert said in found.detail
    assert "Trace ID" not in found.detail
    assert remedy in found.remedy


def test_read_only_credentials_lack_exactly_what_costs_or_changes(login: Login) -> None:
    login.account.arm.granted = ["*/read"]
    lacking = [each for each in login.doctor().values() if not each.works]
    assert [each.what for each in lacking] == ["permissions"]
    (_, _, named) = lacking[0].detail.partition(" are missing: ")
    assert named.split(", ") == [each for each in NEEDED if not each.endswith("/read")]
    assert lacking[0].needed
    assert "tradewind doctor --policy azure" in lacking[0].remedy
    assert all(each in policy(list(Use)).text for each in named.split(", "))


def test_one_missing_permission_is_named_also_by_the_check_that_needs_it(login: Login) -> None:
    login.account.arm.granted = [each for each in NEEDED if each != "Microsoft.Compute/skus/read"]
    lacking = {each.what: each for each in login.doctor().values() if not each.works}
    assert lacking["permissions"].detail.endswith("permissions are missing: Microsoft.Compute/skus/read")
    assert "Microsoft.Compute/skus/read" in lacking["resource SKUs"].remedy


def test_before_the_resource_group_is_made_the_permissions_are_not_checked(login: Login) -> None:
    login.account.arm.networks.groups.clear()
    found = login.doctor()["permissions"]
    assert found.works
    assert "tradewind up --cloud azure" in found.detail


def everything(login: Login) -> None:
    """Each call of the provider, of doctor and of what else reads prices, once."""
    account = login.account
    account.connections = login.connections
    account.arm.networks.groups.clear()
    account.arm.networks.resources.clear()
    provider = account.connect(regions=("eastus",))
    provider.set_up("tw-1", lambda _: None)
    provider.make_bucket("tw-1", "myaccount/jobs", "eastus", lambda _: None)
    account.arm.storage.services["myaccount"]["isVersioningEnabled"] = True
    provider.make_bucket("tw-1", "myaccount/jobs", "eastus", lambda _: None)
    provider.deletes_versions("myaccount/jobs", "tw")
    provider.remove_bucket("tw-1", "myaccount/jobs", lambda _: None)
    provider.prices()
    Evictions(connections=login.connections).poll("global", account.clock.now_ms(), None)
    (name,) = provider.launch(spec())
    provider.describe([name])
    provider.find("token-1", "eastus")
    provider.renew([name], 3600)
    provider.list_owned("tw-1")
    provider.quotas()
    provider.set_up("tw-2", lambda _: None)
    provider.networks("tw-1")
    provider.terminate(name)
    for install in ("tw-2", "tw-1"):
        provider.tear_down(install, lambda _: None)
    provider.set_up("tw-1", lambda _: None)
    assert [each for each in login.doctor().values() if not each.works] == []


def test_the_printed_role_is_enough_and_every_action_in_it_is_asked_for(login: Login) -> None:
    role = json.loads(policy([Use.PRICES, Use.MACHINES, Use.NETWORKS, Use.BUCKET], Store("jobs", "tw")).text)
    login.account.arm.granted = role["Actions"]
    everything(login)
    asked = {each.lower() for each in login.roles.demanded}
    assert sorted(each for each in role["Actions"] if each.lower() not in asked) == []
    assert asked <= {each.lower() for each in role["Actions"]}


@pytest.mark.parametrize(
    "action", ["Microsoft.Compute/virtualMachines/write", "Microsoft.Network/networkInterfaces/join/action"]
)
def test_a_launch_without_a_permission_names_it_and_leaves_nothing(login: Login, action: str) -> None:
    login.account.arm.granted = [each for each in NEEDED if each != action]
    login.account.connections = login.connections
    with pytest.raises(PermissionDeniedError) as raised:
        login.account.connect().launch(spec())
    assert raised.value.action == action
    assert not login.account.arm.every()
    assert not login.account.arm.keys


def _json(body: object, status: int = 200) -> Response:
    return Response(status, json.dumps(body).encode())
