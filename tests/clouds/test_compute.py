"""Renting on GCP, through the unmodified google-cloud-compute: launches, refusals, late answers, ends and prices.

The machines are not started here; tests/contract/test_gcp.py and tests/e2e/test_three_clouds.py run real ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from providers.errors import (
    CapacityError,
    ConflictError,
    CutOffError,
    NotFoundError,
    PermissionDeniedError,
    ProviderError,
    QuotaError,
    SetupError,
    TimedOutError,
    UnavailableError,
)
from providers.gcp.calls import CALLS as CALLS_MADE
from providers.gcp.codes import CODES
from providers.gcp.names import network_name
from providers.gcp.permissions import access
from providers.gcp.request import LONGEST_RUN_S
from providers.gcp.session import Connections
from providers.instance import EndReason, InstanceState
from providers.policy import Use, permissions
from tests.clouds.compute import FAMILY, IMAGE, Vm
from tests.clouds.gce_project import A2, C4, E2, HOUR_S, IMAGES, NOW_MS, ON_DEMAND, SPOT, Project, spec
from tests.clouds.gcp import error
from tests.clouds.server import Fault, LoopbackServer


def the_machine(project: Project) -> Vm:
    (machine,) = project.gce.vms
    return machine


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
    with pytest.raises(UnavailableError, match="does not show yet"):
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
        project.clock.advance(5)
        provider.renew([name], HOUR_S)
        provider.find("token-1", "us-central1")
        provider.quotas()
        provider.list_owned("tw-1")
        provider.terminate(name)

    if missing is None:
        everything()
    elif missing == "compute.zoneOperations.get":
        everything()  # a refusal then shows only when the machine is described
    else:
        with pytest.raises(PermissionDeniedError) as raised:
            everything()
        assert raised.value.action == missing


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


# --- what GCP shows late ---


def test_a_launch_that_is_not_shown_yet_is_neither_described_nor_gone(project: Project) -> None:
    project.gce.lag_s = 60
    provider = project.connect()
    (name,) = provider.launch(spec())
    assert provider.describe([name]) == []
    assert provider.find("token-1", "us-central1") == []
    with pytest.raises(UnavailableError, match="does not know"):
        provider.terminate(name)
    provider.renew([name], HOUR_S)
    project.clock.advance(provider.listing_lag_s)
    assert [each.id for each in provider.describe([name])] == [name]
    provider.terminate(name)
    assert provider.describe([name])[0].end_reason is EndReason.USER


def test_one_unknown_machine_does_not_hide_or_keep_others(project: Project) -> None:
    provider = project.connect()
    (name,) = provider.launch(spec())
    unknown = name.replace("token-1", "token-2")
    assert [each.id for each in provider.describe([unknown, name, "no-such"])] == [name]
    provider.renew([unknown, name, "no-such"], HOUR_S)
    assert the_machine(project).metadata["tradewind-lives"] == f"{HOUR_S} from {project.clock.now_ms()}"
    provider.terminate(unknown)


def test_a_renewal_keeps_other_metadata_and_meets_another_change(project: Project) -> None:
    provider = project.connect()
    (name,) = provider.launch(spec(time_to_live_s=HOUR_S))
    before = the_machine(project).metadata
    project.fails("POST", "/setMetadata", answer=error(412, "Supplied fingerprint does not match", "conditionNotMet"))
    provider.renew([name], 2 * HOUR_S)
    after = the_machine(project).metadata
    assert after.pop("tradewind-lives") == f"{2 * HOUR_S} from {project.clock.now_ms()}"
    assert after.items() <= before.items()
    assert len(project.server.asked("/setMetadata")) == 2


def test_a_slow_end_is_not_the_end(project: Project) -> None:
    project.gce.ending_s = 90
    provider = project.connect()
    (name,) = provider.launch(spec())
    project.clock.advance(600)
    provider.terminate(name)
    provider.terminate(name)
    assert provider.describe([name])[0].state is InstanceState.STOPPING
    assert provider.list_owned("tw-1")
    project.clock.advance(90)
    (ended,) = provider.describe([name])
    assert ended.end_reason is EndReason.USER
    assert ended.billed_to_ms == project.clock.now_ms()
    assert not provider.list_owned("tw-1")


# --- ends ---


def test_a_machine_that_was_taken_away_has_its_time_and_reason(project: Project) -> None:
    provider = project.connect()
    (name,) = provider.launch(spec())
    project.clock.advance(600)
    project.gce.take(the_machine(project).row.name)
    taken_ms = project.clock.now_ms()
    project.clock.advance(300)  # nobody asks meanwhile
    (ended,) = project.connect().describe([name])
    assert (ended.end_reason, ended.billed_from_ms, ended.billed_to_ms) == (EndReason.PREEMPTED, NOW_MS, taken_ms)
    assert (ended.offer_id, ended.token) == (SPOT, "token-1")
    assert project.gce.bill_nano_usd() == 600 * 10**9 // 3600


@pytest.mark.parametrize(("late_s", "reason"), [(0, EndReason.EXPIRED), (-300, EndReason.FAILED)])
def test_a_machine_that_shuts_down_has_failed_unless_its_time_is_over(
    project: Project, late_s: int, reason: EndReason
) -> None:
    provider = project.connect()
    (name,) = provider.launch(spec(time_to_live_s=HOUR_S))
    project.clock.advance(HOUR_S + late_s)
    the_machine(project).machine.off = True  # type: ignore[misc]
    assert provider.describe([name])[0].end_reason is reason
    assert len(project.gce.left()) == 1
    provider.list_owned("tw-1")
    assert not project.gce.left()
    assert provider.describe([name])[0].end_reason is reason
    assert project.connect().describe([name])[0].end_reason is EndReason.FAILED  # only its operations are left


def test_the_longest_run_is_announced_and_then_ends_the_machine(project: Project) -> None:
    provider = project.connect()
    (name,) = provider.launch(spec())
    project.clock.advance(LONGEST_RUN_S - 700)
    assert provider.describe([name])[0].notice_deadline_ms is None
    project.clock.advance(200)
    assert provider.describe([name])[0].notice_deadline_ms == NOW_MS + LONGEST_RUN_S * 1000
    project.clock.advance(500)
    (ended,) = provider.describe([name])
    assert ended.end_reason is EndReason.EXPIRED
    assert not project.gce.left()


def test_a_machine_whose_type_is_no_longer_configured_is_still_known_by_its_end(project: Project) -> None:
    (name,) = project.connect().launch(spec())
    project.connect().terminate(name)
    (ended,) = project.connect(machine_types=(E2.name,)).find("token-1", "us-central1")
    assert (ended.id, ended.end_reason) == (name, EndReason.USER)
    assert ended.offer_id == "gcp/us-central1/us-central1-a/unknown/on_demand"


# --- several zones ---


def test_machines_of_all_zones_are_listed_page_by_page(project: Project) -> None:
    project.gce.page_rows = 1
    far = f"gcp/europe-west4/europe-west4-a/{A2.name}/spot"
    launched = {project.connect().launch(spec(token=f"token-{number}"))[0] for number in range(3)}
    launched |= set(project.connect().launch(spec(far, token="token-9")))
    assert {each.id for each in project.connect(regions=("us-central1",)).list_owned("tw-1")} == launched
    assert not project.connect().list_owned("tw-2")


def test_a_zone_that_does_not_answer_hides_no_other_and_keeps_its_last_list(project: Project) -> None:
    provider = project.connect()
    (near,) = provider.launch(spec())
    (far,) = provider.launch(spec(f"gcp/europe-west4/europe-west4-a/{A2.name}/spot", token="token-2"))
    assert {each.id for each in provider.list_owned("tw-1")} == {near, far}
    project.gce.unreachable = {"europe-west4-a"}
    assert {each.id for each in provider.list_owned("tw-1")} == {near, far}
    assert [each.id for each in project.connect().list_owned("tw-1")] == [near]
    assert [each.id for each in provider.describe([near, far])] == [near]
    project.fails("GET", "/aggregated/", times=None, answer=error(503, "no", "backendError"))
    with pytest.raises(UnavailableError):
        provider.list_owned("tw-1")


# --- every call, with every kind of failure ---

CALLS = {
    "launch": ("POST", "/instances", lambda provider, name: provider.launch(spec(token="token-2"))),
    "describe": ("GET", "/aggregated/instances", lambda provider, name: provider.describe([name])),
    "find": ("GET", "/aggregated/operations", lambda provider, name: provider.find("token-1", "us-central1")),
    "renew": ("POST", "/setMetadata", lambda provider, name: provider.renew([name], HOUR_S)),
    "terminate": ("DELETE", "/instances/", lambda provider, name: provider.terminate(name)),
    "list_owned": ("GET", "/aggregated/instances", lambda provider, name: provider.list_owned("tw-1")),
}
FAILURES: dict[str, tuple[dict[str, Any], type[ProviderError]]] = {
    "throttled": ({"answer": error(429, "Quota exceeded for quota metric", "rateLimitExceeded")}, ProviderError),
    "denied": ({"answer": error(403, "Required 'compute.x' permission", "forbidden")}, PermissionDeniedError),
    "expired": ({"answer": error(401, "Invalid Credentials", "authError")}, ProviderError),
    "broken": ({"answer": error(500, "Internal error", "backendError")}, UnavailableError),
    "lost": ({"lost": True}, CutOffError),
    "cut": ({"cut": True}, CutOffError),
    "hanging": ({"hang": True}, TimedOutError),
}


@pytest.mark.parametrize("failure", sorted(FAILURES))
@pytest.mark.parametrize("call", sorted(CALLS))
def test_a_failed_call_says_so_and_works_again_without_a_second_machine(
    project: Project, gce_clients: tuple[LoopbackServer, Connections], call: str, failure: str
) -> None:
    method, part, ask = CALLS[call]
    how, expected = FAILURES[failure]
    (name,) = project.connect().launch(spec())
    provider = project.connect()
    project.fails(method, part, **how)
    project.connections.call_s = 0.3 if failure == "hanging" else 2.0
    with pytest.raises(expected) as raised:
        ask(provider, name)
    project.connections.call_s = 2.0
    if failure in ("lost", "cut", "hanging", "broken"):
        assert isinstance(raised.value, UnavailableError)  # the call may have taken effect
        assert raised.value.retryable
    before = {each.row.name for each in project.gce.vms}
    ask(provider, name)
    assert len({each.row.name for each in project.gce.vms}) == (2 if call == "launch" else 1)
    assert before <= {each.row.name for each in project.gce.vms}
    if call == "terminate":
        assert not project.gce.left()
    if call == "renew":
        assert the_machine(project).metadata["tradewind-lives"] == f"{HOUR_S} from {NOW_MS}"


@pytest.mark.parametrize("call", ["launch", "renew", "terminate"])
def test_an_effect_that_comes_after_the_error_doubles_and_leaks_nothing(project: Project, call: str) -> None:
    """GCP says backendError, and does it all the same: before the next call and once more after it."""
    method, part, ask = CALLS[call]
    (name,) = project.connect().launch(spec())
    failed = error(500, "Internal error", "backendError")
    late = project.server.postpones(lambda request: request.method == method and part in request.path, failed)
    with pytest.raises(UnavailableError):
        ask(project.connect(), name)
    for _ in range(2):
        project.server.cloud(late[0])
        ask(project.connect(), name)
        assert (
            len({each.row.name for each in project.gce.vms}) == len(project.gce.vms) == (2 if call == "launch" else 1)
        )
    assert len(project.gce.left()) == {"launch": 2, "renew": 1, "terminate": 0}[call]
    if call == "renew":
        assert the_machine(project).metadata["tradewind-lives"] == f"{HOUR_S} from {NOW_MS}"


@pytest.mark.parametrize("verb", ["set_up", "tear_down"])
def test_a_network_whose_parts_come_or_go_after_the_error_is_there_once_or_not_at_all(
    project: Project, verb: str
) -> None:
    install = "tw-1" if verb == "tear_down" else "tw-3"
    before = names_of(project)
    failed = error(500, "Internal error", "backendError")
    late = project.server.postpones(lambda request: request.method in ("POST", "DELETE"), failed)
    with pytest.raises(UnavailableError):
        getattr(project.connect(), verb)(install, lambda _: None)
    for _ in range(2):
        project.server.cloud(late[0])
        getattr(project.connect(), verb)(install, lambda _: None)
    own = [network_name(install)] * 2
    assert names_of(project) == (sorted([*before, *own]) if verb == "set_up" else [])


# --- networks ---


def names_of(project: Project) -> list[str]:
    return sorted(project.gce.networks.parts)


def test_a_network_is_made_with_one_rule_that_admits_only_its_machines(project: Project) -> None:
    said: list[str] = []
    provider = project.connect()
    assert [network.ready for network in provider.networks("tw-2")] == [False, False]
    provider.set_up("tw-2", said.append)
    name = network_name("tw-2")
    assert said == [f"network {name} was made", f"firewall {name} was made"]
    rule = project.gce.networks.firewalls[name]
    assert (list(rule.source_tags), list(rule.target_tags), list(rule.source_ranges)) == (["tradewind"],) * 2 + ([],)
    assert [network.ready for network in provider.networks("tw-2")] == [True, True]
    assert [part.kind for part in provider.networks("tw-2")[0].parts] == ["firewall", "subnet", "network"]
    provider.set_up("tw-2", said.append)
    assert len(said) == 2


def test_a_network_that_is_deleted_under_a_running_job_is_a_named_error_until_it_is_made_again(
    project: Project,
) -> None:
    provider = project.connect()
    (name,) = provider.launch(spec())
    project.gce.networks.networks.clear()
    project.gce.networks.firewalls.clear()
    for _ in range(2):  # as it is remembered, and then as it is
        with pytest.raises(SetupError) as raised:
            provider.launch(spec(token="token-2"))
        assert raised.value.scope == "region"
        assert "tradewind up --cloud gcp" in raised.value.hint
    assert [each.id for each in provider.list_owned("tw-1")] == [name]
    provider.set_up("tw-1", lambda _: None)
    provider.launch(spec(token="token-2"))
    assert len(project.gce.left()) == 2


def test_a_rule_that_lets_others_in_is_reported_and_removed(project: Project) -> None:
    name = network_name("tw-1")
    open_rule: dict[str, Any] = {"name": "ssh", "network": f"global/networks/{name}", "direction": "INGRESS"}
    open_rule |= {"source_ranges": ["0.0.0.0/0"], "allowed": [{"I_p_protocol": "tcp", "ports": ["22"]}]}
    project.connections.once("FirewallsClient", "insert_unary", firewall_resource=open_rule)
    (here, _) = project.connect().networks("tw-1")
    assert here.missing == ("removal of the firewall's rule ssh",)
    with pytest.raises(SetupError):
        project.connect().launch(spec())
    project.connect().set_up("tw-1", lambda _: None)
    assert list(project.gce.networks.firewalls) == [name]


@pytest.mark.parametrize("verb", ["set_up", "tear_down"])
@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("how", [{"lost": True}, {"answer": error(503, "no", "backendError")}])
def test_making_and_removing_goes_on_after_any_call_that_failed(
    project: Project, verb: str, at: int, how: dict[str, Any]
) -> None:
    """Each call to the cloud in turn is carried out without an answer, or is refused."""
    install = "tw-1" if verb == "tear_down" else "tw-3"
    before = names_of(project)
    calls = iter(range(1000))
    fault = Fault(lambda request: "/global/" in request.path and next(calls) == at, 1, **how)
    project.server.faults.append(fault)
    for _ in range(2):
        try:
            getattr(project.connect(), verb)(install, lambda _: None)
        except UnavailableError:
            continue
    getattr(project.connect(), verb)(install, lambda _: None)
    own = [network_name(install)] * 2  # the network and its firewall have one name
    expected = [*before, *own] if verb == "set_up" else [each for each in before if each not in own]
    assert names_of(project) == sorted(expected)


def test_what_takes_long_is_told_and_goes_on(project: Project) -> None:
    project.gce.networks.takes_s = 60
    with pytest.raises(UnavailableError, match="is being made"):
        project.connect().set_up("tw-2", lambda _: None)
    project.clock.advance(60)
    with pytest.raises(UnavailableError, match="is being made"):
        project.connect().set_up("tw-2", lambda _: None)
    project.clock.advance(60)
    project.connect().set_up("tw-2", lambda _: None)


def test_the_printed_role_is_enough_for_networks_and_no_permission_is_superfluous(project: Project) -> None:
    granted = frozenset(permissions(CALLS_MADE, Use.NETWORKS, Use.MACHINES))
    project.gce.networks.takes_s = 1
    for missing in (None, *permissions(CALLS_MADE, Use.NETWORKS)):
        project.gce.granted = granted - {missing}
        install, denied = f"tw-{missing}", []
        for verb in ("set_up", "tear_down"):
            for _ in range(4):
                try:
                    getattr(project.connect(), verb)(install, lambda _: None)
                except PermissionDeniedError as problem:
                    denied.append(problem.action)
                except UnavailableError:
                    project.clock.advance(1)
        assert set(denied) == ({missing} if missing else set())
        project.gce.granted = None
        for verb in ("set_up", "tear_down"):
            for _ in range(4):
                try:
                    getattr(project.connect(), verb)(install, lambda _: None)
                except UnavailableError:
                    project.clock.advance(1)
        assert names_of(project) == [network_name("tw-1")] * 2


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
