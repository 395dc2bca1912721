"""The probe rule: pays for knowledge exactly when it is expected to be worth more than it costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.perf import FITTED, Cell, Posterior
from orchestrator.policy.probe import Option, advise

KINDS = [("K80", 1), ("P100", 1), ("V100", 1)]
PRICES = (0.9, 1.84, 3.06)


def posterior(measured: float = 0.0) -> Posterior:
    """One step per second was measured on the K80."""
    return FITTED.posterior(KINDS, [Cell(KINDS[0], measured, 1e-4)])


def options(prices: tuple[float, ...] = PRICES, minutes: float = 8.0, moves: float = 0.0) -> list[Option]:
    return [
        Option(kind, usd * 1e9, moves if i else 0.0, usd * 1e9 * minutes / 60, measured=i == 0)
        for i, (kind, usd) in enumerate(zip(KINDS, prices, strict=True))
    ]


def hours(hours: float) -> float:
    """Steps that the K80 takes so long for."""
    return hours * 3600


def test_a_long_job_probes_and_a_short_one_commits():
    short, long = (advise(posterior(), options(), steps=hours(h)) for h in (0.2, 400))
    assert short.probe is None
    assert "(P100) costs more" in short.reason
    assert long.probe in (1, 2)
    assert long.saving_nano_usd > 10 * long.cost_nano_usd > 0
    assert long.finish_nano_usd < 400 * 0.9e9
    assert long.reason.startswith(f"8 min on {KINDS[long.probe][0]} ")


def test_after_a_probe_it_asks_again_and_may_probe_again_but_never_the_same_kind():
    first = advise(posterior(), options(), steps=hours(400)).probe
    probed = [
        Option(o.kind, o.nano_usd_per_hour, 0, o.probe_nano_usd, o.measured or i == first)
        for i, o in enumerate(options())
    ]
    middling = FITTED.posterior(KINDS, [Cell(KINDS[0], 0.0, 1e-4), Cell(KINDS[first], math.log(2.0), 1e-4)])
    second = advise(middling, probed, steps=hours(400))
    assert second.probe == 3 - first
    known = [Option(o.kind, o.nano_usd_per_hour, 0, o.probe_nano_usd, True) for o in options()]
    assert advise(middling, known, steps=hours(400)).reason.endswith("are measured")


def test_a_job_file_and_a_budget_can_forbid_it():
    assert "probe: false" in advise(posterior(), options(), steps=hours(400), allowed=False).reason
    finish = advise(posterior(), options(), steps=hours(400)).finish_nano_usd
    tight = advise(posterior(), options(), steps=hours(400), budget_left_nano_usd=finish)
    assert (tight.probe, tight.reason) == (None, "the budget does not cover a probe")
    assert advise(posterior(), options(), steps=hours(400), budget_left_nano_usd=2 * finish).probe is not None


def test_a_kind_that_cannot_win_is_not_tried_and_a_costly_move_counts():
    expensive = options((0.9, 90.0, 90.0))
    assert advise(posterior(), expensive, steps=hours(400)).probe is None
    assert advise(posterior(), options(moves=1e15), steps=hours(400)).commit == 0


def test_a_kind_is_worth_nothing_at_speeds_at_which_it_would_be_late():
    """400 hours on the K80, which is measured and costs least. Within an hour, no likely speed is in time."""

    def saving(left_h: float) -> float:
        return advise(posterior(), options((0.9, 3.0, 8.0)), steps=hours(400), left_s=3600 * left_h).saving_nano_usd

    savings = [saving(each) for each in (1, 20, 50, 80, 100, 150, 400, math.inf)]
    assert savings == sorted(savings)
    assert savings[0] == 0.0 < savings[1] < 0.5 * savings[-1]


def test_the_expected_saving_is_what_simulated_probes_save():
    believed = posterior()
    advice = advise(believed, options(), steps=hours(20))
    assert advice.probe is not None
    random = np.random.default_rng(0)
    root = np.linalg.cholesky(believed.scale + 1e-12 * np.eye(3))
    draws = 600
    chi = np.sqrt(believed.dof / random.chisquare(believed.dof, draws))
    logs = believed.mean + (random.standard_normal((draws, 3)) @ root.T) * chi[:, None]
    costs = np.array(PRICES) * 1e9 * 20 * np.exp(-logs)
    other = 3 - advice.probe
    total = []
    for log, cost in zip(logs, costs, strict=True):
        after = believed.condition(advice.probe, float(log[advice.probe]))
        opts = [Option(o.kind, o.nano_usd_per_hour, 0, o.probe_nano_usd, i != other) for i, o in enumerate(options())]
        then = advise(after, opts, steps=hours(20))
        paid = advice.cost_nano_usd
        if then.probe is None:
            total.append(paid + cost[then.commit])
        else:
            total.append(paid + then.cost_nano_usd + cost.min())
    saving = advice.finish_nano_usd - float(np.mean(total))
    assert saving == pytest.approx(advice.saving_nano_usd, rel=0.25)


def test_among_many_kinds_one_that_may_win_is_tried():
    names = ["K80", "P100", "T4", "V100", "A10G", "L4", "A100-40GB", "A100-80GB", "L40S", "H100", "H200", "B200"]
    kinds = [(name, 1) for name in names]
    many = [Option(kind, 1e9 * (1 + n), 0, 1e9 * (1 + n) * 8 / 60, measured=n == 0) for n, kind in enumerate(kinds)]
    advice = advise(FITTED.posterior(kinds, [Cell(kinds[0], 0.0, 1e-4)]), many, steps=hours(100))
    assert advice.probe not in (None, 0)
    assert advice.saving_nano_usd > advice.cost_nano_usd
    expensive = [*many[:3], Option(many[3].kind, 1e13, 0, 1e12), *many[4:]]
    assert advise(FITTED.posterior(kinds, [Cell(kinds[0], 0.0, 1e-4)]), expensive, steps=hours(100)).probe != 3


@settings(max_examples=40)
@given(
    st.floats(-3, 3),
    st.lists(st.floats(0.1, 30), min_size=3, max_size=3),
    st.floats(0.01, 1000),
    st.floats(1, 60),
    st.floats(1.01, 10),
)
def test_what_is_worth_a_probe_is_so_the_more_the_longer_the_job(measured, prices, size, minutes, longer):
    believed, offered = posterior(measured), options(tuple(prices), minutes)
    steps = hours(size) * math.exp(measured)
    advice = advise(believed, offered, steps=steps)
    assert advice == advise(believed, offered, steps=steps)
    assert advice.saving_nano_usd >= 0
    assert advice.finish_nano_usd <= size * prices[0] * 1e9 * 1.01
    if advice.probe is not None:
        more = advise(believed, offered, steps=steps * longer)
        assert more.probe is not None
        assert more.saving_nano_usd >= advice.saving_nano_usd
        assert not offered[advice.probe].measured


@pytest.mark.parametrize("steps", [-1.0, float("nan"), float("inf")])
def test_wrong_arguments_are_refused(steps):
    with pytest.raises(ValueError, match="steps must be"):
        advise(posterior(), options(), steps=steps)
    with pytest.raises(ValueError, match=r"2 options .* 3 kinds"):
        advise(posterior(), options()[:2], steps=1.0)
