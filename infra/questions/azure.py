"""The questions for Azure."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from azure.core.exceptions import HttpResponseError

from infra.questions.limited import missing_object
from providers.azure.session import ONCE, Connections, to_provider_error
from providers.errors import ProviderError

_NONE = "tradewind-verify-none"
_COMPUTE, _NETWORK, _ROLES = "2024-07-01", "2024-05-01", "2022-04-01"


def questions(
    region: str, image: str, store_url: str, connections: Connections | None = None, group: str = "tradewind"
) -> tuple[dict[str, Callable[[], Any]], tuple[str, ...]]:
    """(the questions, names to remove from the replies)."""
    connections = connections or Connections()
    subscription = f"/subscriptions/{connections.subscription}"
    machines = f"{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachines"
    publisher = image.partition(":")[0]

    def ask(method: str, path: str, version: str = _COMPUTE, body: object = None, **headers: str) -> Callable[[], Any]:
        """Send a request once; returns the status and body of the answer."""

        def asked() -> Any:
            options = {**ONCE, "headers": headers} if headers else ONCE
            answer = connections.send(method, path, version, body, **options)
            return {"status": answer.status_code, "body": answer.json() if answer.content else None}

        return asked

    machine = {
        "location": region,
        "properties": {
            "hardwareProfile": {"vmSize": "Standard_Gigantic_v9"},
            "osProfile": {"computerName": _NONE, "adminUsername": "tradewind"},
            "networkProfile": {"networkInterfaces": []},
        },
    }
    here = f"{subscription}/providers/Microsoft.Compute/locations/{region}"
    asked = {
        "a machine that never was": ask("GET", f"{machines}/{_NONE}"),
        "the end of a machine that never was": ask("DELETE", f"{machines}/{_NONE}"),
        "a resource group that does not exist": ask("GET", machines.replace(f"/{group}/", f"/{_NONE}/")),
        "a size that does not exist": ask("PUT", f"{machines}/{_NONE}", _COMPUTE, machine, **{"If-None-Match": "*"}),
        "a publisher that does not exist": ask("GET", f"{here}/publishers/{_NONE}/artifacttypes/vmimage/offers"),
        "the offers of the image's publisher": ask(
            "GET", f"{here}/publishers/{publisher}/artifacttypes/vmimage/offers"
        ),
        "the quotas": ask("GET", f"{here}/usages"),
        "the networks": ask(
            "GET", f"{subscription}/resourceGroups/{group}/providers/Microsoft.Network/virtualNetworks", _NETWORK
        ),
        "what the account may do": ask(
            "GET",
            f"{subscription}/resourceGroups/{group}/providers/Microsoft.Authorization/permissions",
            _ROLES,
        ),
    }
    if store_url.startswith("az://"):
        asked["an object that is not there, with a limited signature"] = missing_object(store_url)
    private = (connections.subscription, group, os.environ.get("AZURE_TENANT_ID", ""))
    return asked, tuple(filter(None, private))


def refused(error: Exception) -> tuple[Any, ProviderError | None] | None:
    """See infra.record_replies.Refused."""
    if not isinstance(error, HttpResponseError) or error.response is None:
        return None
    return {"status": error.status_code, "body": error.response.text()}, to_provider_error(error)
