"""What `plan --anywhere` says enabling a cloud would save, against a loopback AWS that is enabled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.render.screens.plans import plan as rendered
from orchestrator.cli.render.text import Screen
from orchestrator.config import load_config
from orchestrator.config.clouds import AwsProvider
from orchestrator.config.settings import Prices
from orchestrator.installation import Installation, open_installation
from orchestrator.model import Expected, GpuRequest, JobSpec, Resources, TrainSpec, Where
from orchestrator.services.jobs import plan
from orchestrator.services.jobs.enabling import SIMULATED
from orchestrator.services.views import PlanView
from tests.clouds.ec2_account import Account

NOW_MS = 1_795_000_000_000  # some days after the newest fact of the catalogue
A10G, V100 = GpuRequest("A10G", 1), GpuRequest("V100", 1)
TRAIN = TrainSpec(entry="train:main", script=None, args={}, workdir="/", env={}, secrets=(), steps=5000, epochs=None)
JOB = JobSpec(name="far", train=TRAIN, resources=Resources(gpus=(A10G, V100)), expected=Expected(A10G, 0.1))


@pytest.fixture
def installation(account: Account, tmp_path: Path) -> Iterator[Installation]:
    account.clock.advance((NOW_MS - account.clock.now_ms()) / 1000)
    settings = {"state_dir": str(tmp_path / "state"), "providers.enabled": "fake"}
    opened = open_installation(load_config(settings, environ={}, cwd=tmp_path))
    aws = AwsProvider(regions=("us-east-1",), instance_types=("g5.xlarge",))
    config = replace(opened.config, providers=replace(opened.config.providers, enabled=("aws",), aws=aws))
    provider = account.connect(regions=("us-east-1",), instance_types=("g5.xlarge",))
    yield replace(opened, config=config, clock=account.clock, providers={"aws": provider})
    opened.close()


def anywhere(account: Account, installation: Installation, usd: str, **changes: Any) -> tuple[PlanView, str]:
    """The plan, and its text, with g5.xlarge enabled at this price."""
    region = account.prices.regions["us-east-1"]
    region.on_demand_usd["g5.xlarge"] = "3.006"
    region.changes[:] = [replace(each, usd=usd, at_ms=account.clock.now_ms() - 1000) for each in region.changes]
    account.clock.advance(3600)
    view = plan.preview(installation, [replace(JOB, **changes)], anywhere=True, wall=account.clock)
    return view, rendered(view, Screen())


def test_the_saving_of_each_cloud_is_shown_with_its_share_and_the_age_of_prices(
    account: Account, installation: Installation
) -> None:
    view, shown = anywhere(account, installation, "2.9")
    found = {each.cloud: each for each in view.enabling if not each.enabled}
    assert set(found) == {"azure", "gcp"}, "of the catalogue's clouds, those for which there is a provider"
    best = max(found.values(), key=lambda each: each.saving_nano_usd)
    assert 0 < best.saving_nano_usd < best.of_nano_usd
    assert best.price_age_s is not None
    share = round(100 * best.saving_nano_usd / best.of_nano_usd)
    assert best.regions
    assert f"enabling {best.cloud} ({', '.join(best.regions)})" in shown
    assert f"({share}%, estimate, prices up to " in shown


def test_a_cloud_with_nothing_cheaper_says_so(account: Account, installation: Installation) -> None:
    view, shown = anywhere(account, installation, "0.15")
    assert [(each.cloud, each.saving_nano_usd) for each in view.enabling] == [("azure", 0), ("gcp", 0), ("aws", 0)]
    assert "azure, gcp: nothing cheaper" in shown
    assert "would save" not in shown


def test_a_cloud_that_the_job_excludes_saves_nothing(account: Account, installation: Installation) -> None:
    view, _ = anywhere(account, installation, "2.9", where=Where(clouds=("aws", "gcp")))
    saves = {each.cloud: each.saving_nano_usd > 0 for each in view.enabling if not each.enabled}
    assert saves == {"azure": False, "gcp": True}


@pytest.mark.parametrize(
    ("instance_type", "regions"), [("g5.xlarge", {"us-east-2", "us-west-2"}), ("p4d.24xlarge", set())]
)
def test_a_region_that_could_be_added_to_an_enabled_cloud_is_named_with_its_setting(
    account: Account, installation: Installation, instance_type: str, regions: set[str]
) -> None:
    config = installation.config
    configured = replace(config.providers.aws, instance_types=(instance_type,))
    config = replace(config, providers=replace(config.providers, aws=configured), prices=Prices(max_age_days=1000))
    view, shown = anywhere(account, replace(installation, config=config), "2.9", where=Where(clouds=("aws",)))
    assert not any(each.saving_nano_usd for each in view.enabling if not each.enabled), "the job allows only aws"
    added = [each for each in view.enabling if each.enabled and each.saving_nano_usd > 0]
    assert bool(added) == bool(regions)
    for each in added:
        assert each.cloud == "aws"
        assert set(each.regions) <= regions, "not us-east-1, which is configured"
        assert each.saving_nano_usd < each.of_nano_usd
        assert f"adding {each.regions[0]} to providers.aws.regions would save about $" in shown


def test_a_saving_that_is_not_known_is_not_reported(account: Account, installation: Installation) -> None:
    simulated = replace(installation, providers={})
    for used, changes, reason in (
        (installation, {"expected": None}, "the speed is not known"),
        (installation, {"resources": Resources(gpus=(GpuRequest("H100", 8),))}, "no enabled provider can run it now"),
        (simulated, {}, SIMULATED),
    ):
        view, shown = anywhere(account, used, "0.4", **changes)
        assert (view.saving_unknown, view.enabling) == (reason, ())
        assert f"the saving from enabling a cloud is unknown: {reason}" in shown


@pytest.mark.parametrize("expected", [Expected(A10G, 0.1), None])
def test_where_the_cheapest_cloud_cannot_be_rented_the_cheapest_that_can_be_enabled_is_named(
    account: Account, installation: Installation, expected: Expected | None
) -> None:
    """Also where no saving is known, because the enabled providers are simulated."""
    simulated = replace(installation, providers={})
    view, shown = anywhere(account, simulated, "2.9", expected=expected)
    assert view.no_provider
    assert view.could_enable is not None
    assert set(view.could_enable.clouds) <= {"aws", "azure", "gcp"}
    assert view.could_enable.regions
    assert f"cheapest to enable: {view.could_enable.clouds[0]} (" in shown
    if expected is None:
        assert view.could_enable.cost_nano_usd is None
    else:
        (decided,) = view.decisions
        assert decided.cost_nano_usd is not None
        assert (view.could_enable.cost_nano_usd or 0) >= decided.cost_nano_usd
        assert "(estimate)" in shown
        assert "(estimate, prices up to " in rendered(view, Screen(why=True))
    only, _ = anywhere(account, simulated, "2.9", expected=expected, where=Where(clouds=view.no_provider))
    assert only.could_enable is None, "the job allows no other cloud"
    able, _ = anywhere(account, simulated, "2.9", expected=expected, where=Where(clouds=("gcp",)))
    assert (able.no_provider, able.could_enable) == ((), None)
