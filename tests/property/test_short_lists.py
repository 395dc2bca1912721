"""A decision lists only the best offers and the nearest misses. Listing all of a small market changes nothing else."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.market import AvailabilityPoint, Market
from orchestrator.model import GpuRequest, Job, JobSpec, Objective, Resources, TrainSpec, Where
from orchestrator.perf import Observation, PerfBook
from orchestrator.policy import Demand, Running, Underway, decide
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

AT = 1_700_000_000_000
HOUR = 3_600_000
GPUS = ("T4", "V100", "A100-80GB")
OFFERS = [
    Offer(cloud, region, f"{region}-{zone}", gpu.lower(), gpu, 1, 8, 64 * 10**9, capacity)
    for cloud in ("aws", "gcp")
    for region in ("r0", "r1")
    for zone in "ab"
    for gpu in GPUS
    for capacity in CapacityType
]
IDS = st.sampled_from([offer.id for offer in OFFERS])
PRICES = st.lists(st.integers(2 * 10**8, 8 * 10**9), min_size=len(OFFERS), max_size=len(OFFERS))
HISTORY = st.lists(
    st.builds(
        AvailabilityPoint,
        st.sampled_from([offer.id for offer in OFFERS if offer.spot]),
        st.integers(AT - 24 * HOUR, AT),
        st.sampled_from(["launched", "refused", "lost", "released"]),
    ),
    max_size=8,
)
RATES = st.lists(
    st.builds(
        Observation, st.just("job_1"), st.sampled_from(GPUS), st.just(1), st.floats(0.5, 5), st.just(2000), st.just(AT)
    ),
    max_size=3,
)
SPECS = st.fixed_dictionaries(
    {"objective": st.sampled_from([0.0, 0.5, 1.0]).map(lambda weight: Objective(weight, 1 - weight))},
    optional={
        "deadline_s": st.floats(HOUR / 1000, 80 * HOUR / 1000),
        "budget_nano_usd": st.integers(10**9, 200 * 10**9),
        "resources": st.sampled_from([Resources(), Resources(gpus=(GpuRequest("T4", 1),))]),
        "where": st.sampled_from([Where(), Where(regions=("r0",))]),
    },
)


@given(
    SPECS,
    PRICES,
    HISTORY,
    RATES,
    st.integers(0, 100_000),
    st.none() | st.builds(Running, IDS, st.integers(AT - 30 * HOUR, AT)),
    st.none() | st.builds(Underway, IDS, st.sampled_from(["cheaper offer", "probe"])),
)
def test_what_is_listed_changes_neither_the_decision_nor_a_figure(spec, prices, seen, rates, done, running, move):
    points = [PricePoint(o.id, price, AT - 10, AT - 10, "t") for o, price in zip(OFFERS, prices, strict=True)]
    market = Market.as_of(AT, offers=OFFERS, prices=points, availability=seen)
    train = TrainSpec("m:f", None, {}, "/w", {}, (), 1, None)
    job = Job("job_1", JobSpec("j", train, **spec), "a", AT, "queued" if running is None else "running")
    demand = Demand(job, 100_000, done, checkpoint_bytes=10**10)
    where = {} if running is None else {"job_1": running if move is None else replace(running, move=move)}
    moves = {"job_1": move} if running is None and move is not None else {}
    book = PerfBook.as_of(AT, rates)
    short, complete = (
        decide([demand], market, book, where, underway=moves, complete=whole).placements[0] for whole in (False, True)
    )
    assert replace(short, alternatives=()) == replace(complete, alternatives=())
    assert {each.offer_id for each in complete.alternatives} == {offer.id for offer in OFFERS}
    assert len(short.alternatives) <= 11  # the choice, six of the best, one at another site, three misses
    of_all = iter(complete.alternatives)
    assert all(each in of_all for each in short.alternatives)  # the same figures and reasons, in the same order
