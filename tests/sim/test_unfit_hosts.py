"""Launches that one place refuses for a reason of its own: its key, its Python, its GPUs. The job goes elsewhere."""

from __future__ import annotations

import pytest

from providers.base import LaunchSpec
from providers.errors import AuthError, ProviderError, Scope, SetupError
from providers.offer import region_of
from tests.sim.harness import SimulatedInstallation


def refuse(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch, kind: type[ProviderError], scope: Scope
) -> list[str]:
    """The first offer that is asked for, and all others in its region, refuse from now on; returns what is asked."""
    provider = home.installation.providers["fake"]
    launch, asked = provider.launch, []

    def refusing(spec: LaunchSpec) -> tuple[str, ...]:
        asked.append(spec.offer_id)
        if region_of(spec.offer_id) == region_of(asked[0]):
            raise kind("alpha has no python3", hint="install it", scope=scope)
        return launch(spec)

    monkeypatch.setattr(provider, "launch", refusing)
    return asked


@pytest.mark.parametrize("kind", [AuthError, SetupError])
def test_a_region_that_refuses_for_a_reason_of_its_own_is_left_for_another(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch, kind: type[ProviderError]
) -> None:
    asked = refuse(home, monkeypatch, kind, "region")
    job = home.submit()
    home.until_state(job, "running")
    assert len(set(asked)) > 1
    (refusal, *_) = home.migrations(job)
    assert refusal.error == "alpha has no python3"


def test_an_account_that_is_refused_blames_no_offer(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = refuse(home, monkeypatch, AuthError, "account")
    home.submit()
    home.until(lambda: len(asked) > 2)
    assert len(set(asked)) == 1
