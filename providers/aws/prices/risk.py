"""How often AWS interrupts spot machines: the Spot Advisor's public file, and placement scores if allowed.

Both are optional; prices do not need them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from providers.aws.hardware import families
from providers.aws.regions import pages_of
from providers.aws.session import Connections, to_provider_error
from providers.collect.facts import Finding, Flag, PollResult, Signal, gather
from providers.collect.http import Http, Patience
from providers.errors import FormatError

ADVISOR = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
ADVISOR_SOURCE = "AWS Spot Advisor"
SCORES_SOURCE = "AWS GetSpotPlacementScores"
GLOBAL = "global"
BUCKETS = ((0, 5), (5, 10), (10, 15), (15, 20), (20, 100))
"""Meaning of `r` in the file: percent of machines interrupted in a month."""
FEWEST_TYPES = 3
"""With fewer instance types than this, AWS's score is always low and has no meaning."""


class Interruptions:
    """Source `aws-risk`: one poll for all regions.

    `scores` are groups of at least 3 instance types to request placement scores for, in `score_regions` (empty: all
    regions of the account). Raises ValueError for a smaller group.
    """

    provider = "aws"

    def __init__(
        self,
        *,
        name: str = "aws-risk",
        url: str = ADVISOR,
        scores: Sequence[Sequence[str]] = (),
        score_regions: Sequence[str] = (),
        connect_s: float = 5.0,
        read_s: float = 30.0,
        attempts: int = 3,
        connections: Connections | None = None,
    ) -> None:
        for group in scores:
            if len(set(group)) < FEWEST_TYPES:
                raise ValueError(f"scores for {list(group)}: a group needs at least {FEWEST_TYPES} instance types")
        self.name = name
        self._url = url
        self._scores = [list(group) for group in scores]
        self._score_regions = list(score_regions)
        self._http = Http(Patience(connect_s, read_s, attempts))
        self._connections = connections or Connections(connect_s, read_s, attempts)

    def regions(self) -> Sequence[str]:
        """One region, `global`: the file covers all regions."""
        return [GLOBAL]

    def poll(self, region: str, now_ms: int, since_ms: int | None) -> PollResult:
        """Interruption rates of all regions, and placement scores if configured."""
        return gather(region, lambda finding: self._read(finding, now_ms), to_provider_error)

    def _read(self, finding: Finding, now_ms: int) -> None:
        body = self._http.get_json(self._url)
        if not isinstance(body, dict) or "spot_advisor" not in body:
            raise FormatError("the Spot Advisor's file has no field 'spot_advisor'")
        finding.page(len(body["spot_advisor"]))
        for region, systems in body["spot_advisor"].items():
            for name, cell in systems.get("Linux", {}).items():
                if name.partition(".")[0] in families():
                    _interruption(finding, region, name, cell, now_ms)
        for group in self._scores:
            self._ask_scores(finding, group, now_ms)

    def _ask_scores(self, finding: Finding, group: list[str], now_ms: int) -> None:
        """Scores from 1 to 10 by zone ID. AWS returns only the best ten, so a missing zone means nothing."""
        ec2 = self._connections.client("ec2", self._connections.home_region)
        where = {"RegionNames": self._score_regions} if self._score_regions else {}
        asked = {"InstanceTypes": group, "TargetCapacity": 1, "SingleAvailabilityZone": True, **where}
        for page in pages_of(ec2, "get_spot_placement_scores", **asked):
            finding.page(len(page["SpotPlacementScores"]))
            for row in page["SpotPlacementScores"]:
                score, zone = float(row["Score"]), row.get("AvailabilityZoneId", "")
                for name in group:
                    signal = Signal(
                        "placement_score", "aws", row["Region"], zone, name, score, score, now_ms, now_ms, SCORES_SOURCE
                    )
                    finding.signal(signal)


def _interruption(finding: Finding, region: str, name: str, cell: Any, now_ms: int) -> None:
    try:
        low, high = BUCKETS[cell["r"]]
    except (KeyError, IndexError, TypeError):
        finding.flag(Flag.MALFORMED, f"aws/{region}/{name}", f"not a rate from 0 to 4: {json.dumps(cell)[:100]}")
        return
    finding.signal(Signal("interruption_percent", "aws", region, "", name, low, high, now_ms, now_ms, ADVISOR_SOURCE))
