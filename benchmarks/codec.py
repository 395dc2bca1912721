"""Claim: a plan of 100 offers is encoded in 2 ms and decoded with checks in 3 ms; a row is decoded in 20 microseconds.

    python -m benchmarks.codec            the fastest of 20 rounds
    python -m benchmarks.codec --quick    of 5

For comparison, each figure is followed by that of pydantic's TypeAdapter, the other candidate, in strict JSON mode with
unknown fields refused. It can decode a row only from JSON text. Before any timing, both must return exactly their
input.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from time import perf_counter
from timeit import Timer
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from benchmarks._claims import Claim, show
from orchestrator.formats.codec import Codec, decode, dumps, encode
from orchestrator.model import Alternative, CostParts, Entry, Estimate, Event, Placement, Plan, Rejection, Run

STRICT = ConfigDict(strict=True, extra="forbid", ser_json_inf_nan="constants")
T0 = 1_700_000_000_000
SPEED = Estimate(1.5, 1.2, 1.9, "profiled")


def offer(number: int) -> Alternative:
    place = f"aws/us-east-1/us-east-1a/p4d.24xlarge-{number}/spot"
    cost = 10**12 + number
    speed = SPEED if number % 5 == 0 else None
    times = (3600.5, True, "it costs more", 3000.25, 4000.75)
    return Alternative(place, 12_345_678_901 + number, 123.456, 1.5, 2.5e6, cost, cost - 9, cost + 9, *times, speed)


def placement(number: int) -> Placement:
    offers = tuple(offer(each) for each in range(20))
    return Placement(
        job_id=f"job_{number:015}",
        action="place",
        offer_id=offers[0].offer_id,
        reason="the cheapest that fits",
        cost_nano_usd=10**12,
        finish_at_ms=T0 + 3_600_500,
        saving_nano_usd=10**9,
        alternatives=offers,
        baseline=offers[3],
        throughput=SPEED,
        parts=CostParts(1, 2, 3, 4, 5, 6, 7),
        rejected=(Rejection("memory", 3),),
        evidence="profile",
    )


PLAN = Plan("plan_1", T0, "d" * 64, False, tuple(placement(number) for number in range(5)))
ROWS: tuple[Run | Entry | Event, ...] = (
    Run("run_1", "job_1", 3, "aws/r/z/t/spot", "i-1", "training", T0, T0, None, T0, last_loss=0.5, useful_s=3.25),
    Entry("en_1", "run_1", "job_1", T0, T0 + 9, "compute", 123_456_789, "estimated", "aws/r/z/t/spot", T0 + 9),
    Event("ev_1", T0, "run.training", "it trains", "control-plane", "job_1", "run_1", data={"step": 12, "loss": 2.5}),
)


def fastest_us(work: Callable[[], object], rounds: int) -> float:
    """Microseconds of the fastest call: other load on this machine can only make a call slower."""
    timer = Timer(work)
    number = max(1, timer.autorange()[0] // 10)
    return min(timer.repeat(rounds, number)) / number * 1e6


def measure(rounds: int) -> list[Claim]:
    claims = []
    codec = Codec(Plan, "plan/1")
    text = codec.dumps(PLAN)
    started = perf_counter()
    adapter: TypeAdapter[Any] = TypeAdapter(tuple[Plan], config=STRICT)  # so that standard dataclasses inherit STRICT
    wrapped = adapter.dump_json((PLAN,))
    made_us = (perf_counter() - started) * 1e6
    assert codec.loads(text) == adapter.validate_json(wrapped)[0] == PLAN
    claims += [
        Claim("encode a plan", fastest_us(lambda: codec.dumps(PLAN), rounds), "us", 2_000),
        Claim("  pydantic", fastest_us(lambda: adapter.dump_json((PLAN,), warnings="error"), rounds), "us"),
        Claim("decode a plan", fastest_us(lambda: codec.loads(text), rounds), "us", 3_000),
        Claim("  pydantic", fastest_us(lambda: adapter.validate_json(wrapped), rounds), "us"),
        Claim("  pydantic: building its adapter", made_us, "us"),
    ]
    for row in ROWS:
        claims += _row(row, rounds)
    return claims


def _row(row: Run | Entry | Event, rounds: int) -> list[Claim]:
    type_, values = type(row), encode(row)
    adapter: TypeAdapter[Any] = TypeAdapter(tuple[type_], config=STRICT)  # type: ignore[valid-type]

    def by_text() -> object:
        return adapter.validate_json(f"[{json.dumps(values)}]")[0]

    assert decode(type_, values) == by_text() == row
    name = type_.__name__.lower()
    return [
        Claim(f"decode a row of {name}", fastest_us(lambda: decode(type_, values), rounds), "us", 20),
        Claim("  pydantic", fastest_us(by_text, rounds), "us"),
        Claim(f"encode a row of {name}", fastest_us(lambda: encode(row), rounds), "us", 10),
    ]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="5 rounds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    notes = [f"the plan is {len(dumps(PLAN)):,} bytes of JSON"]
    return show("JSON", measure(5 if options.quick else 20), as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
