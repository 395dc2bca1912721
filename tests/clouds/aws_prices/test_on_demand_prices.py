"""What market.md section 4 says of AWS: on-demand prices of the API and of the public lists."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest

from providers.aws.prices.on_demand import OnDemandPrices
from providers.errors import (
    CutOffError,
    FormatError,
    PermissionDeniedError,
)
from tests.clouds.aws import price_file
from tests.clouds.aws_prices.conftest import NOW, P4D, listed, prices
from tests.clouds.conftest import flags
from tests.clouds.server import Fault, Request, Response


@pytest.mark.parametrize("account", [True, False], ids=["API", "file"])
def test_a_term_that_is_dated_ahead_is_not_the_price_yet(server, connections, account):
    """The loopback AWS announces half a dollar for every type, from 2036 on."""
    server.serve(listed(p4d_24xlarge="21.957"))
    source = OnDemandPrices(account=account, connections=connections, files=server.url, attempts=1)
    result = source.poll("us-east-1", NOW, None)
    assert {(point.effective_at_ms, point.nano_usd_per_hour) for point in result.points} == {
        (1_748_736_000_000, 21_957_000_000)
    }
    assert result.skipped["not_yet"] == 1


def test_on_demand_prices_come_from_the_api_as_strings_of_json_on_several_pages(server, on_demand):
    here = listed(p4d_24xlarge="21.9570000000", g5_xlarge="1.006", g6_xlarge="0.8048")
    here.regions["us-east-1"].offered |= {("g5.xlarge", 0), ("g6.xlarge", 1)}
    server.serve(here)
    assert prices(on_demand.poll("us-east-1", NOW, None)) == {
        f"aws/us-east-1/use1-az1/{P4D}/on_demand": 21.957,
        f"aws/us-east-1/use1-az2/{P4D}/on_demand": 21.957,
        "aws/us-east-1/use1-az1/g5.xlarge/on_demand": 1.006,
        "aws/us-east-1/use1-az2/g6.xlarge/on_demand": 0.8048,
    }
    assert len(server.asked("TERM_MATCH")) == 2


def test_the_pricing_api_is_asked_in_the_region_that_has_it(server, on_demand):
    server.serve(listed(p4d_24xlarge="21.9"))
    on_demand.poll("us-east-1", NOW, None)
    (request,) = server.asked("TERM_MATCH")
    assert "/us-east-1/pricing/" in request.headers["Authorization"]
    fields = {row["Field"]: row["Value"] for row in json.loads(request.body)["Filters"]}
    assert fields["tenancy"] == "Shared"
    assert fields["regionCode"] == "us-east-1"


def test_an_on_demand_price_without_any_zone_is_a_phantom(server, on_demand):
    server.serve(listed(p5_48xlarge="55.04"))
    result = on_demand.poll("us-east-1", NOW, None)
    assert (result.points, flags(result)) == ((), [("no_hardware", "aws/us-east-1/p5.48xlarge")])


def test_without_permission_the_public_lists_of_named_regions_are_read_instead(server, connections, on_demand):
    here = listed(p4d_24xlarge="21.957")
    here.denied = {"GetProducts"}
    server.serve(here)
    failed = on_demand.poll("us-east-1", NOW, None).error
    assert isinstance(failed, PermissionDeniedError)
    assert "public price lists" in failed.hint
    assert server.asked("index.csv") == [], "nobody asked for hundreds of megabytes"
    named = OnDemandPrices(connections=connections, files=server.url, regions=["us-east-1"], attempts=1)
    assert prices(named.poll("us-east-1", NOW, None)) == {f"aws/us-east-1//{P4D}/on_demand": 21.957}


def test_a_price_list_may_come_packed(server):
    text = gzip.compress(price_file({P4D: "21.957", "p5.48xlarge": "55.04"}).encode())
    server.serve(lambda request: Response(200, text, "text/csv", {"Content-Encoding": "gzip"}))
    source = OnDemandPrices(account=False, files=server.url, attempts=1)
    assert len(source.poll("us-east-1", NOW, None).points) == 2
    server.faults = [Fault(lambda request: True, None, cut=True)]
    assert isinstance(source.poll("us-east-1", NOW, None).error, CutOffError)


def test_the_public_list_needs_no_account_and_only_plain_rows_of_it_count(server):
    """Dedicated, Host, Windows, Reserved, with SQL, capacity blocks and price 0 are all in the file, and cheaper."""
    server.serve(listed(p4d_24xlarge="21.957", p5_48xlarge="55.04"))
    source = OnDemandPrices(account=False, files=server.url, attempts=1)
    result = source.poll("us-east-1", NOW, None)
    assert prices(result) == {
        f"aws/us-east-1//{P4D}/on_demand": 21.957,
        "aws/us-east-1//p5.48xlarge/on_demand": 55.04,
    }
    assert [(offer.gpu, offer.gpu_count, offer.memory_bytes >> 30) for offer in result.offers] == [
        ("A100-40GB", 8, 1152),
        ("H100", 8, 1152),
    ]
    assert result.skipped["other_product"] > 10
    assert result.skipped["billed_elsewhere"] > 0
    assert "us-east-1" in source.regions()
    assert [request.path for request in server.requests] == ["/offers/v1.0/aws/AmazonEC2/current/us-east-1/index.csv"]


def test_a_price_list_that_ends_in_the_middle_keeps_its_whole_lines(server):
    server.serve(listed(p4d_24xlarge="21.957", p5_48xlarge="55.04", g5_xlarge="1.006"))
    server.faults = [Fault(lambda request: True, None, cut=True)]
    result = OnDemandPrices(account=False, files=server.url, attempts=1).poll("us-east-1", NOW, None)
    assert isinstance(result.error, CutOffError)
    assert prices(result) == {f"aws/us-east-1//{P4D}/on_demand": 21.957}


def test_a_line_of_the_price_list_that_lacks_cells_is_flagged_and_costs_only_itself(server):
    whole = listed(p4d_24xlarge="21.957")

    def torn(request: Request) -> Response:
        answer = whole(request)
        return replace(answer, body=answer.body + b'"SKU1","OnDemand","Linux","GPU instance"\n')

    server.serve(torn)
    result = OnDemandPrices(account=False, files=server.url, attempts=1).poll("us-east-1", NOW, None)
    assert prices(result) == {f"aws/us-east-1//{P4D}/on_demand": 21.957}
    assert flags(result) == [("malformed", "aws/us-east-1")]


def test_changed_columns_of_the_price_list_are_named(server):
    text = b'"SKU","TermType","Price"\n"a","OnDemand","1"\n'
    server.serve(lambda request: Response(200, text, "text/csv"))
    failed = OnDemandPrices(account=False, files=server.url, attempts=1).poll("us-east-1", NOW, None).error
    assert isinstance(failed, FormatError)
    assert "Instance Type" in str(failed)


def test_a_price_in_yuan_is_flagged_and_not_converted(server, on_demand):
    here = listed(p4d_24xlarge="150")
    here.currency = "CNY"
    server.serve(here)
    result = on_demand.poll("us-east-1", NOW, None)
    assert (result.points, flags(result)) == ((), [("currency", f"aws/us-east-1/{P4D}")])


def test_an_invalid_json_entry_of_the_price_list_affects_no_other_entry(server, on_demand):
    here = listed(p4d_24xlarge="21.9")
    here.products = ["{broken", here._product(P4D, "21.9"), json.dumps({"product": {}})]
    server.serve(here)
    result = on_demand.poll("us-east-1", NOW, None)
    assert len(result.points) == 2
    assert [flag for flag, _ in flags(result)] == ["malformed"] * 2
