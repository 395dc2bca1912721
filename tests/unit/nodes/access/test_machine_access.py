"""The access that an agent has borrowed: nothing that was written in its place ends the agent."""

from __future__ import annotations

import pytest

from orchestrator.errors import SiteError
from orchestrator.nodes import sealing
from orchestrator.nodes.access.lending import purpose
from orchestrator.nodes.access.machine_access import BorrowedAccess

KEY = sealing.new_key()
PUBLIC = sealing.public_half(KEY)


def sealed(for_s: str, token: str = "m") -> bytes:
    return sealing.seal(PUBLIC, purpose(token), {"for_s": for_s, "AWS_ACCESS_KEY_ID": "key"})


@pytest.mark.parametrize("forged", [*map(sealed, ("nan", "inf", "-5", "0", "1e308", "")), sealed("60", "other"), b""])
def test_a_forged_one_is_refused_and_the_one_before_stays(forged: bytes) -> None:
    """The job's program may write there, too, and everybody can seal to a public key."""
    access = BorrowedAccess(KEY, "m", {}, lambda: 0.0)
    assert access.take(sealed("60"))
    with pytest.raises(SiteError):
        access.take(forged)
    access.refresh(lambda: None)
    assert access.credentials().values["AWS_ACCESS_KEY_ID"] == "key"
