"""`tradewind up --cloud` and `down --cloud` with a `store_root` that is a bucket of that cloud, on each of them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator.cli.app import app
from orchestrator.config import Config, load_config
from orchestrator.errors import ProviderFailure, UsageError
from orchestrator.installation import Installation, open_installation
from orchestrator.services.control_plane import networks as service
from orchestrator.services.control_plane.buckets import store_bucket
from orchestrator.services.doctor.clouds import policy
from providers.aws.session import Connections
from providers.azure.session import Connections as AzureConnections
from providers.clock import VirtualClock
from tests.clouds.arm import IMAGE as ARM_IMAGE
from tests.clouds.arm import SUBSCRIPTION
from tests.clouds.arm_account import CPU
from tests.clouds.arm_account import opened as opened_arm
from tests.clouds.compute import FAMILY, PROJECT
from tests.clouds.ec2 import PARAMETER
from tests.clouds.ec2_account import NAMES, opened
from tests.clouds.gce_project import E2, IMAGES, Project
from tests.clouds.gcp import error
from tests.clouds.s3 import S3
from tests.clouds.server import LoopbackServer

IMAGE = {
    "aws": f"ssm:{PARAMETER}",
    "gcp": f"{IMAGES}/family/{FAMILY}",
    "azure": ":".join((*ARM_IMAGE, "latest")),
}


def quiet(_: str) -> None:
    return None


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Config]:
    """Sets the settings of an installation in the environment, and returns its configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "dumb")

    def put(cloud: str, root: str, regions: Sequence[str], **more: str) -> Any:
        kinds = "MACHINE_TYPES" if cloud == "gcp" else "INSTANCE_TYPES"
        found = {
            "STATE_DIR": str(tmp_path / "state"),
            "STORE_ROOT": root,
            "PROVIDERS_ENABLED": cloud,
            f"PROVIDERS_{cloud.upper()}_REGIONS": ",".join(regions),
            f"PROVIDERS_{cloud.upper()}_IMAGE": IMAGE[cloud],
            f"PROVIDERS_{cloud.upper()}_{kinds}": {"aws": NAMES[0], "gcp": E2.name, "azure": CPU}[cloud],
            **more,
        }
        for name, value in found.items():
            monkeypatch.setenv(f"TRADEWIND_{name}", value)
        return load_config(cwd=tmp_path)

    return put


