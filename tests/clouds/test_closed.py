"""Configured regions and types that the account may not rent are named, with the reason and the remedy, by the
providers of the three clouds and by plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli.render.screens.plans import plan as rendered
from orchestrator.cli.render.text import Screen
from orchestrator.config import load_config
from orchestrator.engine.machines.collect import collect
from orchestrator.errors import InfeasibleError
from orchestrator.installation import Installation, open_installation
from orchestrator.services.jobs import feasible, plan
from providers.azure.provider import AzureProvider
from providers.azure.session import Connections
from providers.azure.settings import Settings
from providers.base import NamesClosed, Provider
from providers.clock import VirtualClock
from providers.closed import Closed
from providers.errors import PermissionDeniedError
from tests.clouds.arm import GROUP, IMAGE, SUBSCRIPTION
from tests.clouds.aws import THROTTLED
from tests.clouds.azure import AzureCloud, resource_sku, row
from tests.clouds.ec2_account import Account
from tests.clouds.gce_project import A2, E2, Project
from tests.clouds.gcp import error
from tests.clouds.server import LoopbackServer
from tests.clouds.test_anywhere import JOB

FAR = ("us-east-1", "ap-east-1")


def closed(provider: Provider) -> list[Closed]:
    assert isinstance(provider, NamesClosed)
    return list(provider.closed())


# --- providers ---


def test_aws_names_a_region_that_is_not_switched_on_and_a_type_that_a_region_lacks(account: Account) -> None:
    provider = account.connect(regions=FAR, instance_types=("g5.xlarge", "p9.huge"))
    assert provider.offers()
    region, kind = closed(provider)
    assert (region.region, region.instance_type) == ("ap-east-1", "")
    assert "does not accept this account" in region.reason
    assert "aws account enable-region --region-name ap-east-1" in region.remedy
    assert (kind.region, kind.instance_type) == ("us-east-1", "p9.huge")


def test_a_region_that_does_not_answer_now_is_not_closed(account: Account) -> None:
    account.fails("DescribeSpotPriceHistory", times=None, region="eu-west-1", answer=THROTTLED)
    provider = account.connect(instance_types=("g5.xlarge",))
    provider.prices()
    assert closed(provider) == []


def test_gcp_names_what_zones_do_not_have_and_an_interface_that_is_off(project: Project) -> None:
    provider = project.connect(regions=("us-central1", "moon-1"), machine_types=(A2.name, "a9-giant-1g"))
    assert provider.offers()
    assert {(each.region, each.instance_type) for each in closed(provider)} == {
        ("us-central1", "a9-giant-1g"),
        ("moon-1", A2.name),
        ("moon-1", "a9-giant-1g"),
    }
    off = error(
        403, "Compute Engine API has not been used in project 1 before or it is disabled", "accessNotConfigured"
    )
    project.fails("GET", "/regions", times=None, answer=off)
    project.connections._zones = None
    other = project.connect(regions=("us-central1",), machine_types=(E2.name,))
    with pytest.raises(PermissionDeniedError):
        other.offers()
    (region,) = closed(other)
    assert "gcloud services enable compute.googleapis.com" in region.remedy


def test_azure_names_restrictions_of_the_subscription_and_regions_without_any_machine(
    arm_clients: tuple[LoopbackServer, LoopbackServer, Connections],
) -> None:
    server, shop, connections = arm_clients
    good, barred = "Standard_NC24ads_A100_v4", "Standard_ND96asr_v4"
    skus = [
        resource_sku(good, "eastus", gpus=1, vcpus=24, memory_gb=220),
        resource_sku(barred, "eastus", restriction="NotAvailableForSubscription"),
    ]
    cloud = AzureCloud([row("eastus", good, 3.67)], skus, base=server.url)
    server.serve(cloud)
    shop.serve(replace(cloud, base=shop.url))
    prices = f"{shop.url}/api/retail/prices"
    settings = Settings(
        SUBSCRIPTION,
        GROUP,
        ("eastus", "qatarcentral"),
        (good, barred),
        ":".join((*IMAGE, "latest")),
        100,
        prices=prices,
    )
    provider = AzureProvider(settings, VirtualClock(1_790_000_000_000), connections)
    assert provider.offers()
    found = {(each.region, each.instance_type): each.reason for each in closed(provider)}
    assert "NotAvailableForSubscription" in found["eastus", barred]
    assert "no virtual machines in this region" in found["qatarcentral", good]
    assert set(found) == {("eastus", barred), ("qatarcentral", good), ("qatarcentral", barred)}


# --- plans ---


@pytest.fixture
def installation(account: Account, tmp_path: Path) -> Iterator[Installation]:
    settings = {"state_dir": str(tmp_path / "state"), "providers.enabled": "fake"}
    opened = open_installation(load_config(settings, environ={}, cwd=tmp_path))
    config = replace(opened.config, providers=replace(opened.config.providers, enabled=("aws",)))
    provider = account.connect(regions=FAR, instance_types=("g5.xlarge",))
    yield replace(opened, config=config, clock=account.clock, providers={"aws": provider})
    opened.close()


def test_a_plan_lists_what_may_not_be_rented_with_the_remedy(installation: Installation, account: Account) -> None:
    view = plan.preview(installation, [JOB])
    assert view.decisions[0].offer_id is not None
    (each,) = view.not_rentable
    assert each.place == "aws/ap-east-1"
    assert "not rentable: aws/ap-east-1; reasons: --why" in rendered(view, Screen())
    whole = rendered(view, Screen(why=True))
    assert f"aws/ap-east-1: {each.reason}; {each.remedy}" in whole
    account.prices.regions["ap-east-1"].opt_in = "opted-in"
    account.clock.advance(3600)
    assert [each.instance_type for each in plan.preview(installation, [JOB]).not_rentable] == ["g5.xlarge"]


def test_where_nothing_may_be_rented_the_error_says_why(installation: Installation, account: Account) -> None:
    here = replace(installation, providers={"aws": account.connect(regions=FAR[1:], instance_types=("g5.xlarge",))})
    view = plan.preview(here, [JOB])
    with pytest.raises(InfeasibleError, match=r"aws/ap-east-1: ap-east-1 does not accept this account.*enable-region"):
        feasible.require_feasible(view)


def test_a_failure_that_passes_closes_nothing(installation: Installation, account: Account) -> None:
    collect(installation)
    account.fails("DescribeSpotPriceHistory", times=None, answer=THROTTLED)
    account.clock.advance(3600)
    collect(installation)
    with installation.store.read() as tx:
        assert tx.polls("aws", 1)[0].error is not None
        assert [each.region for each in tx.closed("aws")] == ["ap-east-1"]
