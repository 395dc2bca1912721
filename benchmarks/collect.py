"""One full collection of three loopback clouds: AWS with 34 regions, GCP with 40, Azure with 60.

5 % of all calls are throttled; one AWS region hangs, and one Azure region returns only errors. Everything reachable
must be collected, and everything else must be marked. The clouds run in a separate process, so that the time and memory
shown are those of the collectors. `--quick`: 8, 8 and 12 regions.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the loopback clouds are in tests/

import contextlib

from benchmarks._claims import Claim, show
from providers.clock import SystemClock, VirtualClock
from providers.collect.facts import FlaggedFinding, Signal
from providers.collect.runner import Collector, Limits, PollOutcome, SourceSpec
from providers.offer import Offer
from providers.price import PricePoint

THROTTLED = 0.05
TYPES = {"p3.2xlarge": ("V100", 1, 16384), "p4d.24xlarge": ("A100", 8, 40960), "p5.48xlarge": ("H100", 8, 81920)}
TYPES |= {"g5.xlarge": ("A10G", 1, 22888), "g6.xlarge": ("L4", 1, 22888), "g4dn.xlarge": ("T4", 1, 16384)}
ZONES = 3
CHANGES = 90
"""Price changes per series: one a day for as long as AWS keeps a history."""
SIZES = ["Standard_ND96isr_H100_v5", "Standard_NC24ads_A100_v4", "Standard_NC6s_v3", "Standard_NC4as_T4_v3"]
MACHINES = [("a2-highgpu-1g", "nvidia-tesla-a100", 1), ("a2-highgpu-8g", "nvidia-tesla-a100", 8)]


@dataclass
class Counting:
    """A sink that counts instead of writing to a store."""

    offers_seen: set[str] = field(default_factory=set)
    changes: int = 0
    flagged_rows: int = 0
    polls: list[PollOutcome] = field(default_factory=list)

    def offers(self, source: str, region: str, offers: Sequence[Offer]) -> None:  # noqa: ARG002 the interface's names
        self.offers_seen |= {offer.id for offer in offers}

    def prices(self, source: str, region: str, points: Sequence[PricePoint]) -> None:  # noqa: ARG002
        self.changes += len(points)

    def flagged(self, source: str, region: str, flagged: Sequence[FlaggedFinding]) -> None:  # noqa: ARG002
        self.flagged_rows += len(flagged)

    def signals(self, source: str, region: str, signals: Sequence[Signal]) -> None:
        pass

    def ended(self, poll: PollOutcome) -> None:
        self.polls.append(poll)


def serve(counts: tuple[int, int, int], now_ms: int, pipe: Connection) -> None:
    """Serve the three clouds until the pipe closes."""
    from tests.clouds import aws, azure, gcp
    from tests.clouds.server import Fault, Response, serving

    def aws_region(number: int) -> aws.AwsRegion:
        zones = [f"r{number}-az{zone}" for zone in range(ZONES)]
        changes = [
            aws.Change(name, zone, now_ms - (day * 24 + 1) * 3_600_000, f"{2 + (day * 7 + zone) % 5}.{number:02}")
            for name in TYPES
            for zone in range(ZONES)
            for day in range(CHANGES - 1)
        ]
        offered = {(name, zone) for name in TYPES for zone in range(ZONES)}
        return aws.AwsRegion(zones, changes, offered, dict.fromkeys(TYPES, "20.5"))

    names = [f"xx-part-{number}" for number in range(counts[0] - 1)]
    regions = {name: aws_region(number) for number, name in enumerate(["us-east-1", *names])}
    types = {name: aws.AwsType(name, gpu, count, mib) for name, (gpu, count, mib) in TYPES.items()}
    amazon = aws.AwsCloud(regions, types, page_rows=1000)
    places = [f"part{number}" for number in range(counts[1])]
    zones = {
        f"{place}-{letter}": [gcp.GcpMachine(*machine) for machine in MACHINES] for place in places for letter in "abc"
    }
    google = gcp.GcpCloud({zone: gcp.GcpZone(machines) for zone, machines in zones.items()}, gcp.a2_skus(places), 500)
    from providers.azure.hardware import REGIONS

    mine = [*REGIONS, "extra1", "extra2"][: counts[2]]
    rows = [
        azure.row(place, size, 9.0 - 6 * spot, spot=spot) for place in mine for size in SIZES for spot in (False, True)
    ]
    microsoft = azure.AzureCloud(rows, page_rows=1000)
    with serving(amazon) as one, serving(google) as two, serving(microsoft) as three:
        microsoft.base = three.url
        for server, throttled in ((one, aws.THROTTLED), (two, gcp.THROTTLED), (three, azure.THROTTLED)):
            server.throttled, server.throttled_fraction = throttled, THROTTLED
        dead = names[-1]
        one.faults = [
            Fault(lambda request: f"/{dead}/ec2/" in request.headers.get("Authorization", ""), None, hang=True)
        ]
        gone = f"'{mine[-1]}'"
        three.faults = [Fault(lambda request: gone in request.query.get("$filter", ""), None, Response(500, b"no"))]
        pipe.send(((one.url, two.url, three.url), mine, (dead, mine[-1])))
        with contextlib.suppress(EOFError):
            pipe.recv()


def specs(urls: tuple[str, str, str], azure_regions: list[str]) -> list[SourceSpec]:
    os.environ.update(
        AWS_ENDPOINT_URL=urls[0],
        AWS_ACCESS_KEY_ID="AKIALOOPBACK",
        AWS_SECRET_ACCESS_KEY="loopback",
        AWS_EC2_METADATA_DISABLED="true",
    )
    return [
        SourceSpec("aws-on-demand", {"connect_s": 2.0, "read_s": 2.0}),
        SourceSpec("aws-spot", {"connect_s": 2.0, "read_s": 2.0}),
        SourceSpec("gcp-prices", {"project": "p", "compute": urls[1], "billing": urls[1]}),
        SourceSpec("azure-prices", {"url": f"{urls[2]}/api/retail/prices", "regions": azure_regions}),
    ]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    counts = (8, 8, 12) if asked.quick else (34, 40, 60)
    now_ms = SystemClock().now_ms()
    ours, theirs = multiprocessing.Pipe()
    clouds = multiprocessing.get_context("spawn").Process(target=serve, args=(counts, now_ms, theirs))
    clouds.start()
    theirs.close()
    urls, azure_regions, dead = ours.recv()
    sink, clock = Counting(), VirtualClock(now_ms)
    collector = Collector(specs(urls, azure_regions), sink, clock, random.Random(1), limits=Limits(workers=8))
    started, cpu_s = time.monotonic(), _cpu_s(resource.RUSAGE_SELF)
    collector.collect()
    wall_s, parent_cpu_s = time.monotonic() - started, _cpu_s(resource.RUSAGE_SELF) - cpu_s
    child_cpu_s, child_mb = _cpu_s(resource.RUSAGE_CHILDREN), _peak_mb(resource.RUSAGE_CHILDREN)
    first = list(sink.polls)
    clock.advance(60.0)  # calls that were throttled too often are due again
    collector.collect()
    ours.close()
    clouds.join()

    expected = (counts[0] - 1) * len(TYPES) * ZONES * 2 + counts[1] * 3 * len(MACHINES) * 2
    expected += (counts[2] - 1) * len(SIZES) * 2
    dead_polls = [poll for poll in first if poll.region in dead]
    late = sum(poll.error is not None for poll in first) - len(dead_polls)
    claims = [
        Claim("reachable offers missing", expected - len(sink.offers_seen), "offers", 0),
        Claim("polls of unreachable regions not marked", sum(poll.error is None for poll in dead_polls), "polls", 0),
        Claim("reachable regions that needed a second round", late, "polls"),
        Claim("first round, wall time", wall_s, "s"),
        Claim("first round, CPU of the parent", parent_cpu_s, "s"),
        Claim("first round, CPU of the children", child_cpu_s, "s"),
        Claim("peak memory of the parent", _peak_mb(resource.RUSAGE_SELF), "MB", 100),
        Claim("peak memory of the largest child", child_mb, "MB"),
    ]
    pages, rows = sum(poll.pages for poll in first), sum(poll.rows for poll in first)
    notes = [
        f"{len(first)} polls, {pages} pages, {rows} rows; {len(sink.offers_seen)} offers, {sink.changes} changes, "
        f"{sink.flagged_rows} rows flagged; {THROTTLED:.0%} of calls throttled",
        "marked: " + "; ".join(f"{poll.source} {poll.region}: {type(poll.error).__name__}" for poll in dead_polls),
    ]
    return show(f"Collecting {' + '.join(map(str, counts))} regions", claims, as_json=asked.json, notes=notes)


def _cpu_s(whose: int) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def _peak_mb(whose: int) -> float:
    return resource.getrusage(whose).ru_maxrss / 1000


if __name__ == "__main__":
    sys.exit(main())
