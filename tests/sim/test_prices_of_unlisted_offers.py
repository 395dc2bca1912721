"""A region may answer when its prices are asked for, and not when its offers are: that must not harm any job."""

from __future__ import annotations

import pytest

from orchestrator.engine.machines.collect import collect_from
from tests.sim.harness import SimulatedInstallation


def test_the_price_of_an_offer_that_is_not_listed_is_left_out(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    (provider,) = home.installation.providers.values()
    first, *others = provider.offers()
    monkeypatch.setattr(provider, "offers", lambda: others)
    collect_from(home.installation, None, provider)
    with home.installation.store.read() as tx:
        known = {point.offer_id for point in tx.newest_prices([provider.name])}
    assert known == {offer.id for offer in others}
    assert first.id not in known
