"""Renting on GCP in any of several zones, through the unmodified google-cloud-compute: one call to the region.

The machines are not started here; tests/contract/test_gcp.py runs real ones.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from providers.errors import CapacityError, ConflictError, NotFoundError, QuotaError, SetupError, UnavailableError
from providers.gcp.calls import CALLS
from providers.gcp.names import network_name
from providers.instance import EndReason, InstanceState
from providers.policy import Use, permissions
from tests.clouds.gce_project import A2, E2, N1, ON_DEMAND, SPOT, Project, any_spec, spec, the_machine
from tests.clouds.gcp import GcpZone, error
from tests.clouds.server import Fault, Request

A, B = "us-central1-a", "us-central1-b"
NEXT_DOOR = SPOT.replace(A, B)


def fill(project: Project, zone: str, machines: int = 0) -> None:
    project.gce.capacity[A2.name, zone, True] = machines


def test_what_a_launch_in_any_zone_asks_for(project: Project) -> None:
    for zone in ("us-central1-c", "us-central1-f"):
        project.gce.lists.zones[zone] = GcpZone([A2])
    fill(project, A)
    landed = project.connect().launch_any(any_spec())
    (request,), asked = project.launches(), project.asked()
    assert request.path.endswith("/regions/us-central1/instances/bulkInsert")
    assert len(request.query["requestId"]) == 36
    assert (asked["count"], asked["minCount"]) == ("1", "1")
    assert asked["locationPolicy"]["targetShape"] == "ANY_SINGLE_ZONE"
    assert {zone: each["preference"] for zone, each in asked["locationPolicy"]["locations"].items()} == {
        f"zones/{A}": "ALLOW",
        f"zones/{B}": "ALLOW",
        "zones/us-central1-c": "DENY",
        "zones/us-central1-f": "DENY",
    }
    (name,) = asked["perInstanceProperties"]
    assert landed.offer_id == NEXT_DOOR
    assert landed.instance_ids == (f"gcp-{B}-{name}",)
    of_one = json.loads(json.dumps(asked["instanceProperties"]))
    project.connect().launch(spec(NEXT_DOOR, token="token-2"))
    alone = project.asked()
    for part in ("scheduling", "tags", "labels"):
        assert of_one[part] == alone[part], "it asks for the same machine as a launch in one zone"
    assert of_one["disks"][0]["initializeParams"]["labels"] == of_one["labels"]
    assert {each["key"] for each in of_one["metadata"]["items"]} == {each["key"] for each in alone["metadata"]["items"]}


def test_a_zone_that_was_not_named_is_never_taken(project: Project) -> None:
    project.gce.lists.zones["us-central1-c"] = GcpZone([A2])
    fill(project, A)
    fill(project, B)
    with pytest.raises(CapacityError):
        project.connect().launch_any(any_spec())
    assert not project.gce.vms


@pytest.mark.parametrize("late", [False, True])
def test_no_capacity_in_any_zone_is_one_refusal(project: Project, late: bool) -> None:
    project.gce.refuses_late = late
    fill(project, A)
    fill(project, B)
    with pytest.raises(CapacityError) as raised:
        project.connect().launch_any(any_spec())
    assert raised.value.scope == "zone"
    assert len(project.launches()) == 1
    assert not project.gce.vms
    fill(project, B, 1)
    assert project.connect().launch_any(any_spec()).offer_id == NEXT_DOOR


@pytest.mark.parametrize("late", [False, True])
def test_a_quota_is_none_of_capacity(project: Project, late: bool) -> None:
    project.gce.refuses_late = late
    project.gce.quota["NVIDIA_A100_GPUS"] = 0
    with pytest.raises(QuotaError, match="NVIDIA_A100_GPUS"):
        project.connect().launch_any(any_spec())
    assert not project.gce.vms


def test_a_gang_lands_in_one_zone_or_nowhere(project: Project) -> None:
    fill(project, A, 2)
    fill(project, B, 2)
    with pytest.raises(CapacityError):
        project.connect().launch_any(any_spec(count=3))
    assert not project.gce.vms
    fill(project, B, 3)
    landed = project.connect().launch_any(any_spec(count=3, token="token-2"))
    assert Counter(each.zone for each in project.gce.vms) == {B: 3}
    assert landed.instance_ids == tuple(sorted(f"gcp-{B}-{each.row.name}" for each in project.gce.vms))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("how", ["lost", "forgotten", "slow"])
def test_a_launch_whose_answer_is_lost_is_repeated_without_a_second_machine(
    project: Project, count: int, how: str
) -> None:
    """Also after GCP has forgotten the request, and while nothing is shown yet."""
    project.fails("POST", "/bulkInsert", lost=True)
    project.gce.lag_s = 30.0 if how == "slow" else 0.0
    fill(project, A)
    with pytest.raises(UnavailableError):
        project.connect().launch_any(any_spec(count=count))
    fill(project, A, 9)
    project.gce.forgets_requests = how == "forgotten"
    for _ in range(5):
        landed = project.connect().launch_any(any_spec(count=count))
        assert landed.offer_id == NEXT_DOOR
        assert len(landed.instance_ids) == len(project.gce.vms) == count
        project.clock.advance(10)


def test_an_effect_that_comes_late_in_another_zone_does_not_double_the_machine(project: Project) -> None:
    failed = error(500, "Internal error", "backendError")
    late = project.server.postpones(lambda request: "bulkInsert" in request.path, failed)
    with pytest.raises(UnavailableError):
        project.connect().launch_any(any_spec())
    fill(project, A)
    landed = project.connect().launch_any(any_spec())
    fill(project, A, 9)
    fill(project, B)
    project.server.cloud(late[0])
    assert len(project.gce.vms) == 1
    assert project.connect().launch_any(any_spec()) == landed


@pytest.mark.parametrize("how", [{"lost": True}, {"answer": error(503, "busy", "backendError")}])
def test_an_operation_that_cannot_be_watched_leaves_what_is_shown(project: Project, how: dict[str, Any]) -> None:
    project.gce.pending_s = 5
    project.fails("POST", "/wait", **how)
    landed = project.connect().launch_any(any_spec())
    assert landed.instance_ids == (f"gcp-{the_machine(project).zone}-{the_machine(project).row.name}",)


def test_where_a_machine_is_may_not_be_shown_yet(project: Project) -> None:
    project.gce.pending_s = project.gce.lag_s = 40
    with pytest.raises(UnavailableError, match="does not show yet in which zone"):
        project.connect().launch_any(any_spec())
    project.clock.advance(40)
    landed = project.connect().launch_any(any_spec())
    assert [each.id for each in project.connect().find("token-1", "us-central1")] == list(landed.instance_ids)
    assert len(project.gce.vms) == 1


def test_a_refusal_after_the_launch_was_accepted_is_a_refusal_of_the_next_call(project: Project) -> None:
    fill(project, A)
    fill(project, B)
    project.gce.pending_s = 40  # longer than a launch is watched
    with pytest.raises(UnavailableError, match="does not show yet in which zone"):
        project.connect().launch_any(any_spec())
    project.clock.advance(40)
    project.gce.pending_s = 0
    with pytest.raises(CapacityError):
        project.connect().launch_any(any_spec())
    assert not project.gce.vms
    assert not project.connect().find("token-1", "us-central1")


def test_a_machine_that_has_ended_keeps_its_token(project: Project) -> None:
    landed = project.connect().launch_any(any_spec())
    project.connect().terminate(landed.instance_ids[0])
    for operation in (each for _, each in project.gce.operations):
        operation.instances_bulk_insert_operation_metadata = {}  # what happened is only in the log
    again = project.connect().launch_any(any_spec())
    assert again == landed
    assert len(project.gce.vms) == 1
    (ended,) = project.connect().find("token-1", "us-central1")
    assert (ended.id, ended.offer_id, ended.end_reason) == (landed.instance_ids[0], landed.offer_id, EndReason.USER)


def test_a_zone_where_a_creation_failed_hides_nothing_of_the_one_where_it_did_not(project: Project) -> None:
    """GCP may try one zone after the other."""
    fill(project, A)
    landed = project.connect().launch_any(any_spec())
    vm = the_machine(project)
    _, failed = project.gce.operations[0]
    tried = type(failed)(failed)
    tried.operation_type, tried.name, tried.zone = "insert", "operation-other", A
    tried.target_link = f"https://www.googleapis.com/compute/v1/projects/p/zones/{A}/instances/{vm.row.name}"
    tried.error.errors = [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "none"}]
    project.gce.operations.append((A, tried))
    project.gce._due[tried.name] = project.gce.now(), None
    (found,) = project.connect().find("token-1", "us-central1")
    assert (found.id, found.state) == (landed.instance_ids[0], InstanceState.RUNNING)


def test_another_request_with_the_token_is_a_conflict_wherever_the_first_one_landed(project: Project) -> None:
    landed = project.connect().launch_any(any_spec())
    for other in (
        any_spec(user_data="other\n"),
        any_spec(count=2),
        any_spec(NEXT_DOOR, zones=(A,)),
        any_spec(disk_gb=7),
    ):
        with pytest.raises(ConflictError):
            project.connect().launch_any(other)
    with pytest.raises(ConflictError):
        project.connect().launch(spec(landed.offer_id))
    assert len(project.gce.vms) == 1


def test_attached_gpus_and_on_demand_machines_are_launched_so_too(project: Project) -> None:
    attached = SPOT.replace(A2.name, f"{N1.name}+1xnvidia-tesla-t4")
    landed = project.connect().launch_any(any_spec(attached))
    properties = project.asked()["instanceProperties"]
    assert properties["machineType"] == N1.name
    assert properties["guestAccelerators"] == [{"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": 1}]
    assert project.connect().describe(landed.instance_ids)[0].offer_id == landed.offer_id
    project.gce.capacity[E2.name, B, False] = 0
    landed = project.connect().launch_any(any_spec(ON_DEMAND, zones=(A,), token="token-2"))
    assert landed.offer_id == ON_DEMAND.replace(B, A)
    assert project.asked()["instanceProperties"]["scheduling"]["provisioningModel"] == "STANDARD"


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (SPOT.replace("us-central1-a", "us-west1-a"), NotFoundError),
        (SPOT.replace(A2.name, "a2-highgpu-2g"), NotFoundError),
        (SPOT.replace(A2.name, E2.name), SetupError),
        (SPOT.replace("spot", "on_demand"), SetupError),
        (SPOT.replace("us-central1-a", "europe-west4-a").replace("us-central1", "europe-west4"), SetupError),
    ],
)
def test_only_offers_that_differ_in_their_zone_go_together(
    project: Project, other: str, expected: type[Exception]
) -> None:
    asked = any_spec()
    with pytest.raises(expected):
        project.connect().launch_any(type(asked)(asked.token, SPOT, asked.user_data, asked.tags, also=(other,)))
    assert not project.launches()


def test_a_network_that_was_deleted_is_named(project: Project) -> None:
    provider = project.connect()
    provider.launch(spec())
    del project.gce.networks.networks[network_name("tw-1")]
    with pytest.raises(SetupError, match="the network was deleted"):
        provider.launch_any(any_spec(token="token-2"))


@pytest.mark.parametrize("missing", [None, "compute.regionOperations.get", "compute.instances.create"])
def test_the_printed_role_is_enough_for_any_zone(project: Project, missing: str | None) -> None:
    project.gce.granted = frozenset(permissions(CALLS, Use.MACHINES, Use.PRICES)) - {missing}
    project.gce.pending_s = 5
    if missing == "compute.instances.create":
        with pytest.raises(Exception, match=missing):
            project.connect().launch_any(any_spec())
        return
    project.connect().launch_any(any_spec())  # without a look at its operation, what is shown counts
    assert bool(project.server.asked("/wait"))


def test_a_launch_that_was_accepted_may_have_made_a_machine_though_nobody_may_look(project: Project) -> None:
    """Otherwise it would count as refused, and nobody would look for the machine."""
    project.gce.pending_s = 5
    provider = project.connect()
    looked: list[str] = []

    def second(request: Request) -> bool:
        looked.append(request.path) if request.path.endswith("/aggregated/instances") else None
        return len(looked) == 2 and request.path.endswith("/aggregated/instances")

    denied = error(403, "Required 'compute.instances.list' permission", "forbidden")
    project.server.faults.append(Fault(second, None, answer=denied))
    with pytest.raises(UnavailableError, match=r"compute\.instances\.list"):
        provider.launch_any(any_spec())
    assert len(project.gce.vms) == 1
