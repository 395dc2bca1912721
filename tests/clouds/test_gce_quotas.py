"""The vCPUs and GPUs that a project of GCP may run, through the unmodified google-cloud-compute, and plans that respect
them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.config import load_config
from orchestrator.engine.inputs.snapshot import market
from orchestrator.engine.machines.collect import collect
from orchestrator.installation import Installation, open_installation
from orchestrator.market import Room
from providers.base import Covered, LimitsByQuota, Quota
from providers.errors import QuotaError, UnavailableError
from providers.gcp.quotas import UNLIMITED
from tests.clouds.compute import PROJECT
from tests.clouds.gce_project import A2, E2, ON_DEMAND, SPOT, Project, spec

T4 = "n1-standard-8+1xnvidia-tesla-t4"
WITH_T4 = f"gcp/us-central1/us-central1-a/{T4}/spot"
HERE = ("us-central1",)


def quotas(project: Project, *types: str) -> dict[str, Quota]:
    found = project.connect(regions=HERE, machine_types=types).quotas()
    assert all("iam-admin/quotas" in each.remedy for each in found)
    return {each.name: each for each in found}


def test_plans_respect_quotas(project: Project) -> None:
    provider = project.connect()
    assert isinstance(provider, LimitsByQuota)
    assert provider.quotas_limit_plans


def test_quotas_are_those_of_the_regions_and_of_the_project_with_what_is_in_use(project: Project) -> None:
    project.gce.quota.update(
        {"NVIDIA_A100_GPUS": 4, "A2_CPUS": 48, "CPUS": 24, "GPUS_ALL_REGIONS": 8, "CPUS_ALL_REGIONS": 96}
    )
    project.gce.quota["NVIDIA_P4_GPUS"] = 7  # of no configured type
    project.connect().launch(spec(count=2))
    project.connect().launch(spec(ON_DEMAND, token="token-2"))
    project.connect().launch(spec(SPOT.replace("us-central1", "europe-west4"), token="token-3"))
    found = project.connect(regions=HERE, machine_types=(A2.name, E2.name, T4)).quotas()
    assert {(each.name, each.scope): (each.limit, each.used) for each in found} == {
        ("NVIDIA_A100_GPUS", "us-central1"): (4, 2),
        ("A2_CPUS", "us-central1"): (48, 24),
        ("CPUS", "us-central1"): (24, 4),
        ("GPUS_ALL_REGIONS", PROJECT): (8, 3),
        ("CPUS_ALL_REGIONS", PROJECT): (96, 40),
    }


def test_a_granted_quota_for_spot_machines_is_theirs_alone(project: Project) -> None:
    project.gce.quota.update({"NVIDIA_T4_GPUS": 1, "CPUS": 24, "N2_CPUS": 8})
    types = (T4, "n2-standard-4")
    before = quotas(project, *types)
    assert before["NVIDIA_T4_GPUS"].covers == Covered("gpus", HERE, ("n1-*+*xnvidia-tesla-t4",))
    assert before["CPUS"].covers == Covered("vcpus", HERE, ("n1-*", "e2-*"))
    assert before["N2_CPUS"].covers == Covered("vcpus", HERE, ("n2-*",))
    project.gce.quota.update({"PREEMPTIBLE_NVIDIA_T4_GPUS": 2, "PREEMPTIBLE_CPUS": 0, "E2_CPUS": 8})
    after = quotas(project, *types, E2.name)
    assert after["NVIDIA_T4_GPUS"].covers == Covered("gpus", HERE, ("n1-*+*xnvidia-tesla-t4",), spot=False)
    assert after["PREEMPTIBLE_NVIDIA_T4_GPUS"].covers == Covered("gpus", HERE, ("n1-*+*xnvidia-tesla-t4",), spot=True)
    assert after["CPUS"].covers == Covered("vcpus", HERE, ("n1-*",))
    assert after["E2_CPUS"].covers == Covered("vcpus", HERE, ("e2-*",))
    assert "PREEMPTIBLE_CPUS" not in after
    project.gce.quota["PREEMPTIBLE_CPUS"] = 16
    granted = quotas(project, *types)
    assert granted["PREEMPTIBLE_CPUS"].covers == Covered("vcpus", HERE, spot=True)
    assert granted["CPUS"].covers == Covered("vcpus", HERE, ("n1-*", "e2-*"), spot=False)


@pytest.mark.parametrize("many", [2, 3])
def test_what_the_quotas_say_is_what_the_cloud_lets_run(project: Project, many: int) -> None:
    project.gce.quota.update({"PREEMPTIBLE_NVIDIA_T4_GPUS": 2, "NVIDIA_T4_GPUS": 0, "CPUS": 64})
    if many == 2:
        assert len(project.connect().launch(spec(WITH_T4, count=many))) == many
        assert quotas(project, T4)["PREEMPTIBLE_NVIDIA_T4_GPUS"].used == many
        return
    with pytest.raises(QuotaError, match="PREEMPTIBLE_NVIDIA_T4_GPUS") as raised:
        project.connect().launch(spec(WITH_T4, count=many))
    assert raised.value.scope == "region"


def test_a_quota_of_all_regions_refuses_for_the_whole_account(project: Project) -> None:
    project.gce.quota["GPUS_ALL_REGIONS"] = 0
    with pytest.raises(QuotaError, match="GPUS_ALL_REGIONS") as raised:
        project.connect().launch(spec())
    assert raised.value.scope == "account"


def test_more_may_be_in_use_than_is_allowed_and_a_negative_limit_is_none(project: Project) -> None:
    project.gce.quota["GPUS_ALL_REGIONS"] = -1
    lists = project.gce.lists
    lists.quotas = lambda _: [{"metric": "CPUS", "limit": 24.0, "usage": 30.0}]
    found = quotas(project, "n1-standard-8")
    assert {name: (each.limit, each.used) for name, each in found.items()} == {"CPUS": (24, 24)}


@pytest.mark.parametrize("limit", ["Infinity", 9.3e18, 1e300])
def test_a_quota_without_a_limit_hides_no_other_quota(project: Project, limit: object) -> None:
    lists = project.gce.lists
    lists.quotas = lambda _: [
        {"metric": "CPUS", "limit": limit, "usage": 30.0},
        {"metric": "N2_CPUS", "limit": 8.0, "usage": 0.0},
    ]
    found = quotas(project, "n1-standard-8", "n2-standard-4")
    assert {name: (each.limit, each.used) for name, each in found.items()} == {
        "CPUS": (UNLIMITED, 30),
        "N2_CPUS": (8, 0),
    }


# --- plans ---


@pytest.fixture
def installation(project: Project, tmp_path: Path) -> Iterator[Installation]:
    settings = {"state_dir": str(tmp_path / "state"), "providers.enabled": "fake"}
    opened = open_installation(load_config(settings, environ={}, cwd=tmp_path))
    config = replace(opened.config, providers=replace(opened.config.providers, enabled=("gcp",)))
    yield replace(opened, config=config, clock=project.clock, providers={"gcp": project.connect(regions=HERE)})
    opened.close()


def rooms(installation: Installation) -> dict[str, Room]:
    collect(installation)
    with installation.store.read() as tx:
        seen = market(tx, installation.clock.now_ms(), installation.config)
    return {seen.ids[row]: room for row, (room, *_) in seen.rooms.items()}


def test_the_tightest_quota_limits_an_offer_and_is_named(project: Project, installation: Installation) -> None:
    project.gce.quota.update(
        {"NVIDIA_A100_GPUS": 4, "PREEMPTIBLE_NVIDIA_A100_GPUS": 2, "GPUS_ALL_REGIONS": 3, "CPUS": 8}
    )
    found = rooms(installation)
    expensive = SPOT.replace("/spot", "/on_demand")
    assert {id: (found[id].left, found[id].most) for id in (SPOT, expensive, ON_DEMAND)} == {
        SPOT: (2, 2),
        expensive: (3, 3),
        ON_DEMAND: (2, 2),
    }
    assert "your quota, not the market: PREEMPTIBLE_NVIDIA_A100_GPUS in us-central1 allows 2 GPUs" in found[SPOT].why(3)
    assert f"GPUS_ALL_REGIONS in {PROJECT} allows 3 GPUs" in found[expensive].why(4)
    project.connect().launch(spec())
    project.clock.advance(60)
    assert (rooms(installation)[SPOT].left, rooms(installation)[expensive].left) == (1, 2)


def test_what_gcp_cannot_look_up_leaves_the_quotas_as_they_were(project: Project, installation: Installation) -> None:
    project.gce.quota["GPUS_ALL_REGIONS"] = 3
    assert rooms(installation)[SPOT].most == 3
    project.gce.lists.quota_warning = "the quotas of this region cannot be read"
    with pytest.raises(UnavailableError, match="quotas of us-central1"):
        project.connect(regions=HERE).quotas()
    project.clock.advance(60)
    assert rooms(installation)[SPOT].most == 3
