"""The whole way: a parent, a child process per provider, real client libraries, loopback clouds, a sink."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator.cli.app import app
from orchestrator.engine.machines.collect import collector as collecting_into
from orchestrator.prices.sink import StoreSink
from orchestrator.store import Store
from providers.clock import Clock, SystemClock, VirtualClock
from providers.collect.child import Task, request, run
from providers.collect.facts import UNLISTED
from providers.collect.permissions import cloud_access
from providers.collect.runner import Collector, Limits, PollOutcome, SourceSpec
from providers.collect.sources import KINDS, SourceKind, make_source
from providers.collect.wire import Ended, decode
from providers.errors import NotFoundError, ProviderError, SetupError, TimedOutError, UnavailableError
from tests.clouds.aws import AwsCloud, AwsRegion, AwsType, Change
from tests.clouds.aws import error as refusal
from tests.clouds.azure import AzureCloud, error, row
from tests.clouds.gcp import GcpCloud, GcpMachine, GcpZone, a2_skus, sku
from tests.clouds.server import Fault, LoopbackServer, Response

ROOT = Path(__file__).parents[2]
GUARD = Path(__file__).parent / "guard"
HOUR_S = 3600.0
H100 = "Standard_ND96isr_H100_v5"
FEED = "provider,region,instance_type,gpu,gpu_count,capacity_type,price_per_hour\n"


@dataclass
class Kept:
    """A sink in memory."""

    offers_seen: set[str] = field(default_factory=set)
    prices_of: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    flags: list[tuple[str, str]] = field(default_factory=list)
    polls: list[PollOutcome] = field(default_factory=list)

    def offers(self, source: str, region: str, offers: Any) -> None:
        self.offers_seen |= {offer.id for offer in offers}

    def prices(self, source: str, region: str, points: Any) -> None:
        for point in points:
            assert point.offer_id in self.offers_seen
            self.prices_of[point.offer_id].append(point.nano_usd_per_hour / 1e9)

    def flagged(self, source: str, region: str, flagged: Any) -> None:
        self.flags += [(row.flag.value, row.subject) for row in flagged]

    def signals(self, source: str, region: str, signals: Any) -> None:
        return

    def ended(self, poll: PollOutcome) -> None:
        self.polls.append(poll)


@pytest.fixture(autouse=True)
def _children_stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(GUARD), str(ROOT)]))


def collector(sink: Kept, *specs: SourceSpec, clock: Clock | None = None, **options: Any) -> Collector:
    return Collector(specs, sink, clock or VirtualClock(), random.Random(3), **options)


def azure(server: LoopbackServer, *regions: str, **options: Any) -> SourceSpec:
    body = {"url": f"{server.url}/api/retail/prices", "regions": regions, "attempts": 1, "read_s": 0.4, **options}
    return SourceSpec("azure-prices", body)


def errors(polls: list[PollOutcome]) -> dict[str, type | None]:
    return {poll.region: None if poll.error is None else type(poll.error) for poll in polls}


def test_a_round_hands_over_offers_prices_and_flags_and_records_each_poll(server, tmp_path):
    server.serve(
        AzureCloud(
            [
                *(row("eastus", H100, 98.0), row("eastus", H100, 98.0, spot=True), row("westus", H100, 90.0)),
                row("westus", H100, 9.0, product="Virtual Machines ND Series Windows"),
            ]
        )
    )
    (tmp_path / "f.csv").write_text(f"{FEED}mine,cellar,box,H100,8,spot,7.5\nmine,cellar,box,H100,8,spot,cheap\n")
    sink = Kept()
    polls = collector(
        sink, azure(server, "eastus", "westus"), SourceSpec("feed:mine", {"at": str(tmp_path / "f.csv")})
    ).collect()
    assert sink.prices_of == {
        f"azure/eastus//{H100}/on_demand": [98.0],
        f"azure/eastus//{H100}/spot": [98.0],
        f"azure/westus//{H100}/on_demand": [90.0],
        "mine/cellar//box/spot": [7.5],
    }
    assert sorted(sink.flags) == [
        ("malformed", f"{tmp_path / 'f.csv'}:3"),
        ("spot_not_below_on_demand", f"azure/eastus//{H100}/spot"),
    ]
    assert polls == sink.polls
    found = {(poll.source, poll.region): (poll.offers, poll.changed, poll.flagged, poll.error) for poll in polls}
    assert found == {
        ("azure-prices", "eastus"): (2, 2, 1, None),
        ("azure-prices", "westus"): (1, 1, 0, None),
        ("feed:mine", "all"): (1, 1, 1, None),
    }
    assert {poll.region: dict(poll.skipped) for poll in polls if poll.skipped} == {"westus": {"other_product": 1}}


def test_no_change_and_no_data_are_different_facts(server):
    server.serve(AzureCloud([row("eastus", H100, 98.0)]))
    clock, sink = VirtualClock(), Kept()
    collecting = collector(sink, azure(server, "eastus"), clock=clock)
    (first,) = collecting.collect()
    assert collecting.collect() == [], "not due yet"
    clock.advance(2 * HOUR_S)
    (second,) = collecting.collect()
    clock.advance(2 * HOUR_S)
    server.faults = [Fault(lambda request: True, None, error("x", "x", 503))]
    (third,) = collecting.collect()
    assert [(poll.offers, poll.changed) for poll in (first, second, third)] == [(1, 1), (1, 0), (0, 0)]
    assert (second.error, type(third.error)) == (None, UnavailableError)


def test_a_spot_price_that_on_demand_undercuts_for_a_while_is_flagged_and_stays_payable(server):
    clock, sink = VirtualClock(), Kept()
    collecting = collector(sink, azure(server, "eastus"), clock=clock)
    reported = []
    for on_demand in (98.0, 40.0, 98.0):
        at = f"2025-0{len(reported) + 1}-01T00:00:00Z"
        server.serve(AzureCloud([row("eastus", H100, on_demand, effective=at), row("eastus", H100, 50.0, spot=True)]))
        sink.prices_of.clear()
        collecting.collect()
        reported.append(sink.prices_of.get(f"azure/eastus//{H100}/spot"))
        clock.advance(2 * HOUR_S)
    assert reported == [[50.0], None, None], "what it costs has not changed"
    assert sink.flags == [("spot_not_below_on_demand", f"azure/eastus//{H100}/spot")]


class FullDisk(Kept):
    """Fails at the end of the first poll, as a store does when the disk is full."""

    full = True

    def ended(self, poll: PollOutcome) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().ended(poll)


def test_what_a_full_disk_could_not_keep_is_reported_again(server):
    server.serve(AzureCloud([row("eastus", H100, 98.0), row("westus", H100, 90.0)]))
    sink = FullDisk()
    collecting = collector(sink, azure(server, "eastus", "westus"))
    with pytest.raises(OSError, match="No space left"):
        collecting.collect()
    sink.full = False
    sink.prices_of.clear()
    polls = collecting.collect()
    assert [(poll.changed, poll.error) for poll in polls] == [(1, None), (1, None)]
    assert len(sink.prices_of) == 2


def test_a_region_that_fails_or_hangs_leaves_the_others_alone(server):
    regions = ["eastus", "westus", "uksouth", "japaneast"]
    server.serve(AzureCloud([row(region, H100, 90.0) for region in regions]))
    server.faults = [
        Fault(lambda request: "'westus'" in request.query["$filter"], None, hang=True),
        Fault(lambda request: "'uksouth'" in request.query["$filter"], None, cut=True),
    ]
    sink = Kept()
    polls = collector(sink, azure(server, *regions)).collect()
    assert {region for region, kind in errors(polls).items() if kind} == {"westus", "uksouth"}
    assert set(sink.prices_of) == {f"azure/eastus//{H100}/on_demand", f"azure/japaneast//{H100}/on_demand"}


def test_a_child_that_says_nothing_is_cut_and_what_it_had_found_is_kept(server):
    """The source would wait for ten minutes; the parent doesn't. Another provider's child is not disturbed."""
    server.serve(AzureCloud([row("eastus", H100, 90.0)]))
    server.faults = [Fault(lambda request: "westus" in request.query.get("$filter", ""), None, hang=True)]
    server.faults += [
        Fault(lambda request: request.path == "/f.csv", None, Response(body=f"{FEED}a,b,c,,0,spot,1\n".encode()))
    ]
    sink = Kept()
    slow = azure(server, "eastus", "westus", read_s=600.0)
    feed = SourceSpec("feed", {"at": f"{server.url}/f.csv"})
    limits = Limits(silence_s=1.5)
    polls = collector(sink, slow, feed, clock=SystemClock(), limits=limits).collect()
    assert errors(polls) == {"eastus": None, "westus": TimedOutError, "all": None}
    assert set(sink.prices_of) == {f"azure/eastus//{H100}/on_demand", "a/b//c/spot"}


def test_a_source_whose_library_is_missing_says_which_pip_command_brings_it(tmp_path, monkeypatch):
    (tmp_path / "boto3.py").write_text("raise ModuleNotFoundError(\"No module named 'boto3'\", name='boto3')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(GUARD), str(ROOT)]))
    clock, sink = VirtualClock(), Kept()
    collecting = collector(sink, SourceSpec("aws-spot"), clock=clock)
    (poll,) = collecting.collect()
    assert (poll.region, type(poll.error)) == (UNLISTED, SetupError)
    assert poll.error is not None
    assert poll.error.hint == "pip install 'tradewind[aws]'"
    assert collecting.collect() == [], "and is not asked again at once"


def test_a_child_that_dies_marks_what_it_left_unfinished(tmp_path, monkeypatch):
    (tmp_path / "urllib3.py").write_text("import os\nos._exit(7)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(GUARD), str(ROOT)]))
    (poll,) = collector(Kept(), SourceSpec("feed", {"at": "http://127.0.0.1:9/x.csv"})).collect()
    assert isinstance(poll.error, UnavailableError)
    assert "exit code 7" in str(poll.error)


def test_aws_continues_from_the_last_change_only_after_a_complete_poll(server, monkeypatch):
    for name, value in {
        "AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    now_ms = SystemClock().now_ms()
    p4d, hour_ms = "p4d.24xlarge", 3_600_000
    changes = [Change(p4d, 0, now_ms - hours * hour_ms, f"{hours}") for hours in (9, 8, 7, 6, 5)]
    region = AwsRegion(["use1-az1"], changes, {(p4d, 0)})
    server.serve(AwsCloud({"us-east-1": region}, {p4d: AwsType(p4d)}))
    server.faults = [Fault(lambda request: b"NextToken=3" in request.body, 1, refusal("Unheard", "x", 400))]
    clock, sink = VirtualClock(now_ms), Kept()
    collecting = collector(sink, SourceSpec("aws-spot", {"attempts": 1}), clock=clock)

    def starts() -> list[str]:
        asked = server.asked("Action=DescribeSpotPriceHistory")
        return [request.form["StartTime"] for request in asked if "NextToken" not in request.form]

    (half,) = collecting.collect()
    clock.advance(HOUR_S)
    (whole,) = collecting.collect()
    clock.advance(HOUR_S)
    (quiet,) = collecting.collect()
    first, second, third = starts()
    assert (half.newest_ms, type(half.error)) == (None, ProviderError)
    assert first[:10] == second[:10], "the history is asked for again"
    assert third[:10] > second[:10]
    assert (whole.error, whole.newest_ms, quiet.changed) == (None, changes[-1].at_ms // 1000 * 1000, 0)
    assert half.changed == 3
    reported = sink.prices_of["aws/us-east-1/use1-az1/p4d.24xlarge/spot"]
    assert set(reported) == {5, 6, 7, 8, 9}, "what half a history left out is older than what was known by then"


def test_history_that_is_reported_after_the_present_is_kept_and_touches_nothing_of_it(server, tmp_path):
    """The on-demand price of long ago was below today's spot price, which makes today's spot price no worse."""

    def days_ago(days: int) -> str:
        return datetime.fromtimestamp(now / 1000 - days * 86_400, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    now = SystemClock().now_ms()
    skus = a2_skus(["us-central1"])
    for each in skus:
        each["pricingInfo"][0]["effectiveTime"] = days_ago(300)
    [gpu] = [each for each in skus if each["description"].startswith("Nvidia Tesla A100 GPU running")]
    gpu["pricingInfo"] = [sku("x", usd, [], since=days_ago(at))["pricingInfo"][0] for at, usd in ((40, 0.05), (5, 2.9))]
    machine = GcpMachine("a2-highgpu-1g", "nvidia-tesla-a100", 1)
    server.serve(GcpCloud({"us-central1-a": GcpZone([machine])}, skus))
    store = Store.open(f"sqlite:///{tmp_path}/tradewind.db", VirtualClock(now))
    where = {"project": "p", "compute": server.url, "billing": server.url}
    for name, changed in (("gcp-prices", 2), ("gcp-list-history", 3)):
        (poll,) = collecting_into(store, SystemClock(), [SourceSpec(name, where)], random.Random(3)).collect()
        assert (poll.source, poll.changed, poll.error) == (name, changed, None)
    later = SystemClock().now_ms() + 1
    offer, rest = "gcp/us-central1/us-central1-a/a2-highgpu-1g/on_demand", 0.7
    with store.read() as tx:
        assert sorted(point.offer_id.split("/")[4] for point in tx.eligible_as_of(later)) == ["on_demand", "spot"]
        reported = tx.price_points(offer, 0, later)
        assert [point.nano_usd_per_hour / 1e9 for point in reported] == pytest.approx(
            [rest + 0.05, rest + 2.9, rest + 2.9]
        )
        assert tx.flags() == []
    store.close()


@pytest.fixture
def stored(tmp_path):
    store = Store.open(f"sqlite:///{tmp_path}/tradewind.db", SystemClock())
    yield store
    store.close()


def in_force(store: Store) -> list[float]:
    with store.read() as tx:
        return [point.nano_usd_per_hour / 1e9 for point in tx.eligible_as_of(SystemClock().now_ms() + 1)]


@pytest.fixture
def mine(tmp_path):
    """A feed of one price: called with the price, it says so; and its source."""
    path = tmp_path / "mine.csv"

    def says(usd: float) -> None:
        path.write_text(f"{FEED}mine,cellar,box,H100,8,spot,{usd}\n")

    return says, SourceSpec("feed:mine", {"at": str(path)}, 1.0)


def test_what_another_collector_stored_meanwhile_is_known(stored, mine):
    """`prices collect --once` beside a control plane, or a control plane that took over."""
    says, source = mine
    clock = VirtualClock(SystemClock().now_ms())
    daemon = collecting_into(stored, clock, [source], random.Random(3))
    for usd, by in ((5, daemon), (9, collecting_into(stored, clock, [source], random.Random(4))), (5, daemon)):
        says(usd)
        (poll,) = by.collect()
        assert (poll.changed, poll.error) == (1, None)
        assert in_force(stored) == [usd]
        clock.advance(60)


def test_an_outlier_is_confirmed_by_a_second_report_to_whatever_collector(stored, mine):
    says, source = mine
    found = []
    for usd in (8, 120, 120):
        says(usd)
        (poll,) = collecting_into(stored, SystemClock(), [source], random.Random(4)).collect()
        found.append((poll.changed, poll.flagged))
    assert found == [(1, 0), (0, 1), (1, 0)]
    assert in_force(stored) == [120]


def test_a_provider_that_hangs_does_not_hold_up_the_others(server, stored, mine):
    server.serve(AzureCloud())
    server.faults = [Fault(lambda request: True, None, hang=True)]
    says, source = mine
    says(5)
    slow, limits = azure(server, "eastus", read_s=600.0), Limits(silence_s=4.0)
    polls = Collector(
        [slow, replace(source, cadence_s=0.2)], StoreSink(stored), SystemClock(), random.Random(3), limits=limits
    ).collect()
    assert [poll.source for poll in polls].count("feed:mine") > 1
    assert [poll.source for poll in polls].count("azure-prices") == 1


def test_a_half_poll_after_a_whole_one_loses_nothing(server, stored, monkeypatch):
    for name, value in {"AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    now_ms, p4d = SystemClock().now_ms(), "p4d.24xlarge"
    region = AwsRegion(["use1-az1"], [Change(p4d, 0, now_ms - 20 * 3_600_000, "20")], {(p4d, 0)})
    server.serve(AwsCloud({"us-east-1": region}, {p4d: AwsType(p4d)}))
    clock, source = VirtualClock(now_ms), SourceSpec("aws-spot", {"attempts": 1})
    assert collecting_into(stored, clock, [source], random.Random(3)).collect()[0].error is None
    region.changes += [Change(p4d, 0, now_ms - hours * 3_600_000, f"{hours}") for hours in (9, 8, 7, 6, 5)]
    server.faults = [Fault(lambda request: b"NextToken=3" in request.body, 1, refusal("Unheard", "x", 400))]
    for _ in range(2):  # each by a new control plane, for which the one before is a stranger
        clock.advance(HOUR_S)
        collecting_into(stored, clock, [source], random.Random(3)).collect()
    with stored.read() as tx:
        reported = tx.price_points("aws/us-east-1/use1-az1/p4d.24xlarge/spot", 0, now_ms)
    assert [point.nano_usd_per_hour / 1e9 for point in reported] == [20, 9, 8, 7, 6, 5]


class Broken:
    """A source with a fault of its own in one region."""

    provider = "broken"

    def __init__(self, *, name: str) -> None:
        self.name = name

    def regions(self) -> list[str]:
        return ["good", "bad"]

    def poll(self, region: str, now_ms: int, since_ms: int | None) -> Any:
        from providers.collect.facts import PollResult

        if region == "bad":
            raise ZeroDivisionError("a fault")
        return PollResult(region)


def test_a_fault_of_our_own_is_confined_to_its_region_and_asks_to_be_reported(monkeypatch):
    monkeypatch.setitem(KINDS, "broken", SourceKind("tests.clouds.test_collecting:Broken", 60, {}))
    out = io.StringIO()
    run([Task("broken", {})], 2, out, VirtualClock())
    ended = [message for message in map(decode, out.getvalue().splitlines()) if isinstance(message, Ended)]
    found = {message.region: message.error for message in ended}
    assert found["good"] is None
    assert "ZeroDivisionError at test_collecting.py" in str(found["bad"])
    assert found["bad"] is not None
    assert "report it" in found["bad"].hint


def test_a_child_ends_with_its_parent(server):
    server.serve(AzureCloud())
    server.faults = [Fault(lambda request: True, None, hang=True)]
    task = Task("azure-prices", {"url": server.url, "regions": ["eastus"], "read_s": 600.0})
    child = subprocess.Popen(
        [sys.executable, "-m", "providers.collect.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(request([task], 2))
    child.stdin.flush()
    assert "regions" in child.stdout.readline()
    child.stdin.close()
    assert child.wait(timeout=60) == 0
    child.stdout.close()


def test_a_child_cannot_leave_this_machine_in_tests():
    (poll,) = collector(Kept(), SourceSpec("feed", {"at": "http://192.0.2.1/x.csv", "attempts": 1})).collect()
    assert "own addresses" in str(poll.error)


def test_the_parent_loads_no_library_of_any_cloud():
    code = "import sys, providers.collect.runner; print([m for m in sys.modules if m.split('.')[0] in %r])"
    names = ("boto3", "botocore", "google", "azure", "urllib3", "requests", "pyarrow", "numpy")
    shown = subprocess.run(
        [sys.executable, "-c", code % (names,)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert shown.stdout.strip() == "[]"


def test_what_an_account_may_read_is_asked_by_the_name_of_the_cloud(server, monkeypatch):
    server.serve(lambda request: Response(403, b"{}"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    (found,) = cloud_access("aws")
    assert (found.what, found.works) == ("identity", False)
    with pytest.raises(NotFoundError, match="oracle"):
        cloud_access("oracle")


def test_doctor_says_who_one_is_and_which_policy_line_is_missing(server, monkeypatch, tmp_path):
    server.serve(
        AwsCloud({"us-east-1": AwsRegion(["use1-az1"])}, {}, denied={"DescribeSpotPriceHistory", "GetProducts"})
    )
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(app, ["doctor", "--cloud", "aws"])
    assert said.exit_code == 8
    lines = said.stdout.splitlines()
    assert [line.split()[0] for line in lines if ": " in line and "fix:" not in line] == [
        *("ok", "ok", "ok", "ok", "fail", "warn"),
    ]
    assert "ec2:DescribeSpotPriceHistory" in next(line for line in lines if "fix:" in line)
    assert not (tmp_path / "state").exists()  # it asks the cloud alone
    assert CliRunner().invoke(app, ["doctor", "--cloud", "oracle"]).exit_code == 2


def test_an_unknown_source_gets_the_nearest_name():
    with pytest.raises(NotFoundError) as caught:
        make_source("aws-spots", {})
    assert "did you mean 'aws-spot'?" in caught.value.hint


@pytest.mark.parametrize("name", sorted(KINDS))
def test_an_unknown_option_of_any_source_is_refused(name, environment):
    with pytest.raises(SetupError, match="colour"):
        make_source(name, {"colour": "blue"})
