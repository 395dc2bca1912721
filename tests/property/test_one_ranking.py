"""One function ranks a job: `plan`, `plan --anywhere` and `offers --for`, whatever is filtered, tell the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config import load_config
from orchestrator.engine.machines.collect import collect
from orchestrator.errors import InfeasibleError, UsageError
from orchestrator.installation import Installation
from orchestrator.model import CHEAPEST, FASTEST, Expected, GpuRequest, JobSpec, Objective, Resources
from orchestrator.perf import Row, Work, program_of
from orchestrator.services.jobs import plan
from orchestrator.services.offers import listing
from orchestrator.services.offers.filters import OfferQuery
from orchestrator.services.offers.views import OfferRow
from orchestrator.services.views import Choice, PlanView
from orchestrator.store import Store
from providers.clock import VirtualClock
from providers.fake import FakeCloud, FakeProvider
from tests.unit.services.recorded_history import spec

T0 = 1_700_000_000_000
NOW = 1_795_000_000_000  # some days after the newest fact of the catalogue
WALL = VirtualClock(NOW)
STEP = Work(6e14, 6e14, 2e11, 4000, 10**8, 16 * 10**8, 3 * 10**9, 0.02)
FIGURES = (
    "nano_usd_per_step",
    "duration_s",
    "cost_nano_usd",
    "cost_low_nano_usd",
    "cost_high_nano_usd",
    "relative_speed",
)


def known_by(evidence: str) -> JobSpec:
    """A job of the name and program of which the store knows something by that way."""
    said = Expected(GpuRequest("L4"), 0.3) if evidence == "user" else None
    made = spec(name=evidence, steps=40_000, resources=Resources(), probe=False, expected=said)
    return dataclasses.replace(made, train=dataclasses.replace(made.train, args={"way": evidence}))


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder, clock = tmp_path_factory.mktemp("ranking"), VirtualClock(T0)
    config = load_config({"state_dir": str(folder), "providers.enabled": "fake"}, environ={}, cwd=folder)
    store = Store.open(config.store_url, clock)
    opened = Installation(config, clock, store, {"fake": FakeProvider(clock, cloud=FakeCloud(clock, seed=1))})
    collect(opened)
    view = plan.preview(opened, [known_by("run")])
    with store.write() as tx:
        for job in view.new_jobs:
            tx.add_job(job)
            tx.add_perf(job.id, "V100", 1, 0.122, 1000, T0)
        tx.put_work(program_of(known_by("profile").train), STEP, T0)
        tx.put_rates("theirs.csv", [Row("table", "llm", "A100-80GB", 1, 0.5), Row("table", "llm", "T4", 1, 0.04)])
    yield opened
    opened.close()


WANTED = st.builds(
    lambda evidence, **changes: dataclasses.replace(known_by(evidence), **changes),
    st.sampled_from(["nothing", "user", "run", "profile", "table"]),
    objective=st.sampled_from([CHEAPEST, FASTEST, Objective(0.5, 0.5)]),
    deadline_s=st.sampled_from([None, 7 * 86_400.0, 20 * 86_400.0]),
    budget_nano_usd=st.sampled_from([None, 50 * 10**9, 5000 * 10**9]),
)
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "gpu": st.sampled_from(["V100", "A100-80GB", "T4:1", "L4", "SIM-L", "H100:8"]),
        "gpu_memory": st.sampled_from(["16..", "40..80", "..24"]),
        "cloud": st.sampled_from([["aws"], ["gcp", "azure"], ["fake"], ["lambda"]]),
        "region": st.sampled_from([["us-*"], ["eu-*", "alpha"], ["beta"]]),
        "spot": st.booleans(),
        "max_price": st.sampled_from([0.5, 2.0, 20.0]),
    },
)


@settings(max_examples=12)
@given(WANTED, FILTERS)
def test_every_surface_tells_the_same_of_an_offer_and_opens_with_the_same_one(
    installation: Installation, wanted: JobSpec, filters: dict[str, object]
) -> None:
    try:
        shown = listed(installation, wanted, OfferQuery.of(**filters))  # type: ignore[arg-type]
    except (UsageError, InfeasibleError):
        return
    for view in (plan.preview(installation, [wanted]), plan.preview(installation, [wanted], anywhere=True, wall=WALL)):
        planned = {choice.offer_id: choice for choice in view.decisions[0].choices if choice.role != "baseline"}
        for row in shown:
            if row.id in planned and planned[row.id].role != "no":
                assert figures(row) == figures(planned[row.id])
        everything = [row for row in listed(installation, wanted, OfferQuery()) if row.enabled is not view.anywhere]
        assert [figures(row) for row in shown if row.enabled is not view.anywhere] == [
            figures(row) for row in everything if row.id in {each.id for each in shown}
        ]
        if (chosen := placed(view)) is not None:
            assert everything[0].id == chosen
            passing = [row for row in shown if row.enabled is not view.anywhere]
            assert chosen not in {row.id for row in passing[1:]}


def test_a_filter_forgets_nothing_that_is_known_of_a_job(installation: Installation) -> None:
    """0.122 steps/s became 20.74, and $2.00 became $0.05, as soon as a filter left out the enabled provider."""
    (row, *_) = listed(installation, known_by("run"), OfferQuery.of(gpu="V100:1", cloud=["aws"]))
    assert row.steps_per_s == pytest.approx(0.122)


def listed(installation: Installation, wanted: JobSpec, query: OfferQuery) -> tuple[OfferRow, ...]:
    return listing.offers(installation.config, lambda: installation, query, now_ms=NOW, spec=wanted).offers


def figures(reported: OfferRow | Choice) -> tuple[object, ...]:
    return tuple(getattr(reported, name) for name in ("nano_usd_per_hour", *FIGURES))


def placed(view: PlanView) -> str | None:
    (decided,) = view.decisions
    return decided.offer_id if decided.action == "place" else None
