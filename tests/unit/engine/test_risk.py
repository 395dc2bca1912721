"""What storing a checkpoint is charged, as time of the machines that it is charged beside."""

import pytest

from orchestrator.engine.jobs.risk import charge_s

S3 = ("aws", "us-east-1")


def test_a_charge_is_the_time_that_its_price_would_have_bought() -> None:
    # 1.5 GB are 359 objects; at $0.005 for a thousand writes and $1 an hour, 6.46 s
    assert charge_s(S3, 1_500_000_000, 1_000_000_000) == pytest.approx(359 * 5e-6 * 3600)
    assert charge_s(S3, 1_500_000_000, 10_000_000_000) == pytest.approx(359 * 5e-7 * 3600), "a machine that costs more"


def test_a_folder_charges_nothing_and_what_is_unknown_is_not_free() -> None:
    assert charge_s(None, 1_500_000_000, 1_000_000_000) == 0.0
    assert charge_s(("elsewhere", "somewhere"), 1_500_000_000, 1_000_000_000) is None
    assert charge_s(S3, 1_500_000_000, -1) is None, "no price is known"
