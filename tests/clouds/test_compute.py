"""Renting on GCP, through the unmodified google-cloud-compute: launches, refusals, bad input and prices.

The machines are not started here; tests/contract/test_gcp.py and tests/e2e/test_three_clouds.py run real ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from providers.collect.permissions import Access
from providers.errors import (
    CapacityError,
    ConflictError,
    CutOffError,
    NotFoundError,
    PermissionDeniedError,
    ProviderError,
    QuotaError,
    SetupError,
    UnavailableError,
)
from providers.gcp.calls import CALLS as CALLS_MADE
from providers.gcp.codes import CODES
from providers.gcp.names import network_name
from providers.gcp.permissions import access
from providers.gcp.request import LONGEST_RUN_S
from providers.instance import EndReason, InstanceState
from providers.policy import Use, permissions
from tests.clouds.compute import FAMILY, IMAGE
from tests.clouds.gce_project import A2, C4, E2, HOUR_S, IMAGES, ON_DEMAND, SPOT, Project, any_spec, spec, the_machine
from tests.clouds.gcp import error

# --- launches ---


def test_what_a_launch_asks_for(project: Project) -> None:
    (name,) = project.connect().launch(spec(time_to_live_s=HOUR_S))
    (request,) = project.launches()
    asked = project.asked()
    assert request.path.endswith("/zones/us-central1-a/instances")
    assert len(request.query["requestId"]) == 36
    assert name == f"gcp-us-central1-a-{asked['name']}"
    assert asked["name"].startswith("tw-token-1-0-")
    assert asked["labels"]["tradewind-install"] == "tw-1"
    assert asked["labels"]["tradewind-job"].startswith("job-1-")
    assert asked["scheduling"] == {
        "provisioningModel": "SPOT",
        "instanceTerminationAction": "DELETE",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "maxRunDuration": {"seconds": str(LONGEST_RUN_S)},
        "preemptionNoticeDuration": {"seconds": "120"},
    }
    (disk,) = asked["disks"]
    assert disk["autoDelete"] is True
    assert disk["initializeParams"]["sourceImage"] == f"{IMAGES}/{IMAGE}"
    assert disk["initializeParams"]["diskSizeGb"] == "100"
    assert disk["initializeParams"]["labels"] == asked["labels"]
    assert "serviceAccounts" not in asked
    (card,) = asked["networkInterfaces"]
    assert card["network"] == f"global/networks/{network_name('tw-1')}"
    assert asked["tags"] == {"items": ["tradewind"]}
    assert the_machine(project).metadata["tradewind-lives"] == str(HOUR_S)
    assert the_machine(project).metadata["block-project-ssh-keys"] == "TRUE"
    assert the_machine(project).metadata["startup-script"].startswith("#!/bin/bash")


def test_a_disk_has_room_for_data_and_checkpoints(project: Project) -> None:
    project.connect(disk_gb=60).launch(spec(disk_gb=250))
    assert project.asked()["disks"][0]["initializeParams"]["diskSizeGb"] == "310"


def test_an_on_demand_machine_is_no_spot_machine(project: Project) -> None:
    (name,) = project.connect().launch(spec(ON_DEMAND))
    scheduling = project.asked()["scheduling"]
    assert (scheduling["provisioningModel"], scheduling["onHostMaintenance"]) == ("STANDARD", "MIGRATE")
    assert "preemptionNoticeDuration" not in scheduling
    (machine,) = project.connect().describe([name])
    assert machine.offer_id == ON_DEMAND
    assert machine.state is InstanceState.RUNNING
    assert machine.tags["tradewind-job"] == "Job 1"


def test_gpus_are_attached_to_n1_and_new_types_get_a_hyperdisk(project: Project) -> None:
    attached = SPOT.replace(A2.name, "n1-standard-8+1xnvidia-tesla-t4")
    (name,) = project.connect().launch(spec(attached))
    asked = project.asked()
    assert asked["machineType"] == "zones/us-central1-a/machineTypes/n1-standard-8"
    card = {"acceleratorType": "zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4", "acceleratorCount": 1}
    assert asked["guestAccelerators"] == [card]
    assert asked["disks"][0]["initializeParams"]["diskType"].endswith("/pd-balanced")
    assert project.connect().describe([name])[0].offer_id == attached
    project.connect().launch(spec(SPOT.replace(A2.name, C4.name), token="token-2"))
    assert project.asked()["disks"][0]["initializeParams"]["diskType"].endswith("/hyperdisk-balanced")


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("offer", [SPOT, ON_DEMAND])
def test_no_capacity_is_one_whether_the_answer_or_the_operation_says_so(
    project: Project, late: bool, offer: str
) -> None:
    project.gce.refuses_late = late
    _, _, zone, kind, capacity = offer.split("/")
    project.gce.capacity[kind, zone, capacity == "spot"] = 0
    with pytest.raises(CapacityError, match="currently unavailable") as raised:
        project.connect().launch(spec(offer))
    assert raised.value.scope == "zone"
    assert len(project.launches()) == 1
    assert not project.gce.vms


@pytest.mark.parametrize("late", [False, True])
def test_a_quota_is_none_of_capacity_nor_of_calls(project: Project, late: bool) -> None:
    project.gce.refuses_late = late
    project.gce.quota["NVIDIA_A100_GPUS"] = 0
    with pytest.raises(QuotaError, match="NVIDIA_A100_GPUS") as raised:
        project.connect().launch(spec())
    assert raised.value.scope == "region"
    assert "quotas" in raised.value.hint


def test_several_machines_are_launched_all_or_none(project: Project) -> None:
    project.gce.capacity[A2.name, "us-central1-a", True] = 2
    with pytest.raises(CapacityError):
        project.connect().launch(spec(count=3))
    assert not project.gce.vms
    ids = project.connect().launch(spec(count=2, token="token-2"))
    assert len(set(ids)) == 2
    assert [each.path.rpartition("/")[2] for each in project.launches()] == ["bulkInsert", "bulkInsert"]
    assert [each.id for each in project.connect().describe(ids)] == list(ids)


@pytest.mark.parametrize("count", [1, 2])
def test_a_launch_whose_answer_is_lost_is_repeated_without_a_second_machine(project: Project, count: int) -> None:
    project.fails("POST", "/instances", lost=True)
    with pytest.raises(CutOffError) as raised:
        project.connect().launch(spec(count=count))
    assert raised.value.retryable
    again = project.connect().launch(spec(count=count))
    assert sorted(again) == sorted(f"gcp-us-central1-a-{each.row.name}" for each in project.gce.vms)
    assert len(again) == count


def test_a_request_that_gcp_has_forgotten_makes_no_second_machine_either(project: Project) -> None:
    first = project.connect().launch(spec())
    project.gce.forgets_requests = True
    assert project.connect().launch(spec()) == first
    with pytest.raises(ConflictError):
        project.connect().launch(spec(user_data="other\n"))
    assert len(project.gce.vms) == 1


def test_what_a_used_token_has_launched_may_not_be_shown_yet(project: Project) -> None:
    project.gce.lag_s = 30
    project.connect().launch(spec())
    with pytest.raises(UnavailableError, match="does not yet show"):
        project.connect().launch(spec(user_data="other\n"))


def test_a_refusal_after_the_launch_was_accepted_is_the_end_of_the_machine(project: Project) -> None:
    project.gce.capacity[A2.name, "us-central1-a", True] = 0
    project.gce.pending_s = 40  # longer than a launch is watched
    (name,) = project.connect().launch(spec())
    assert project.connect().describe([name]) == []
    project.clock.advance(40)
    (ended,) = project.connect().describe([name])
    assert (ended.state, ended.end_reason, ended.billed_from_ms) == (InstanceState.TERMINATED, EndReason.FAILED, None)
    assert ended.offer_id == SPOT


@pytest.mark.parametrize("how", [{"hang": True}, {"lost": True}, {"answer": error(503, "busy", "backendError")}])
def test_a_launch_was_accepted_even_if_its_operation_cannot_be_watched(project: Project, how: dict[str, Any]) -> None:
    project.gce.pending_s = 5
    project.fails("POST", "/wait", **how)
    provider = project.connect()
    if "hang" in how:
        provider._connections.once = _hurried(provider._connections.once)  # type: ignore[method-assign]
    (name,) = provider.launch(spec())
    assert name.endswith(the_machine(project).row.name)


def _hurried(once: Any) -> Any:
    return lambda client, method, timeout_s=None, **fields: once(client, method, 0.2, **fields)


def test_the_library_asks_nobody_but_the_endpoint_for_an_operation(project: Project) -> None:
    """Its own futures poll through a client without the endpoint; tests/conftest.py refuses any other address."""
    project.gce.pending_s = 5
    project.connect().launch(spec())
    assert len(project.server.asked("/wait")) == 1


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_known_code_becomes_the_error_of_the_table(project: Project, code: str) -> None:
    project.fails("POST", "/instances", answer=error(400, "said Google", code))
    expected: type[ProviderError] = CODES[code].kind
    if expected is ConflictError:
        expected = UnavailableError  # it asks what was launched, and that is not shown
    with pytest.raises(expected) as raised:
        project.connect().launch(spec())
    assert not project.gce.vms
    if expected is CODES[code].kind:
        assert code in str(raised.value)
        assert raised.value.scope == CODES[code].scope


def test_an_unknown_code_is_an_error_of_the_request(project: Project) -> None:
    project.fails("POST", "/instances", answer=error(400, "said Google", "somethingNew"))
    with pytest.raises(ProviderError, match="said Google") as raised:
        project.connect().launch(spec())
    assert not raised.value.retryable


def test_a_missing_permission_is_named_with_the_role_that_has_it(project: Project) -> None:
    project.gce.granted = frozenset(permissions(CALLS_MADE, Use.MACHINES)) - {"compute.instances.create"}
    with pytest.raises(PermissionDeniedError) as raised:
        project.connect().launch(spec())
    assert raised.value.action == "compute.instances.create"
    assert "roles/compute.instanceAdmin.v1" in raised.value.hint


@pytest.mark.parametrize("missing", [None, *permissions(CALLS_MADE, Use.MACHINES)])
def test_the_printed_role_is_enough_and_no_permission_is_superfluous(project: Project, missing: str | None) -> None:
    project.gce.granted = frozenset(permissions(CALLS_MADE, Use.MACHINES)) - {missing}
    image = f"{IMAGES}/{IMAGE}" if missing == "compute.images.get" else f"{IMAGES}/family/{FAMILY}"
    provider = project.connect(image=image)
    project.gce.pending_s = 5

    def everything() -> None:
        (name,) = provider.launch(spec())
        provider.launch_any(any_spec(token="token-2"))
        project.clock.advance(5)
        provider.renew([name], HOUR_S)
        provider.find("token-1", "us-central1")
        provider.quotas()
        provider.list_owned("tw-1")
        provider.terminate(name)

    if missing is None:
        everything()
    elif missing in ("compute.zoneOperations.get", "compute.regionOperations.get"):
        everything()  # a refusal then shows only when the machine is described
    else:
        with pytest.raises(PermissionDeniedError) as raised:
            everything()
        assert raised.value.action == missing


def test_doctor_compares_the_driver_that_the_images_name_states_with_the_gpus(project: Project) -> None:
    gce, provider = project.gce, project.connect()

    def found(*types: str) -> Access:
        settings = replace(provider._settings, image=f"{IMAGES}/family/{gce.family}", machine_types=types)
        return {each.what: each for each in access(project.connections, settings=settings)}["driver of the image"]

    assert found("a2-highgpu-1g").detail.startswith("the image does not state its driver")
    gce.family = "pytorch-2-7-cu128-ubuntu-2204-nvidia-570"
    gce.image = f"{gce.family}-v20260120"
    assert found("a2-highgpu-1g", "n1-standard-8+1xnvidia-tesla-t4").detail == "570 with CUDA 12, fits A100-40GB, T4"
    assert found("e2-micro").detail.startswith("not needed")
    gce.image = gce.family = "pytorch-2-4-cu124-nvidia-550"
    wrong = found("a4-highgpu-8g")
    assert (wrong.works, wrong.needed) == (False, False)
    assert "550 does not support B200" in wrong.detail
    assert "providers.gcp.image" in wrong.remedy


def test_doctor_says_what_renting_needs(project: Project) -> None:
    provider = project.connect()
    provider.launch(spec())
    project.gce.quota["GPUS_ALL_REGIONS"] = 8
    found = {each.what: each for each in access(project.connections, settings=provider._settings)}
    assert found["image"].detail.endswith(IMAGE)
    assert found["list of machines"].detail == "1 of Tradewind"
    assert "GPUS_ALL_REGIONS 8" in found["limits"].detail
    wrong = replace(provider._settings, image=f"{IMAGES}/none")
    found = {each.what: each for each in access(project.connections, settings=wrong)}
    assert not found["image"].works
    assert "providers.gcp.image" in found["image"].remedy


# --- bad input: a named error, and nothing is launched ---


def test_a_script_beyond_the_limit_is_not_sent(project: Project) -> None:
    with pytest.raises(SetupError, match=r"startup-script .* has \d+ bytes; the limit is 262144"):
        project.connect().launch(spec(user_data="x" * 270_000))
    assert not project.launches()


def test_a_token_that_does_not_fit_into_a_name(project: Project) -> None:
    for token in ("Token", "x" * 33, "a_b", "-a"):
        with pytest.raises(SetupError, match="launch token"):
            project.connect().launch(spec(token=token))
    assert not project.launches()


def test_an_image_that_does_not_exist(project: Project) -> None:
    for image in (f"{IMAGES}/family/none", f"{IMAGES}/none", "debian"):
        with pytest.raises(SetupError) as raised:
            project.connect(image=image).launch(spec())
        assert "providers.gcp.image" in raised.value.hint
    assert not project.launches()


def test_a_disk_that_is_smaller_than_the_image(project: Project) -> None:
    with pytest.raises(SetupError, match="needs a disk of 10 GiB") as raised:
        project.connect(disk_gb=4).launch(spec())
    assert "disk_gb" in raised.value.hint
    assert not project.launches()


def test_only_what_is_configured_is_rented(project: Project) -> None:
    for other in (
        SPOT.replace(A2.name, "a2-highgpu-2g"),
        SPOT.replace("us-central1", "us-west1"),
        SPOT.replace("gcp/us-central1", "gcp/europe-west4"),
        "gcp/what",
    ):
        with pytest.raises(NotFoundError):
            project.connect().launch(spec(other))
    assert not project.launches()


# --- prices ---


def test_the_configured_types_are_offered_with_and_without_gpus(project: Project) -> None:
    provider = project.connect(regions=("us-central1",), machine_types=(A2.name, E2.name))
    offers = {offer.id: offer for offer in provider.offers()}
    assert offers[SPOT].gpu == "A100-40GB"
    assert offers[ON_DEMAND].gpu is None
    assert len(offers) == 2 * 2 * 2  # zones, types, ways to buy
    prices = {point.offer_id: point.nano_usd_per_hour for point in provider.prices()}
    assert prices.keys() == offers.keys()
    assert prices[ON_DEMAND] == round((4 * 0.02 + 16 * 0.003) * 1e9)


def test_prices_are_read_once_an_hour_and_a_silent_region_keeps_its_own(project: Project) -> None:
    provider = project.connect(machine_types=(A2.name,))
    before = list(provider.offers())
    asked = len(project.server.asked("skus"))
    provider.prices()
    assert len(project.server.asked("skus")) == asked
    project.fails("GET", "europe-west4-a/machineTypes", times=None, answer=error(503, "no", "backendError"))
    project.clock.advance(HOUR_S)
    assert list(provider.offers()) == before
    assert len(project.server.asked("skus")) == 2 * asked
    with pytest.raises(UnavailableError):
        project.connect(regions=("europe-west4",)).prices()
