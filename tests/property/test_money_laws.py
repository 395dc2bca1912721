"""Laws of the ledger, for any prices, any interval, any split."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger import accrue, restate, time_breakdown, total_nano_usd, totals
from orchestrator.model import Entry, Job, JobSpec, Run, TrainSpec
from orchestrator.reports.costs import CostRow, CostView, costs_csv
from orchestrator.reports.entries_csv import entries_csv
from orchestrator.reports.html import figures
from orchestrator.reports.html.figures import money_text, price
from providers.money import (
    MS_PER_HOUR,
    NANO_USD,
    at_least_usd,
    at_most_usd,
    cost_nano_usd,
    format_usd,
    rounded_up,
    usd,
)

JOB = Job("job_1", JobSpec("j", TrainSpec("m:f", None, {}, "/w", {}, (), 1, None)), "ada", 0, "running")
RUN = Run("run_1", "job_1", 1, "o", "i", "training", 0)

instants = st.integers(0, 10**8)
prices = st.integers(0, 10**13)


@st.composite
def price_paths(draw, longest=10**8):
    later = draw(st.lists(st.integers(1, longest), unique=True, max_size=8))
    return [(at, draw(prices)) for at in [0, *sorted(later)]]


@given(price_paths(), st.lists(instants, min_size=2, max_size=12, unique=True))
def test_entries_sum_exactly_for_any_split(path, cuts):
    start, *rest = sorted(cuts)
    run = replace(RUN, billed_from_ms=start)
    entries, last = [], None
    for upto in rest:
        entries += accrue(JOB, run, path, upto, last)
        last = entries[-1].period_end_ms
    assert total_nano_usd(entries) == cost_nano_usd(path, start, rest[-1])
    closed = replace(run, billed_to_ms=rest[-1])
    (whole, *_) = accrue(JOB, closed, path, 10**9, None)
    assert whole.amount_nano_usd == total_nano_usd(entries)
    assert sum(totals(entries, "kind").values()) == total_nano_usd(entries)


@given(price_paths(longest=300), st.integers(0, 300), st.integers(0, 300))
def test_interval_times_price_equals_brute_force_over_milliseconds(path, one, other):
    start, end = sorted((one, other))
    brute = 0
    for ms in range(start, end):
        brute += [price for at, price in path if at <= ms][-1]
    assert cost_nano_usd(path, start, end) == brute // MS_PER_HOUR


@given(price_paths(), price_paths(), st.lists(instants, min_size=2, max_size=8, unique=True), instants)
def test_corrections_bring_the_total_to_the_truth_and_then_stop(believed, truth, cuts, ended):
    start, *rest = sorted(cuts)
    run = replace(RUN, billed_from_ms=start)
    entries, last = [], None
    for upto in rest:
        entries += accrue(JOB, run, believed, upto, last)
        last = upto
    closed = replace(run, billed_to_ms=min(max(ended, start), rest[-1]))
    entries += restate(closed, entries, truth, 10**9)
    assert total_nano_usd(entries) == cost_nano_usd(truth, start, closed.billed_to_ms)
    assert restate(closed, entries, truth, 2 * 10**9) == []


optional = st.none() | instants
seconds = st.floats(0, 10**5)


@given(
    st.builds(
        replace,
        st.just(RUN),
        billed_from_ms=optional,
        billed_to_ms=optional,
        training_from_ms=optional,
        training_to_ms=optional,
        end=st.sampled_from([None, "finished", "moved", "preempted", "lost", "aborted"]),
        step_wall_s=st.none() | seconds,
        repeated_steps=st.integers(0, 1000),
        useful_s=seconds,
        checkpoint_s=seconds,
    ),
    instants,
    st.floats(0.1, 1000),
)
def test_every_billed_millisecond_is_in_exactly_one_box(run, upto, factor):
    found = time_breakdown(run, upto, factor=factor)
    boxes = (
        found.useful_ms,
        found.checkpoint_ms,
        found.lost_work_ms,
        found.provisioning_ms,
        found.migration_ms,
        found.idle_ms,
        found.unreported_ms,
    )
    assert all(isinstance(box, int) and box >= 0 for box in boxes)
    if run.billed_from_ms is None:
        assert sum(boxes) == 0
    else:
        end = upto if run.billed_to_ms is None else min(upto, run.billed_to_ms)
        assert sum(boxes) == found.total_ms == max(end - run.billed_from_ms, 0)


@given(st.integers(0, 10**13))
def test_amounts_that_are_typed_in_are_at_least_and_at_most_what_was_meant(nano_usd):
    low, high = (usd(each(nano_usd)[1:].replace(",", "")) for each in (at_most_usd, at_least_usd))
    assert low <= nano_usd <= high == rounded_up(nano_usd)
    assert high - low <= max(nano_usd // 100, 1000)


any_amount = st.integers(-(10**6), 10**6) | st.integers(-(2**63), 2**63 - 1)


@given(any_amount)
def test_an_amount_is_never_shown_as_nothing_and_nothing_has_no_sign(amount):
    shown = Decimal(format_usd(amount).replace("$", "").replace(",", ""))
    assert (shown == 0) == (amount == 0)
    assert abs(shown * NANO_USD - amount) <= NANO_USD // 200
    assert format_usd(0) == "$0.00"


@given(any_amount)
def test_dollars_in_csv_files_are_exact_and_have_no_exponent(amount):
    total = CostRow("a", "a", amount, 0, 1, 1, 0, 0)
    view = CostView(0, 0, 1, "", "", "project", (total,), total, (), 0, 0, True)
    entry = Entry("ent_1", "run_1", "job_1", 0, 1, "compute", amount, "estimated", "o", 0)
    for text in (costs_csv(view), entries_csv([entry])):
        (row,) = csv.DictReader(io.StringIO(text))
        assert Decimal(row["amount_usd"]) * NANO_USD == amount == int(row["amount_nano_usd"])
        assert "E" not in row["amount_usd"].upper()


@given(any_amount, st.integers(1, 10**10))
def test_figures_on_pages_have_no_exponent_and_one_sign_before_the_currency(amount, hours_ms):
    plain = re.compile(r"-?\$?\d{1,3}(,?\d{3})*(\.\d+)?")
    per_hour = amount / (hours_ms / MS_PER_HOUR)
    shown = [*re.findall(r'title="([^"]*)">([^<]*)<', price(per_hour))[0], figures.number(per_hour / 1000)]
    shown += [money_text(amount), figures.number(hours_ms / MS_PER_HOUR)]
    assert [each for each in shown if not plain.fullmatch(each)] == []
    assert float(re.sub("[$,]", "", shown[2])) == pytest.approx(per_hour / 1000, rel=0.006)
