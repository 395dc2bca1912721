"""The user data of a machine on AWS, compressed: it is launched with InstanceInitiatedShutdownBehavior=terminate."""

from __future__ import annotations

import gzip

from providers.errors import SetupError
from providers.machine.user_data import script

MOST_BYTES = 16 << 10  # limit on user data as sent (compressed); cloud-init unpacks it


def user_data(work: str, time_to_live_s: int | None) -> bytes:
    """The user data of a machine; the same arguments give the same text. Raises SetupError if it is too long."""
    packed = gzip.compress(script("aws", work, time_to_live_s).encode(), 9, mtime=0)
    if len(packed) > MOST_BYTES:
        raise SetupError(
            f"the user data of a machine on AWS has {len(packed)} bytes; the limit is {MOST_BYTES}",
            hint="use credentials with a shorter session token, such as those of an IAM user or a role of this account",
        )
    return packed
