"""The questions for Google Cloud."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.api_core.exceptions import GoogleAPICallError

from infra.questions.limited import missing_object
from providers.errors import ProviderError
from providers.gcp.session import Connections, to_provider_error

_NONE = "tradewind-verify-none"


def questions(
    region: str, image: str, store_url: str, connections: Connections | None = None
) -> tuple[dict[str, Callable[[], Any]], tuple[str, ...]]:
    """(the questions, names to remove from the replies). Raises ProviderError without a project."""
    connections = connections or Connections()
    project, zone = connections.project, f"{region}-b"

    def ask(client: str, method: str, **fields: Any) -> Callable[[], Any]:
        """The first page of a list, or the whole answer, in Google's format."""

        def asked() -> Any:
            call = getattr(connections.client(client), method)
            answer = call(request={"project": project, **fields}, timeout=connections.call_s, retry=None)
            answer = next(iter(answer.pages)) if hasattr(answer, "pages") else answer
            return type(answer).to_dict(answer, use_integers_for_enums=False)

        return asked

    machine = {
        "name": _NONE,
        "machine_type": f"zones/{zone}/machineTypes/e2-gigantic-2",
        "disks": [{"boot": True, "auto_delete": True, "initialize_params": {"source_image": image}}],
        "network_interfaces": [{"network": f"global/networks/{_NONE}"}],
    }
    history = {
        "types": ["PRICE", "PREEMPTION"],
        "instance_properties": {"machine_type": "e2-standard-2", "scheduling": {"provisioning_model": "SPOT"}},
        "location_policy": {"location": f"zones/{zone}"},
    }
    asked = {
        "the region with its quotas": ask("RegionsClient", "get", region=region),
        "an image that does not exist": ask("ImagesClient", "get", project="debian-cloud", image=_NONE),
        "a family that does not exist": ask("ImagesClient", "get_from_family", project="debian-cloud", family=_NONE),
        "a machine that never was": ask("InstancesClient", "get", zone=zone, instance=_NONE),
        "the end of a machine that never was": ask("InstancesClient", "delete_unary", zone=zone, instance=_NONE),
        "a zone that does not exist": ask("InstancesClient", "get", zone="us-nowhere1-z", instance=_NONE),
        "a type and a network that do not exist": ask(
            "InstancesClient", "insert_unary", zone=zone, instance_resource=machine
        ),
        "operations by their target": ask(
            "GlobalOperationsClient", "aggregated_list", filter='targetLink eq ".*/instances/(tw-.*)"', max_results=5
        ),
        "firewall rules by their network": ask(
            "FirewallsClient", "list", filter='network eq ".*/networks/tradewind-.*"', max_results=5
        ),
        "past prices and preemptions": ask(
            "AdviceClient", "capacity_history", region=region, capacity_history_request_resource=history
        ),
    }
    if store_url.startswith("gs://"):
        asked["an object that is not there, with a limited token"] = missing_object(store_url)
    return asked, (project,)


def refused(error: Exception) -> tuple[Any, ProviderError | None] | None:
    """See infra.record_replies.Refused."""
    if not isinstance(error, GoogleAPICallError):
        return None
    said = {"status": error.code, "message": error.message, "errors": error.errors, "details": error.details}
    return said, to_provider_error(error)