def run(*arguments: str, code: int = 0) -> Any:
    """What a command prints as JSON."""
    result = CliRunner().invoke(app, [*arguments, "--output", "json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def said(*arguments: str) -> str:
    """What a command says to people, in one line."""
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


# --- Google Cloud ---


@pytest.fixture
def google(settings: Any, project: Project) -> Project:
    where = {"PROVIDERS_GCP_PROJECT": PROJECT, "PROVIDERS_GCP_ENDPOINT": project.server.url}
    settings("gcp", "gs://my-bucket/tw", ["us-central1", "europe-west4"], **where)
    return project


def test_up_makes_the_bucket_in_the_first_region_and_down_removes_it(google: Project) -> None:
    answer = said("up", "--cloud", "gcp")
    assert "bucket gs://my-bucket was made in us-central1" in answer
    assert "bucket gs://my-bucket, created by Tradewind" in answer
    assert "was made in" not in said("up", "--cloud", "gcp")
    (bucket,) = run("up", "--cloud", "gcp")["buckets"]
    assert (bucket["url"], bucket["region"], bucket["own"]) == ("gs://my-bucket", "us-central1", True)
    google.gce.buckets.objects["my-bucket"] = {"tw/checkpoints/1": 2_000_000}
    assert "gs://my-bucket is kept: it holds 1 object, 2.0 MB" in said("down", "--cloud", "gcp")
    left = run("down", "--cloud", "gcp")
    assert [each["url"] for each in left["buckets"]] == ["gs://my-bucket"]
    assert not any(network["parts"] for network in left["networks"])
    google.gce.buckets.objects.clear()
    assert run("down", "--cloud", "gcp")["buckets"] == []
    assert google.gce.buckets.rows == {}


def test_a_declared_region_comes_first(google: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_STORE_REGION", "europe-west1")
    assert run("up", "--cloud", "gcp")["buckets"][0]["region"] == "europe-west1"


def test_a_name_that_is_taken_is_an_error_of_up_after_the_networks_are_there(google: Project) -> None:
    google.gce.buckets.others.add("my-bucket")
    answer = run("up", "--cloud", "gcp", code=5)
    assert "the name my-bucket belongs to another account" in answer["error"]["message"]
    assert "choose another name" in answer["error"]["hint"]
    assert google.gce.networks.parts


def test_a_bucket_that_cannot_be_looked_at_does_not_keep_networks_from_being_removed(
    google: Project, tmp_path: Path
) -> None:
    run("up", "--cloud", "gcp")
    google.fails("GET", "/storage/", times=None, answer=error(403, "no", "forbidden"))
    before = len(google.gce.networks.parts)
    answer = run("down", "--cloud", "gcp", code=5)
    assert "forbidden" in answer["error"]["message"]
    assert len(google.gce.networks.parts) == before - 2
    with closing(open_installation(load_config(cwd=tmp_path))) as installation, pytest.raises(ProviderFailure):
        service.networks(installation, ["gcp"])


def test_the_policy_has_the_rights_of_the_bucket_only_for_its_cloud(google: Project, tmp_path: Path) -> None:
    config = load_config(cwd=tmp_path)
    assert "storage.buckets.create" in policy("gcp", config).text
    assert "Microsoft.Storage" not in policy("azure", config).text
    assert "s3:" not in policy("aws", config).text
    assert "storage.buckets" not in policy("gcp", config, prices_only=True).text


@pytest.mark.parametrize(
    ("cloud", "root", "variable", "elsewhere", "at_home", "right"),
    [
        (
            *("azure", "az://jobs/tw", "AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:10000/myaccount"),
            *("https://myaccount.blob.core.windows.net", "Microsoft.Storage"),
        ),
        (
            *("aws", "s3://my-bucket/tw", "AWS_ENDPOINT_URL_S3", "https://minio.example.org"),
            *("https://s3.eu-west-1.amazonaws.com", "s3:"),
        ),
    ],
)
def test_the_policy_has_no_rights_of_a_bucket_at_a_store_with_an_address_of_its_own(
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    cloud: str,
    root: str,
    variable: str,
    elsewhere: str,
    at_home: str,
    right: str,
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "myaccount")
    config = settings(cloud, root, ["eu-west-1" if cloud == "aws" else "eastus"])
    for endpoint in (elsewhere, at_home):
        monkeypatch.setenv(variable, endpoint)
        assert (right in policy(cloud, config).text) is (endpoint == at_home)


# --- AWS ---


def test_a_bucket_of_s3_is_made_where_its_clients_look_for_it(
    ec2_clients: tuple[LoopbackServer, Connections], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, s3, name = opened(*ec2_clients, None), S3(), f"tw-{secrets.token_hex(6)}"
    account.server.cloud = lambda request: account.prices(request) if request.path == "/" else s3(request)
    config = settings("aws", f"s3://{name}/tw", ["eu-west-1", "us-east-1"])
    monkeypatch.delenv("AWS_REGION")
    installation = open_installation(config)
    assert store_bucket(installation, "aws") is None  # AWS_ENDPOINT_URL: a store with an address of its own
    monkeypatch.setenv("TRADEWIND_STORE_REGION", "eu-west-1")
    assert "set AWS_REGION=eu-west-1" in said("up", "--cloud", "aws")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert "set AWS_REGION" not in said("up", "--cloud", "aws")
    (bucket,) = run("up", "--cloud", "aws")["buckets"]
    assert (bucket["url"], bucket["region"], bucket["missing"]) == (f"s3://{name}", "eu-west-1", [])
    for variable in ("AWS_REGION", "TRADEWIND_STORE_REGION"):
        monkeypatch.setenv(variable, "us-east-1")
    assert "set AWS_REGION=eu-west-1" in said("up", "--cloud", "aws")  # it stays where it is
    assert run("down", "--cloud", "aws")["buckets"] == []
    installation.close()


@pytest.mark.parametrize(
    ("environ", "region"),
    [({}, "eu-west-1"), ({"AWS_REGION": "us-west-2"}, "us-west-2"), ({"AWS_DEFAULT_REGION": "us-west-2"}, "us-west-2")],
)
def test_without_a_declared_region_that_of_the_environment_counts_for_s3(
    settings: Any, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], region: str
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    installation = open_installation(settings("aws", "s3://my-bucket/tw", ["eu-west-1", "us-east-1"]))
    found = store_bucket(installation, "aws", environ)
    assert found is not None
    assert (found.name, found.region) == ("my-bucket", region)
    assert found.looked_for_in == (region if environ else "us-east-1")
    installation.close()


# --- Azure ---


@pytest.fixture
def azure(
    arm_clients: tuple[LoopbackServer, LoopbackServer, AzureConnections],
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[Any, Installation]]:
    """A subscription without anything, and the installation that uses it."""
    account = opened_arm(*arm_clients, None)
    config = settings("azure", "az://jobs/tw", ["eastus", "westus2"], PROVIDERS_AZURE_SUBSCRIPTION=SUBSCRIPTION)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "myaccount")
    opened_here = open_installation(config)
    yield account, replace(opened_here, providers={"azure": account.connect()})
    opened_here.close()


def test_the_account_is_made_in_the_new_resource_group_and_both_go(azure: tuple[Any, Installation]) -> None:
    account, installation = azure
    account.arm.storage.takes_s = 20
    made = service.set_up(installation, ["azure"], quiet, clock=account.clock)
    (bucket,) = made.buckets
    assert (bucket.url, bucket.region, bucket.own, bucket.missing) == ("az://jobs", "eastus", True, ())
    gone = service.tear_down(installation, ["azure"], quiet, clock=account.clock)
    assert gone.buckets == ()
    assert not account.arm.storage.accounts
    assert not account.arm.networks.groups


def test_a_bucket_that_is_kept_keeps_its_resource_group(azure: tuple[Any, Installation]) -> None:
    account, installation = azure
    service.set_up(installation, ["azure"], quiet, clock=account.clock)
    account.arm.storage.files["jobs"] = {"tw/x": 1}
    lines: list[str] = []
    left = service.tear_down(installation, ["azure"], lines.append, clock=account.clock)
    assert [each.url for each in left.buckets] == ["az://jobs"]
    assert any("is kept" in line for line in lines)
    assert list(account.arm.networks.groups)
    assert not account.arm.networks.resources


def test_the_storage_account_must_be_named(azure: tuple[Any, Installation]) -> None:
    _, installation = azure
    with pytest.raises(UsageError, match="is not known") as raised:
        store_bucket(installation, "azure", {})
    assert raised.value.hint == "set AZURE_STORAGE_ACCOUNT_NAME"


@pytest.mark.parametrize(
    ("endpoint", "at_azure"),
    [
        ("https://myaccount.blob.core.windows.net", True),
        ("https://myaccount.z1.blob.storage.azure.net", True),
        ("http://127.0.0.1:10000/myaccount", False),
    ],
)
def test_nothing_is_made_at_azure_for_a_store_with_an_address_of_its_own(
    azure: tuple[Any, Installation], endpoint: str, at_azure: bool
) -> None:
    environ = {"AZURE_STORAGE_ACCOUNT_NAME": "myaccount", "AZURE_STORAGE_ENDPOINT": endpoint}
    assert (store_bucket(azure[1], "azure", environ) is not None) is at_azure


def test_a_folder_or_a_bucket_of_another_cloud_is_none_of_this_one(settings: Any, tmp_path: Path) -> None:
    for root in (str(tmp_path / "store"), "gs://my-bucket/tw"):
        installation = open_installation(settings("aws", root, ["eu-west-1"]))
        assert store_bucket(installation, "aws", {}) is None
        installation.close()


def test_up_waits_no_longer_than_it_says(azure: tuple[Any, Installation]) -> None:
    account, installation = azure
    account.arm.storage.takes_s = 1e9
    with pytest.raises(ProviderFailure, match=r"not finished after 600 s: Azure is still creating"):
        service.set_up(installation, ["azure"], quiet, clock=VirtualClock())


# --- throttled ---


class Waiting(VirtualClock):
    """Keeps the waits that were asked of it."""

    def sleep(self, wall_s: float) -> None:
        self.waits = [*getattr(self, "waits", []), wall_s]
        super().sleep(wall_s)


BUSY = error(429, "Quota exceeded for quota metric 'Queries'", "rateLimitExceeded", {"Retry-After": "30"})


def test_a_throttled_change_is_repeated_when_google_allows_it(google: Project, tmp_path: Path) -> None:
    installation, clock, lines = open_installation(load_config(cwd=tmp_path)), Waiting(), list[str]()
    google.fails("POST", "/global/networks", answer=BUSY)
    google.fails("POST", "/storage/", answer=BUSY)
    made = service.set_up(installation, ["gcp"], lines.append, clock=clock)
    assert [each.url for each in made.buckets] == ["gs://my-bucket"]
    google.fails("DELETE", "/global/networks", answer=BUSY)
    google.fails("DELETE", "/storage/", answer=BUSY)
    assert service.tear_down(installation, ["gcp"], lines.append, clock=clock).buckets == ()
    assert clock.waits == [30.0] * 4
    assert sum(line.startswith("waiting: rateLimitExceeded") for line in lines) == 4
    installation.close()


def test_up_does_not_wait_longer_than_it_may_when_the_cloud_asks_to(google: Project, tmp_path: Path) -> None:
    installation, clock = open_installation(load_config(cwd=tmp_path)), Waiting()
    asks = error(429, "slow", "rateLimitExceeded", {"Retry-After": "7200"})
    google.fails("POST", "/global/networks", times=None, answer=asks)
    with pytest.raises(ProviderFailure, match="the cloud asks to wait for 7200 s") as raised:
        service.set_up(installation, ["gcp"], quiet, clock=clock)
    assert raised.value.hint == "run the command again in 7200 s: it continues where it stopped"
    google.server.faults.clear()
    google.fails("POST", "/global/networks", times=None, answer=BUSY)
    with pytest.raises(ProviderFailure, match=r"not finished after 600 s: rateLimitExceeded"):
        service.set_up(installation, ["gcp"], quiet, clock=clock)
    assert sum(clock.waits) == 600
    installation.close()
