"""A machine on AWS keeps its own time to live, whatever its metadata service says or does not say."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from providers.aws.on_machine import TAG, Imds, age_s
from providers.machine.lifetime import wait_for_the_end
from tests.clouds.imds import Imds as Service
from tests.clouds.server import Fault, Response, serving

PENDING = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOUR_S = 3600.0


class Machine:
    """A machine that looks at its clock and at its tag: `said` maps an instant to what the tag is from then on."""

    def __init__(self, said: dict[float, str] | None = None, *, booted_after_s: float = 0.0) -> None:
        self.said, self.booted_after_s = said, booted_after_s
        self.now_s = self.started_s = 5000.0

    def get(self, path: str) -> tuple[str | None, datetime]:
        age_s = self.booted_after_s + self.now_s - self.started_s
        if self.said is None:
            raise OSError("no route to host")
        if path == TAG:
            return next((text for at, text in sorted(self.said.items(), reverse=True) if age_s >= at), None), PENDING
        document = json.dumps({"pendingTime": PENDING.strftime("%Y-%m-%dT%H:%M:%SZ")})
        return document, PENDING + timedelta(seconds=age_s)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def ends_after_s(self, to_live_s: float = HOUR_S) -> float:
        """From its launch."""
        wait_for_the_end(to_live_s, lambda: age_s(self), lambda: self.get(TAG)[0], lambda: self.now_s, self.sleep)
        return self.booted_after_s + self.now_s - self.started_s


def test_it_ends_when_its_time_is_over() -> None:
    assert Machine({0: "3600"}).ends_after_s() == HOUR_S


def test_the_time_counts_from_the_launch_and_not_from_the_boot() -> None:
    assert Machine({0: "3600"}, booted_after_s=95).ends_after_s() == HOUR_S


def test_a_renewal_counts_from_when_it_was_made_and_rather_ends_too_early() -> None:
    ends_s = Machine({0: "3600", 1800: "86400 from 1"}).ends_after_s()
    assert 1800 + 86400 - 30 <= ends_s <= 1800 + 86400


def test_a_renewal_during_a_long_boot_does_not_count_from_the_launch() -> None:
    """A budget covers minutes. What was granted at the launch was covered, too."""
    said: dict[float, str] = {float(at): f"60 from {at}" for at in range(5, 600, 5)}
    assert Machine(said, booted_after_s=80).ends_after_s(120) > 600


def test_a_time_to_live_of_half_a_minute_is_renewed_in_time() -> None:
    said: dict[float, str] = {float(at): f"30 from {at}" for at in range(5, 600, 5)}
    assert 595 <= Machine(said).ends_after_s() <= 595 + 30


def test_the_same_time_to_live_again_is_a_renewal() -> None:
    said: dict[float, str] = {at: f"3600 from {at}" for at in range(900, 9000, 900)}
    assert 8100 + 3600 - 30 <= Machine({0: "3600", **said}).ends_after_s() <= 8100 + 3600


@pytest.mark.parametrize("said", ["", "soon", "-5 from 1", "1e99 from 2"])
def test_nonsense_renews_nothing(said: str) -> None:
    assert Machine({0: "3600", 60: said}).ends_after_s() == HOUR_S


def test_without_a_metadata_service_it_ends_all_the_same() -> None:
    assert Machine(None).ends_after_s() == HOUR_S


def test_the_service_is_asked_with_a_token_that_is_renewed() -> None:
    row = {"InstanceId": "i-1", "Tags": [], "MetadataOptions": {}}
    service = Service(row, lambda: PENDING)
    with serving(service) as server:
        imds = Imds(server.url)
        assert imds.get("/latest/meta-data/instance-id") == ("i-1", PENDING)
        assert imds.get("/latest/meta-data/spot/instance-action") == (None, PENDING)
        service._tokens.clear()
        assert imds.get("/latest/meta-data/instance-id")[0] == "i-1"
        assert len(server.asked("/latest/api/token")) == 2
        server.faults.append(Fault(lambda request: request.method == "GET", None, Response(401)))
        with pytest.raises(OSError, match="refuses its own token"):
            imds.get("/latest/meta-data/instance-id")
