"""What finishing costs besides the machine's hours, part by part; and what other objectives would take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.market import HazardPrior, Market
from orchestrator.model import FASTEST, CheckpointSpec, DataSource
from orchestrator.perf import PerfBook
from orchestrator.policy import Demand, MoveLimits, compare, decide, prospects
from orchestrator.policy.ranking.routes import Routes, location_of
from orchestrator.policy.ranking.transition_costs import transition_costs
from providers.billing.charges import disk_nano_usd, rate_card
from providers.billing.egress import EgressRow, EgressTable
from providers.money import MS_PER_HOUR, usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

STEPS = 36_000
GB = 10**9


def parts_of(case, demand):
    placement = case.decide(demand)
    return placement, placement.parts


def test_a_job_of_seconds_pays_for_the_shortest_time_that_is_billed(case):
    case.startup_s = 10
    case.offer("a", 3.60, provider="aws", gpu="T4")
    job = case.job(rates={"T4": 1.0})
    placement, parts = parts_of(case, Demand(job, 20))
    assert placement.cost_nano_usd == pytest.approx(usd(3.60) * rate_card("aws").minimum_ms / MS_PER_HOUR)
    assert parts.minimum_nano_usd == pytest.approx(usd(3.60) * 30 / 3600)
    long = case.decide(Demand(job, STEPS)).parts
    assert long.minimum_nano_usd == 0


def test_simulated_machines_cost_what_their_market_declares_and_bills(case):
    case.startup_s = 10
    case.offer("a", 3.60)
    card = rate_card("local")
    placement, parts = parts_of(case, Demand(case.job(), 20))
    assert parts.minimum_nano_usd == pytest.approx(usd(3.60) * (card.minimum_ms - 30_000) / MS_PER_HOUR)
    assert parts.storage_nano_usd == pytest.approx(disk_nano_usd(card, 0, 20_000), abs=1)
    minute = usd(3.60) * card.minimum_ms / MS_PER_HOUR
    assert placement.cost_nano_usd == pytest.approx(minute + disk_nano_usd(card, 0, 30_000), abs=10)


def test_kept_checkpoints_are_stored_for_as_long_as_it_trains(case):
    case.startup_s = 0
    case.offer("a", 1, provider="aws", gpu="T4")
    job = case.job(rates={"T4": 1.0}, checkpoint=CheckpointSpec(keep=2, max_overhead=0.0))
    _, parts = parts_of(case, Demand(job, STEPS, checkpoint_bytes=100 * GB))
    assert parts.storage_nano_usd == pytest.approx(usd("0.023") * 200 * 10 / 730, rel=1e-6)


def test_data_of_another_cloud_is_paid_for_by_each_machine_that_fetches_it(case):
    aws = case.offer("a", 1.00, provider="aws", gpu="T4")
    gcp = case.offer("g", 0.99, provider="gcp", gpu="T4")
    rates = {"T4": 1.0}
    assert case.decide(Demand(case.job(rates=rates), STEPS)).offer_id == gcp
    fetching = case.job("job_2", rates=rates, data=(DataSource("s3://bucket/set", "/data", 100 * GB),))
    placement = case.decide(Demand(fetching, STEPS))
    assert placement.offer_id == aws
    other = next(each for each in placement.alternatives if each.offer_id == gcp)
    assert other.cost_nano_usd == pytest.approx(usd(9) + usd("0.99") * (10 + 1 / 12), rel=1e-6)
    assert location_of("gs://bucket/set") == ("gcp", "")
    assert location_of("/here") is None
    assert location_of("https://example.org/set") is None


def test_a_tariff_of_ones_own_is_used_and_an_unknown_region_is_the_nearest(case):
    offers = [case.offer("a", 1, provider="aws", gpu="T4", region=region) for region in ("eu-1", "us-1")]
    table = EgressTable(
        [EgressRow("aws", "eu-1", "us-1", usd("0.5")), EgressRow("gcp", "*", "internet", usd("0.25"))], {}
    )
    market = Market.as_of(case.now, offers=case.offers, prices=case.prices, tariff=table)
    assert [market.place(row)[1] for row in range(2)] == ["eu-1", "us-1"]
    assert market.rates_from(("aws", "eu-1")).tolist() == [0, usd("0.5")]
    assert market.rates_from(("gcp", "x")).tolist() == [usd("0.25")] * 2
    assert market.rates_from(("aws", "")).tolist() == [0, 0]
    assert market.rates_to(("aws", "")).tolist() == [0, 0]
    assert len(offers) == 2


def test_a_public_bucket_stands_for_the_hazard_until_machines_were_seen(case):
    calm = case.offer("calm", 1, provider="aws", gpu="T4", spot=True)
    wild = case.offer("wild", 1, provider="aws", gpu="T4", spot=True)
    prior = {("aws", "eu-1", "calm"): HazardPrior(100.0, "AWS Spot Advisor")}
    market = Market.as_of(case.now, offers=case.offers, prices=case.prices, priors=prior)
    hazard = dict(zip(market.ids, market.hazard.tolist(), strict=True))
    assert (hazard[calm], hazard[wild]) == (1 / 100, 1 / 8)
    assert market.hazard_provenance(market.row(calm)) == "prior: one loss in 100 h (AWS Spot Advisor)"
    for minutes, kind in ((60, "launched"), (0, "lost")):
        case.happened(calm, kind, minutes)
    seen = Market.as_of(case.now, offers=case.offers, prices=case.prices, priors=prior, availability=case.seen)
    assert seen.hazard[seen.row(calm)] == pytest.approx(2 / 101)
    assert market.digest != Market.as_of(case.now, offers=case.offers, prices=case.prices).digest


def test_the_front_and_the_picks_flip_with_the_objective(case):
    slow = case.offer("slow", 0.50, gpu="SIM-S")  # 20 h, $10
    middle = case.offer("middle", 1.20, gpu="SIM-M")  # 10 h, $12
    fast = case.offer("fast", 4.00, gpu="SIM-L")  # 5 h, $20
    case.offer("worse", 5.00, gpu="SIM-M")
    job = case.job(rates={"SIM-S": 0.5, "SIM-M": 1.0, "SIM-L": 2.0})
    compared = compare(Demand(job, STEPS), case.market(), case.perf(), limits=MoveLimits())
    assert [point.offer_id for point in compared.front] == [slow, middle, fast]
    picks = {pick.objective.split()[0] + pick.objective.split()[-1]: pick.offer_id for pick in compared.picks}
    assert (picks["cheapestcheapest"], picks["fastestfastest"]) == (slow, fast)
    assert [pick.offer_id for pick in compared.picks[2:]] == [fast, middle, middle]  # cost x time, deadline, budget
    expensive = case.job(
        "job_2", rates={"SIM-S": 0.5, "SIM-M": 1.0, "SIM-L": 2.0}, budget_nano_usd=usd(1), objective=FASTEST
    )
    compared = compare(Demand(expensive, STEPS), case.market(), case.perf(), limits=MoveLimits())
    assert compared.picks[-1].objective == "fastest for $1.00"
    assert compared.picks[-1].offer_id is None


def test_the_front_and_the_picks_are_within_the_budget_of_the_job(case):
    slow = case.offer("slow", 0.50, gpu="SIM-S")  # 20 h, $10
    middle = case.offer("middle", 1.20, gpu="SIM-M")  # 10 h, $12
    case.offer("fast", 4.00, gpu="SIM-L")  # 5 h, $20
    rates = {"SIM-S": 0.5, "SIM-M": 1.0, "SIM-L": 2.0}
    for dollars, front, fastest in ((16, [slow, middle], middle), (1, [], None)):
        job = case.job(f"job_{dollars}", rates=rates, budget_nano_usd=usd(dollars))
        compared = compare(Demand(job, STEPS), case.market(), case.perf(), limits=MoveLimits())
        assert [point.offer_id for point in compared.front] == front
        assert {pick.offer_id for pick in compared.picks} <= {*front, None}
        assert compared.picks[1].offer_id == fastest


def test_there_is_nothing_to_compare_without_a_number_of_steps_or_an_offer(case):
    job = case.job()
    assert compare(Demand(job, STEPS), case.market(), case.perf(), limits=MoveLimits()) is None
    case.offer("a", 1)
    assert compare(Demand(job, None), case.market(), case.perf(), limits=MoveLimits()) is None


def test_prospects_are_what_decide_would_tell_of_each_offer(case):
    for number in range(5):
        case.offer(f"m{number}", 1 + number, spot=number % 2 == 0)
    case.offer("other", 1, region="us-1", gpu=None, count=0)
    demand = Demand(case.job(), STEPS)
    found, barred = prospects(demand, case.market(), case.perf(), limits=MoveLimits())
    reported = {each.offer_id: each for each in case.decide(demand).alternatives}
    assert {each.offer_id for each in found} == set(reported)
    for each in found:
        same = reported[each.offer_id]
        assert (each.cost_nano_usd, each.cost_low_nano_usd, each.cost_high_nano_usd) == (
            same.cost_nano_usd,
            same.cost_low_nano_usd,
            same.cost_high_nano_usd,
        )
        assert (each.steps_per_s, each.nano_usd_per_step) == (same.steps_per_s, same.nano_usd_per_step)
    assert barred == {}
    assert (
        prospects(Demand(case.job(), None), case.market(), PerfBook.as_of(0, ()), limits=MoveLimits())[0][0].duration_s
        is None
    )


def test_another_zone_costs_egress_unless_the_checkpoints_are_in_a_bucket(case):
    offers = [
        Offer("aws", "eu-1", f"eu-1{zone}", "a", "T4", 1, 4, 16 * GB, CapacityType.ON_DEMAND) for zone in ("a", "b")
    ]
    prices = [PricePoint(offer.id, usd(1), case.now, case.now, "test") for offer in offers]
    table = EgressTable([EgressRow("aws", "*", "zone", usd("0.02"))], {})
    market = Market.as_of(case.now, offers=offers, prices=prices, tariff=table)
    here = market.place(0)
    for job, fee in (
        (case.job(rates={"T4": 1.0}), usd("0.20")),
        (case.job("job_2", rates={"T4": 1.0}, checkpoint=CheckpointSpec(to="s3://bucket/ck", max_overhead=0.0)), 0),
    ):
        demand = Demand(job, STEPS, done_steps=1, checkpoint_bytes=10 * GB, checkpoint_at=here)
        placed = decide([demand], market, case.perf(), {}).placements[0]
        assert placed.offer_id == offers[0].id or not fee
        cost = {each.offer_id: each.cost_nano_usd for each in placed.alternatives}
        assert cost[offers[1].id] - cost[offers[0].id] == pytest.approx(fee, abs=2)


def test_a_bucket_that_all_jobs_share_costs_as_much_as_one_that_a_job_names(case):
    offers = [case.offer(provider[0], 1, provider=provider, gpu="T4") for provider in ("aws", "gcp", "azure")]
    named = CheckpointSpec(to="s3://bucket/ck", max_overhead=0.0)
    size = {"checkpoint_bytes": 10 * GB, "checkpoint_at": ("gcp", "eu-1", "eu-1g"), "done_steps": 1}
    shared = case.decide(Demand(case.job(rates={"T4": 1.0}), STEPS, store_root="s3://all/tw", **size))
    own = case.decide(Demand(case.job("job_2", rates={"T4": 1.0}, checkpoint=named), STEPS, **size))
    folder = case.decide(Demand(case.job("job_3", rates={"T4": 1.0}), STEPS, store_root="/data/tw", **size))
    costs = [{each.offer_id: each.cost_nano_usd for each in plan.alternatives} for plan in (shared, own, folder)]
    assert costs[0] == pytest.approx(costs[1])
    assert costs[0][offers[0]] < costs[2][offers[0]], "it is fetched from S3, not from GCP"
    assert costs[0][offers[1]] > costs[2][offers[1]] + usd(10), "each save crosses clouds"
    assert shared.offer_id == offers[0]
    assert shared.parts.egress_nano_usd == 0


@pytest.mark.parametrize(("provider", "region", "fee"), [("aws", "us-1", 0), ("gcp", "us-1", 9), ("azure", "eu-1", 9)])
def test_a_checkpoint_in_a_bucket_is_fetched_from_there_whichever_machine_saved_it(case, provider, region, fee):
    case.startup_s = 0
    case.offer("x", 1, provider=provider, gpu="T4", region=region)
    for store, expected in (("s3://all/tw", fee), ("az://all/tw", 8.7 if provider != "azure" else 0)):
        job = case.job(rates={"T4": 1.0})
        demand = Demand(job, 10, 5, checkpoint_bytes=100 * GB, checkpoint_at=("gcp", "eu-1", "a"), store_root=store)
        costs = transition_costs(demand, case.market(), None, None, 1e12)
        assert costs.egress.tolist() == pytest.approx([usd(expected)])
        assert costs.per_loss.tolist() == pytest.approx([usd(expected)])


def test_simulated_machines_pay_for_no_bucket_that_all_jobs_share(case):
    case.offer("x", 1)
    sizes = {"checkpoint_bytes": 100 * GB, "checkpoint_at": ("local", "us-1", "a"), "done_steps": 1}
    folder, bucket = (Demand(case.job(), 10, store_root=root, **sizes) for root in ("/data/tw", "s3://all/tw"))
    costs = [transition_costs(each, case.market(), None, None, 60.0) for each in (folder, bucket)]
    for name in ("begin_s", "egress", "upkeep_s", "per_loss"):
        assert getattr(costs[0], name).tolist() == getattr(costs[1], name).tolist()


def test_egress_counts_against_the_budget_even_if_nothing_else_is_known_of_the_cost(case):
    """100 GB from aws to another cloud cost $9."""
    case.offer("g", 0.50, provider="gcp", gpu="T4")
    expensive = case.offer("a", 1.00, provider="aws", gpu="T4")
    job = case.job(rates={"T4": 1.0}, budget_nano_usd=usd(10))
    at = ("aws", "eu-1", "eu-1a")
    demand = Demand(job, None, 100, usd(2), checkpoint_bytes=100 * GB, checkpoint_at=at)
    placement = case.decide(demand)
    assert placement.offer_id == expensive
    assert placement.alternatives[-1].reason == "moving there would cost $1.00 more than the remaining budget"
    enough = case.job("job_2", rates={"T4": 1.0}, budget_nano_usd=usd(12))
    assert (
        case.decide(Demand(enough, None, 100, usd(2), checkpoint_bytes=100 * GB, checkpoint_at=at)).offer_id
        != expensive
    )


def test_the_region_of_a_bucket_decides_what_saving_and_fetching_cost(case):
    """Within the cloud of the bucket, too: both were free there, because no region was known."""
    case.startup_s = 0
    near, far, other = (
        case.offer(name, 1, provider=name[:3], gpu="T4", region=region)
        for name, region in (("aws1", "eu-1"), ("aws2", "us-1"), ("gcp1", "eu-1"))
    )
    table = EgressTable(
        [EgressRow("aws", "*", "region", usd("0.02")), EgressRow("aws", "*", "internet", usd("0.09"))], {}
    )
    market = Market.as_of(case.now, offers=case.offers, prices=case.prices, tariff=table)
    named = CheckpointSpec(to="s3://bucket/ck", max_overhead=0.0)
    demand = Demand(
        case.job(rates={"T4": 1.0}, checkpoint=named),
        STEPS,
        done_steps=1,
        checkpoint_bytes=100 * GB,
        checkpoint_at=("aws", "us-1", "us-1a"),
        bucket_region="eu-1",
    )
    costs = transition_costs(demand, market, None, None, 3600.0)
    of = {id: float(costs.egress[market.listing.site[market.row(id)]]) for id in (near, far, other)}
    assert of == pytest.approx({near: 0, far: usd(2), other: usd(9)})
    again = {id: float(costs.per_loss[market.listing.site[market.row(id)]]) for id in (near, far, other)}
    assert again == of
    saving = {id: float(costs.upkeep_s[market.listing.site[market.row(id)]]) for id in (near, far)}
    assert saving[far] - saving[near] == pytest.approx(usd(2) / 3600)
    unknown = transition_costs(replace(demand, bucket_region=""), market, None, None, 3600.0)
    assert unknown.egress[market.listing.site[market.row(far)]] == 0, "the machine that saved it was there"
    own = transition_costs(replace(demand, bucket_region=None), market, None, None, 3600.0)
    assert not own.egress.any(), "nobody is known to bill what is fetched from a store that is in no cloud"
    assert not own.per_loss.any()


@pytest.mark.parametrize("region", ["", "eu-1"])
def test_a_later_move_between_clouds_is_priced_through_the_bucket_too(case, region):
    """After a loss, after a probe, and back to on-demand before a deadline."""
    for name, place in (("aws", "eu-1"), ("gcp", "eu-1"), ("azure", "eu-1"), ("gcp", "us-1")):
        case.offer(f"{name}{place}", 1, provider=name, gpu="T4", region=place)
    job = case.job(rates={"T4": 1.0})
    market = case.market()
    routes = Routes(Demand(job, STEPS, store_root="gs://all/tw", bucket_region=region), market)
    sites = list(market.listing.sites)

    def cost(saved: int, restored: int) -> int:
        to = routes.to_sites(market.listing.sites[saved], 100 * GB)[restored]
        back = routes.from_sites(market.listing.sites[restored], 100 * GB)[saved]
        rate = routes.rates_to(market.listing.sites[restored])[saved]
        assert to == back == rate * 100
        return int(to)

    at = {(site.provider, site.region): number for number, site in enumerate(sites)}
    aws, azure, near, far = at["aws", "eu-1"], at["azure", "eu-1"], at["gcp", "eu-1"], at["gcp", "us-1"]
    assert cost(aws, azure) == usd(12), (
        "from Google's bucket, which charges $0.12, and not from AWS, which charges $0.09"
    )
    assert cost(azure, near) == cost(aws, near) == cost(near, near) == 0
    assert cost(near, far) == usd(8)
    assert cost(aws, far) == (usd(8) if region else 0)
    assert cost(far, far) == (usd(8) if region else 0), "the bucket is declared to be elsewhere"


def test_saves_that_take_more_than_they_may_are_counted(case):
    """1 TB takes 1,000 s. An hour between two saves is the most, so that they take 28 % of the time and not 3.5 %."""
    case.offer("it", 1.0)
    job = case.job(checkpoint=CheckpointSpec(max_overhead=0.035))
    small, large = (case.decide(Demand(job, 360_000, checkpoint_s=each)).alternatives[0] for each in (30.0, 1000.0))
    assert small.duration_s == pytest.approx(360_000 * 1.035 + 300, rel=1e-3)
    assert large.duration_s == pytest.approx(360_000 * (1 + 1000 / 3600) + 300, rel=1e-3)
