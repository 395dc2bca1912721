"""[providers.azure] of tradewind.toml: what may be wrong there is named with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config import Config, load_config
from orchestrator.errors import SpecError
from providers.azure.prices.retail import PRICES
from providers.azure.session import MANAGEMENT
from providers.azure.settings import subscription
from providers.errors import NoCredentialsError

GOOD = """[providers]
enabled = ["azure"]
[providers.azure]
regions = ["eastus"]
instance_types = ["Standard_NC24ads_A100_v4", "Standard_D4s_v5"]
image = "microsoft-dsvm:ubuntu-hpc:2404:latest"
"""
SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"


def load(folder: Path, text: str) -> Config:
    (folder / "tradewind.toml").write_text(text)
    return load_config(cwd=folder, environ={})


def test_azure_is_configured_by_regions_sizes_and_an_image(tmp_path: Path) -> None:
    azure = load(tmp_path, GOOD).providers.azure
    assert (azure.regions, azure.instance_types) == (("eastus",), ("Standard_NC24ads_A100_v4", "Standard_D4s_v5"))
    assert (azure.disk_gb, azure.resource_group, azure.management) == (100, "tradewind", MANAGEMENT)
    assert azure.prices == PRICES


def test_everything_else_may_be_set(tmp_path: Path) -> None:
    more = f"""subscription = "{SUBSCRIPTION.upper()}"
resource_group = "my-group_(1)"
management = "https://management.chinacloudapi.cn/"
prices = "https://prices.azure.cn/api/retail/prices"
"""
    azure = load(tmp_path, GOOD + more).providers.azure
    assert (azure.subscription, azure.resource_group) == (SUBSCRIPTION, "my-group_(1)")
    assert azure.management == "https://management.chinacloudapi.cn"
    image = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/mine"
    assert load(tmp_path, GOOD.replace("microsoft-dsvm:ubuntu-hpc:2404:latest", image)).providers.azure.image == image


def test_the_subscription_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", "of the environment")
    assert subscription(None) == "of the environment"
    assert subscription(SUBSCRIPTION) == SUBSCRIPTION
    monkeypatch.delenv("AZURE_SUBSCRIPTION_ID")
    with pytest.raises(NoCredentialsError, match="no Azure subscription") as raised:
        subscription(None)
    assert "providers.azure.subscription" in raised.value.hint


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('["eastus"]', '["East US"]', "'East US' is not valid"),
        ('["eastus"]', "[]", "must be a list of regions"),
        ('"Standard_D4s_v5"', '"D4s_v5"', "must be a list of sizes; 'D4s_v5' is not valid"),
        ('"microsoft-dsvm:ubuntu-hpc:2404:latest"', '"microsoft-dsvm:ubuntu-hpc"', "must be publisher:offer:sku:"),
        ('image = "mic', 'resource_group = "a."\nimage = "mic', "must be the name of a resource group"),
        ('image = "mic', 'subscription = "mine"\nimage = "mic', "must be the id of a subscription"),
        ('image = "mic', 'management = "http://here"\nimage = "mic', "must be an address"),
        ('image = "mic', 'prices = "here"\nimage = "mic', "must be an address"),
    ],
)
def test_a_mistake_is_reported_with_its_line(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    with pytest.raises(SpecError) as raised:
        load(tmp_path, text := GOOD.replace(right, wrong))
    (problem,) = raised.value.problems
    assert said in problem.message
    assert text.splitlines()[problem.line - 1].startswith(problem.field.rpartition(".")[2])


@pytest.mark.parametrize("setting", ["regions", "instance_types", "image"])
def test_what_is_missing_is_named_with_an_example(tmp_path: Path, setting: str) -> None:
    kept = "\n".join(line for line in GOOD.splitlines() if not line.startswith(setting))
    with pytest.raises(SpecError) as raised:
        load(tmp_path, kept)
    (problem,) = raised.value.problems
    assert problem.message == f"azure needs providers.azure.{setting}"
    assert problem.line == 2
    assert "such as" in problem.hint
