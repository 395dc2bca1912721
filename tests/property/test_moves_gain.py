"""A job moves only if that promises to gain, whatever the prices, the hazards and the size of its checkpoint."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.model import CHEAPEST
from orchestrator.policy import MoveLimits, Running, decide
from orchestrator.policy.demand import RentLimits
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


@given(st.integers(0, 10**6), st.floats(1.0, 300.0), st.floats(1.0, 3.0), st.booleans())
def test_a_job_that_stays_calls_its_offer_the_cheapest_only_if_no_other_is_cheaper(
    seed: int, hours: float, room: float, single: bool
) -> None:
    """Whatever its limits on what it may rent beside it."""
    scene, draw = Scene(seed, 1), random.Random(seed)
    here = draw.choice(scene.market.ids)
    rent = RentLimits(1 if single else 9, room * 1e9 * draw.uniform(1.0, 8.0), "machines", "rate")
    demand = replace(scene.demand(CHEAPEST, hours, 10**9), rent=rent)
    (placement,) = decide([demand], scene.market, scene.book, {"job_1": Running(here, AT - 30 * HOUR)}).placements
    assume(placement.action == "stay")
    chosen, *others = (each for each in placement.alternatives if each.feasible)
    least = min((each.cost_nano_usd or 0 for each in others), default=chosen.cost_nano_usd)
    assert placement.reason.startswith("cheapest to finish") == (chosen.cost_nano_usd <= least)  # type: ignore[operator]
    barred = [each for each in others if "but a move needs" in each.reason]
    assert all((each.cost_nano_usd or 0) < (chosen.cost_nano_usd or 0) for each in barred)
    assert placement.reason.endswith("or pause and resume the job") or not barred
