"""A job moves only if that promises to gain, whatever the prices, the hazards and the size of its checkpoint."""

from __future__ import annotations

import random

from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.model import CHEAPEST
from orchestrator.policy import MoveLimits, Running, decide
from tests.property.test_shown_decides import AT, HOUR, Scene


@given(st.integers(0, 10**6), st.floats(0.05, 300.0), st.sampled_from((0, 10**9, 10**11, 4 * 10**12)))
def test_a_move_promises_to_save(seed: int, hours: float, checkpoint_bytes: int) -> None:
    scene, draw = Scene(seed, 1), random.Random(seed)
    demand = scene.demand(CHEAPEST, hours, checkpoint_bytes)
    here = draw.choice([offer_id for offer_id in scene.market.ids if offer_id.endswith("/spot")])
    running = {"job_1": Running(here, AT - 30 * HOUR)}
    (placement,) = decide([demand], scene.market, scene.book, running).placements
    assume(placement.action == "move")
    assert placement.saving_nano_usd >= MoveLimits().least_saving_nano_usd
    assert placement.reason.startswith("saves $")
