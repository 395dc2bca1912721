"""Offers and plans with the catalogue: filters that say what they left out, a job's dollars per step, no mixing."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from orchestrator.cli.render.screens.offers import offers as offers_rendered
from orchestrator.cli.render.screens.plans import plan as rendered
from orchestrator.cli.render.text import Screen
from orchestrator.config import Config, load_config
from orchestrator.errors import InfeasibleError, UsageError
from orchestrator.formats.documents import to_json
from orchestrator.installation import Installation, open_installation
from orchestrator.model import GpuRequest, Resources, Where
from orchestrator.services.jobs import apply, feasible, plan, submit
from orchestrator.services.offers import listing
from orchestrator.services.offers.filters import OfferQuery
from orchestrator.services.offers.views import OfferList
from providers.catalog import load
from providers.clock import VirtualClock
from providers.fake import FakeProvider
from providers.money import usd
from tests.unit.services.recorded_history import ME, spec

NOW = 1_795_000_000_000  # some days after the newest fact of the catalogue
DAY_S = 86_400
GPUS = Resources(gpu_memory_bytes=(90 * 10**9, None))


def never() -> Installation:
    raise AssertionError("the store was opened")


@pytest.fixture
def local(tmp_path: Path) -> Config:
    """The default configuration: only the simulated market is enabled."""
    return load_config({"state_dir": str(tmp_path / "state")}, environ={}, cwd=tmp_path)


def listed(config: Config, **wanted: object) -> OfferList:
    return listing.offers(config, never, OfferQuery.of(**wanted), now_ms=NOW)


def test_offers_of_a_real_gpu_are_answered_without_any_store(local: Config) -> None:
    found = listed(local, gpu="H100:8", spot=True)
    brute = [
        (price.nano_usd_per_hour, offer.id)
        for offer, price in zip(load().offers(), load().prices(), strict=True)
        if (offer.gpu, offer.gpu_count, offer.spot) == ("H100", 8, True)
    ]
    assert [(row.nano_usd_per_hour, row.id) for row in found.offers] == sorted(brute)
    assert {row.enabled for row in found.offers} == {False}
    assert all(row.source.startswith(f"catalogue of {load().date}: ") and row.age_s > DAY_S for row in found.offers)
    assert "aws" in found.not_enabled
    assert not found.simulated


def test_a_range_of_gpu_counts(local: Config) -> None:
    counts = {row.gpu_count for row in listed(local, gpu="V100").offers}
    for text, least, most in (("V100:1..4", 1, 4), ("V100:2..", 2, 99), ("V100:..4", 1, 4)):
        found = {row.gpu_count for row in listed(local, gpu=text).offers}
        assert found == {count for count in counts if least <= count <= most} != set()


@pytest.mark.parametrize("text", ["V100:", "V100:0", "V100:x", "V100:4..1", "V100:1.5", "V100:.."])
def test_a_count_that_is_none(local: Config, text: str) -> None:
    with pytest.raises(UsageError, match="--gpu"):
        listed(local, gpu=text)


@pytest.mark.parametrize(
    ("wanted", "message", "hint"),
    [
        ({"gpu": "H100:3", "cloud": ["aws"]}, "--gpu H100:3 matches no offer of the", "available GPU counts"),
        ({"gpu": "H100:8", "max_price": 0.5}, "--max-price 0.5 matches no offer", "the cheapest is $"),
        ({"gpu": "H100", "region": ["us-eest-1"]}, "--region us-eest-1 matches no offer", 'did you mean "us-'),
        (
            {"gpu": "H100", "region": ["us"]},
            "--region us matches no offer",
            "to match all that begin like this: --region 'us*'",
        ),
        (
            {"gpu": "H100", "region": ["us-east"]},
            "--region us-east matches no offer",
            "to match all that begin like this: --region 'us-east*'",
        ),
        ({"gpu": "H100", "cloud": ["asw"]}, "--cloud asw matches no offer", 'did you mean "aws"?'),
        ({"gpu": "H100", "vcpu": "5000.."}, "--vcpu 5000.. matches no offer", "available: "),
        ({"gpu": "H100", "memory": "90000.."}, "--memory 90000.. matches no offer", "available: "),
        (
            {"gpu": "H100", "gpu_memory": "100.."},
            "--gpu-memory 100.. matches no offer",
            "the largest GPU has 80 GB, 20 GB",
        ),
        (
            {"gpu": "H100", "gpu_memory": "..40"},
            "--gpu-memory ..40 matches no offer",
            "the smallest GPU has 80 GB, 40 GB",
        ),
        ({"gpu": "H101"}, "unknown GPU H101", 'did you mean "H100"?'),
        (
            {"gpu": "tpu v6e"},
            "TPU-v6e cannot be used by Tradewind's trainers yet; at gcp it costs from $2.7000",
            "catalog show",
        ),
        ({"gpu": "trainium2:16"}, "at aws it costs from $0.5373 spot per chip and hour (ap-", "catalog show"),
        (
            {"gpu": "M60:16"},
            "may be incomplete",
            "available GPU counts",
        ),
        ({"gpu": "H200", "cloud": ["lambda"]}, "may be incomplete", "available: "),
        ({"gpu": "8xH100"}, "--gpu 8xH100 is not valid", "write H100:8"),
        ({"gpu": "H100:x"}, "--gpu H100:x is not valid", "write it like H100:8"),
        ({"gpu_memory": "80..40"}, "is empty", "smaller number first"),
        ({"gpu_memory": ".."}, "--gpu-memory .. is not a range", "40.. or 40..80"),
        ({"vcpu": "-4.."}, "--vcpu -4.. is not a range", "8.. or 8..32"),
        ({"max_price": -1.0}, "is not a valid price", "above 0"),
        ({"max_price": float("nan")}, "--max-price nan is not a valid price", "above 0"),
    ],
)
def test_an_invalid_filter_or_one_that_leaves_nothing_is_named_with_a_remedy(local, wanted, message, hint):
    with pytest.raises(UsageError) as refused:
        listed(local, **wanted)
    assert message in str(refused.value)
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("wanted", "passes"),
    [
        ({"gpu_memory": "40..80"}, lambda row: 40 <= _gb(row) <= 80),
        ({"gpu_memory": "..16", "spot": False}, lambda row: _gb(row) <= 16 and not row.spot),
        ({"gpu_memory": "80"}, lambda row: _gb(row) == 80),
        ({"vcpu": "8..16"}, lambda row: 8 <= row.vcpu <= 16),
        ({"memory": "..64"}, lambda row: 0 < row.memory_bytes <= 64e9),
        ({"region": ["eu-*"], "max_price": 5.0}, lambda row: row.region[:3] == "eu-" and row.nano_usd_per_hour <= 5e9),
    ],
)
def test_each_filter_lets_through_exactly_what_it_says(installation: Installation, wanted, passes):
    everything = listing.offers(installation.config, lambda: installation, now_ms=NOW).offers
    found = listing.offers(installation.config, lambda: installation, OfferQuery.of(**wanted), now_ms=NOW).offers
    assert {row.id for row in found} == {row.id for row in everything if passes(row)}
    assert found


def _gb(row):
    from providers.hardware import GPUS

    return 0 if row.gpu is None else GPUS[row.gpu].memory_bytes / 1e9


def test_simulated_and_real_offers_are_listed_apart_and_never_ranked_together(installation: Installation) -> None:
    found = listing.offers(installation.config, lambda: installation, now_ms=NOW, limit=3)
    assert [row.simulated for row in found.offers] == [True] * 3 + [False] * 3
    assert found.count > 1000
    groups = listing.offers(installation.config, lambda: installation, now_ms=NOW, group_by="cloud").groups
    assert groups[0].name == "fake"
    assert sum(group.count for group in groups) == found.count
    by_gpu = listing.offers(installation.config, lambda: installation, now_ms=NOW, group_by="gpu").groups
    assert sum(group.name == "H100:8" for group in by_gpu) in (1, 2)


def test_what_can_be_rented_here_comes_before_cheaper_offers_of_other_clouds(tmp_path: Path) -> None:
    host = {"address": "desk1", "vcpus": 8, "memory_gb": 32, "price_per_hour": 5.0}
    settings = {"providers.enabled": ["static"], "providers.static.hosts": {"desk1": host}}
    config = load_config(settings | {"state_dir": str(tmp_path / "state")}, environ={}, cwd=tmp_path)
    with closing(open_installation(config)) as installation:
        first = listing.offers(config, lambda: installation, now_ms=NOW, limit=2)
        second = listing.offers(config, lambda: installation, now_ms=NOW, limit=2, cursor=first.next_cursor)
    assert [row.part for row in first.offers] == ["enabled", "elsewhere", "elsewhere"]
    assert [row.part for row in second.offers] == ["elsewhere"] * 2
    assert {row.id for row in second.offers}.isdisjoint(row.id for row in first.offers)


def test_offers_for_a_job_are_ranked_by_what_it_costs_to_finish_there(installation: Installation) -> None:
    wanted = spec(resources=Resources(gpu_memory_bytes=(70 * 10**9, None)), steps=100_000)
    found = listing.offers(installation.config, lambda: installation, now_ms=NOW, spec=wanted)
    real = [row for row in found.offers if not row.simulated]
    costs = [row.cost_nano_usd or 0 for row in real]
    assert costs == sorted(costs)
    assert any(a.nano_usd_per_hour > b.nano_usd_per_hour for a, b in pairwise(real))
    assert all(row.cost_low_nano_usd <= row.cost_nano_usd <= row.cost_high_nano_usd for row in real)
    assert found.job == "gpt"
    assert dict(found.unfit)["GPU memory"] > 100
    assert json.dumps(to_json(found))


def test_for_a_job_that_fits_no_gpu_the_reason_says_by_how_much(installation: Installation) -> None:
    wanted = spec(resources=Resources(gpu_memory_bytes=(300 * 10**9, None)))
    with pytest.raises(InfeasibleError, match=r"GPUs of 300 GB; the largest has \d+ GB, \d+ GB less"):
        listing.offers(installation.config, lambda: installation, now_ms=NOW, spec=wanted)


def test_a_plan_stays_with_what_is_enabled_as_long_as_that_can_run_the_job(installation: Installation) -> None:
    view = plan.preview(installation, [spec()], anywhere=None, wall=VirtualClock(NOW))
    assert not view.anywhere
    assert view.simulated
    assert {pick.objective for pick in view.decisions[0].picks} >= {"cheapest", "fastest", "cost x time"}
    assert view.decisions[0].front[0].offer_id == view.decisions[0].picks[0].offer_id


@pytest.mark.parametrize("anywhere", [None, True])
def test_a_plan_for_clouds_that_are_not_enabled_says_so_and_is_never_submitted(
    installation: Installation, tmp_path, anywhere
):
    wanted = spec(resources=GPUS, steps=50_000)
    view = plan.preview(installation, [wanted], anywhere=anywhere, wall=VirtualClock(NOW))
    (decided,) = view.decisions
    assert view.anywhere
    assert not view.changes
    assert not view.simulated
    assert decided.offer_id.partition("/")[0] in view.not_enabled
    assert all(not choice.offer_id.startswith("fake/") for choice in decided.choices)
    assert min(choice.price_age_s for choice in decided.choices) > DAY_S
    assert decided.parts is not None
    assert decided.rejected[0].topic == "GPU memory"
    with pytest.raises(InfeasibleError, match="clouds that are not enabled"):
        submit.submit(installation, view, caller=ME)
    with pytest.raises(InfeasibleError, match="clouds that are not enabled"):
        apply.apply(installation, view, caller=ME)
    with pytest.raises(UsageError, match="cannot be saved"):
        apply.save(view, tmp_path / "plan.json")
    with installation.store.read() as tx:
        assert tx.jobs() == []


@pytest.mark.parametrize("anywhere", [None, True])
def test_a_budget_that_buys_the_job_nowhere_is_the_reason_also_on_clouds_that_are_not_enabled(
    installation: Installation, anywhere: bool | None
) -> None:
    expensive = replace(spec(resources=GPUS, steps=50_000_000), budget_nano_usd=usd(5))
    view = plan.preview(installation, [expensive], anywhere=anywhere, wall=VirtualClock(NOW))
    (decided,) = view.decisions
    assert view.anywhere
    assert decided.offer_id is None
    amount = re.search(r"a budget of \$([\d,.]+) would be enough", decided.reason)
    assert amount is not None
    with pytest.raises(InfeasibleError) as refused:
        feasible.require_feasible(view)
    assert "raise the budget" in refused.value.hint
    enough = replace(expensive, budget_nano_usd=usd(amount[1].replace(",", "")))
    (decided,) = plan.preview(installation, [enough], anywhere=anywhere, wall=VirtualClock(NOW)).decisions
    assert decided.offer_id is not None
    assert decided.chance is None


def test_a_job_whose_budget_is_too_small_here_is_not_planned_for_clouds_that_are_not_enabled(
    installation: Installation,
) -> None:
    """It could run here with more money, which is what `submit` says, too; elsewhere nothing can be started."""
    poor = spec(steps=50_000_000)
    (elsewhere,) = plan.preview(installation, [poor], anywhere=True, wall=VirtualClock(NOW)).decisions
    (here,) = plan.preview(installation, [poor]).decisions
    assert elsewhere.cost_nano_usd is not None
    assert here.cost_nano_usd is not None
    for share in (0.01, 0.3):
        tight = replace(poor, budget_nano_usd=int(here.cost_nano_usd * share))
        view = plan.preview(installation, [tight], anywhere=None, wall=VirtualClock(NOW))
        assert not view.anywhere
        with pytest.raises(InfeasibleError, match="would be enough") as refused:
            feasible.require_feasible(view)
        assert "plan --anywhere" in refused.value.hint


def test_a_plan_for_other_clouds_names_what_is_enabled_and_has_nothing_to_rent(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeProvider, "offers", lambda self: [])
    monkeypatch.setattr(FakeProvider, "prices", lambda self: [])
    view = plan.preview(installation, [spec()], anywhere=None)
    assert view.anywhere
    assert view.no_offers == ("fake",)
    assert "fake: enabled, but without offers" in rendered(view, Screen())


def test_a_cloud_that_nothing_can_rent_is_not_one_to_enable(installation: Installation) -> None:
    wanted = spec(resources=GPUS, steps=50_000, where=Where(clouds=("verda",)))
    view = plan.preview(installation, [wanted], anywhere=True, wall=VirtualClock(NOW))
    assert view.decisions[0].offer_id.startswith("verda/")
    assert view.not_enabled == view.no_provider == ("verda",)
    shown = rendered(view, Screen())
    assert "Tradewind cannot rent at verda: no provider" in shown
    assert "enable it in tradewind.toml" not in shown
    with pytest.raises(InfeasibleError) as refused:
        submit.submit(installation, view, caller=ME)
    assert "install a provider package" in refused.value.hint
    assert "providers.enabled" not in refused.value.hint


def test_clouds_that_nothing_can_rent_are_distinguished_in_a_list_of_offers(local: Config) -> None:
    found = listed(local, gpu="H100:8")
    assert {"aws", "verda"} <= set(found.not_enabled)
    assert "verda" in found.no_provider
    assert "aws" not in found.no_provider
    shown = offers_rendered(found, Screen())
    assert re.search(r"not enabled here: [^\n]*aws", shown)
    assert not re.search(r"not enabled here: [^\n]*verda", shown)
    assert re.search(r"cannot rent at [^\n]*verda", shown)


def test_prices_past_the_age_limit_are_no_choice_and_counted_wherever_a_job_is_ranked(
    installation: Installation,
) -> None:
    limit_s = installation.config.prices.max_age_days * DAY_S
    wanted = spec(resources=Resources(gpus=(GpuRequest("H100", 8),)), steps=50_000)
    (decided,) = plan.preview(installation, [wanted], anywhere=True, wall=VirtualClock(NOW)).decisions
    assert max(choice.price_age_s for choice in decided.choices if choice.role in ("choose", "next")) <= limit_s
    left_out = {each.topic: each.count for each in decided.rejected}["old price"]
    ranked = listing.offers(installation.config, lambda: installation, now_ms=NOW, spec=wanted)
    assert max(row.age_s or 0 for row in ranked.offers if not row.simulated) <= limit_s
    assert dict(ranked.unfit)["old price"] == left_out > 0
    everything = listing.offers(installation.config, lambda: installation, now_ms=NOW).offers
    assert max(row.age_s or 0 for row in everything) > limit_s, "a list shows them, with their age"


def test_a_job_that_waits_because_prices_are_too_old_names_how_many_and_the_command_that_collects_new_ones(
    installation: Installation,
) -> None:
    wanted = spec(resources=Resources(gpus=(GpuRequest("A100-40GB", 8),)), capacity=("spot",), where=Where(("aws",)))
    later = VirtualClock(NOW + 200 * DAY_S * 1000)
    view = plan.preview(installation, [wanted], anywhere=True, wall=later)
    (decided,) = view.decisions
    assert decided.offer_id is None
    left_out = {each.topic: each.count for each in decided.rejected}["old price"]
    assert f", {left_out} on old price; nearest miss aws/" in decided.reason
    assert view.outdated == ("aws",)
    assert "tradewind prices collect --once --cloud aws" in rendered(view, Screen())
    with pytest.raises(InfeasibleError) as refused:
        feasible.require_feasible(view)
    assert refused.value.hint.startswith("collect new prices (tradewind prices collect --once --cloud aws), or ")
    elsewhere = plan.preview(installation, [replace(wanted, where=Where(("lambda",)))], anywhere=True, wall=later)
    assert elsewhere.outdated == ()  # no price is the reason


def test_new_prices_are_no_remedy_where_the_limits_exclude_what_has_old_ones(installation: Installation) -> None:
    wanted = spec(resources=Resources(gpus=(GpuRequest("B200", 8),)))
    limits = replace(installation.config.limits, max_usd_per_hour=5.0)
    here = replace(installation, config=replace(installation.config, limits=limits))
    view = plan.preview(here, [wanted], anywhere=True, wall=VirtualClock(NOW + 30 * DAY_S * 1000))
    (decided,) = view.decisions
    assert decided.offer_id is None
    assert {each.topic for each in decided.rejected} >= {"old price", "your limits"}
    assert view.outdated == ()
    with pytest.raises(InfeasibleError, match=r"more than limits\.max_usd_per_hour") as refused:
        feasible.require_feasible(view)
    restart = "tradewind down --keep-jobs, then tradewind up"
    assert refused.value.hint == f"raise that limit in tradewind.toml ({restart}), or relax these in the job file"


def test_an_unknown_filter_value_is_refused_as_before(installation: Installation) -> None:
    view = plan.preview(installation, [spec(resources=Resources(gpus=(GpuRequest("SIM-L", 7),)))], anywhere=None)
    assert not view.anywhere
    with pytest.raises(InfeasibleError, match="gpt: no offer fits"):
        submit.submit(installation, view, caller=ME)


def test_a_gpu_without_its_memory_means_every_memory(local):
    shown = {row.gpu for row in listed(local, gpu="A100").offers}
    assert shown == {"A100-40GB", "A100-80GB"}
    assert {row.gpu for row in listed(local, gpu="A100-40GB").offers} == {"A100-40GB"}
