"""The user data of a machine on Azure ("custom data").

A machine that has shut down is billed until it is deleted: by Azure if it announced the end, which the machine approves
before it shuts down (providers.azure.on_machine); otherwise by the provider at its next look-up
(providers.azure.machines).
"""

from __future__ import annotations

import base64

from providers.errors import SetupError
from providers.machine.user_data import script

MOST_BYTES = 65_535
"""Limit on custom data before it is encoded (azure.mgmt.compute.models.OSProfile)."""


def user_data(work: str, time_to_live_s: int | None) -> str:
    """The custom data of a machine in base64. Raises SetupError if it is too long."""
    sent = script("azure", work, time_to_live_s, takes_leave=True).encode()
    if len(sent) > MOST_BYTES:
        raise SetupError(
            f"the user data of a machine on Azure has {len(sent)} bytes; the limit is {MOST_BYTES}",
            hint="use credentials with a shorter session token",
        )
    return base64.b64encode(sent).decode()
