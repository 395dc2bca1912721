"""The vCPUs that an account of AWS may run, through the unmodified boto3, and plans that respect them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator.cli.app import app
from orchestrator.config import load_config
from orchestrator.engine.inputs.snapshot import market
from orchestrator.engine.machines.collect import collect
from orchestrator.installation import Installation, open_installation
from providers.base import Covered
from providers.clock import SystemClock
from providers.errors import PermissionDeniedError
from tests.clouds.ec2 import QUOTAS
from tests.clouds.ec2_account import HOUR_S, ON_DEMAND, SPOT, Account, spec
from tests.clouds.server import Response

G_SPOT, STANDARD = (
    "All G and VT Spot Instance Requests",
    "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
)


def test_limits_come_from_service_quotas_and_use_from_what_runs(account: Account) -> None:
    account.ec2.quota = dict.fromkeys(QUOTAS, 16)
    provider = account.connect(regions=("us-east-1",), instance_types=("g5.xlarge",))
    provider.launch(spec(count=2))
    provider.launch(spec(ON_DEMAND, token="token-2"))
    found = {each.name: each for each in provider.quotas()}
    assert {name: (each.limit, each.used) for name, each in found.items()} == {
        G_SPOT: (16, 8),
        "Running On-Demand G and VT instances": (16, 4),
    }
    assert found[G_SPOT].covers == Covered("vcpus", ("us-east-1",), ("g[0-9]*", "vt[0-9]*"), spot=True)
    assert "request-service-quota-increase --service-code ec2 --quota-code L-" in found[G_SPOT].remedy


@pytest.mark.parametrize(
    ("name", "patterns"),
    [
        (STANDARD, tuple(f"{letter}[0-9]*" for letter in "acdhimrtz")),
        ("All P4, P3 and P2 Spot Instance Requests", ("p4*", "p3*", "p2*")),
        ("All P5 Spot Instance Requests", ("p5*",)),
        ("Running On-Demand High Memory instances", ("u-*",)),
        ("Running On-Demand Trn instances", ("trn[0-9]*",)),
    ],
)
def test_the_families_of_a_quota_are_read_from_its_name(
    account: Account, name: str, patterns: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    account.ec2.quota = {name: 5}
    kinds = ("c5.large", "p3.2xlarge", "p5.48xlarge", "u-6tb1.metal", "trn1.2xlarge")
    (found,) = account.connect(regions=("us-east-1",), instance_types=kinds).quotas()
    assert found.covers is not None
    assert found.covers.instance_types == patterns


def test_limits_are_asked_for_once_an_hour(account: Account) -> None:
    account.ec2.quota = {G_SPOT: 8}
    provider = account.connect(regions=("us-east-1",))

    def asked() -> int:
        return sum("ListServiceQuotas" in each.headers.get("X-Amz-Target", "") for each in account.server.requests)

    for _ in range(3):
        provider.quotas()
    assert asked() == 1
    account.clock.advance(HOUR_S + 1)
    provider.quotas()
    assert asked() == 2


# --- plans ---


@pytest.fixture
def installation(account: Account, tmp_path: Path) -> Iterator[Installation]:
    settings = {"state_dir": str(tmp_path / "state"), "providers.enabled": "fake"}
    opened = open_installation(load_config(settings, environ={}, cwd=tmp_path))
    config = replace(opened.config, providers=replace(opened.config.providers, enabled=("aws",)))
    yield replace(opened, config=config, clock=account.clock, providers={"aws": account.connect()})
    opened.close()


def rooms(installation: Installation) -> dict[str, tuple[int, int]]:
    collect(installation)
    with installation.store.read() as tx:
        seen = market(tx, installation.clock.now_ms(), installation.config)
    return {seen.ids[row]: (room.left, room.most) for row, (room, *_) in seen.rooms.items()}


def test_the_market_has_what_the_quotas_leave_as_polled_last(account: Account, installation: Installation) -> None:
    account.ec2.quota = {G_SPOT: 8}
    assert rooms(installation)[SPOT] == (2, 2)
    account.connect().launch(spec())
    account.clock.advance(60)
    assert rooms(installation)[SPOT] == (1, 2)
    assert ON_DEMAND not in rooms(installation)
    account.clock.advance(HOUR_S + 1)
    account.ec2.quota = {}
    assert rooms(installation) == {}


def test_prices_do_not_need_the_permission_for_quotas(account: Account, installation: Installation) -> None:
    denied = {
        "__type": "AccessDeniedException",
        "message": "not authorized to perform: servicequotas:ListServiceQuotas",
    }
    answer = Response(400, json.dumps(denied).encode(), "application/x-amz-json-1.1")
    account.fails_where(lambda request: "ListServiceQuotas" in request.headers.get("X-Amz-Target", ""), answer=answer)
    with pytest.raises(PermissionDeniedError) as raised:
        account.connect().quotas()
    assert raised.value.action == "servicequotas:ListServiceQuotas"
    assert rooms(installation) == {}
    with installation.store.read() as tx:
        assert tx.polls("aws", 1)[0].error is None


def test_plan_says_that_it_is_the_quota_and_how_to_raise_it(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the command line, with quotas of zero for what is cheapest, then for everything."""
    account.clock.advance((SystemClock().now_ms() - account.clock.now_ms()) / 1000)
    for name, value in {
        "STATE_DIR": str(tmp_path / "state"),
        "PROVIDERS_ENABLED": "aws",
        "PROVIDERS_AWS_REGIONS": "us-east-1",
        "PROVIDERS_AWS_INSTANCE_TYPES": "g5.xlarge",
        "PROVIDERS_AWS_IMAGE": "ami-0123456789abcdef0",
        "STORE_ROOT": "s3://bucket/tw",
    }.items():
        monkeypatch.setenv(f"TRADEWIND_{name}", value)
    (tmp_path / "program.py").write_text("def main(): pass\n")
    job = {
        "name": "far",
        "train": {"entry": "program:main", "workdir": str(tmp_path), "steps": 5},
        "resources": {"gpu": "A10G"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))

    def planned(state: str, code: int = 0, jobs: int = 1) -> tuple[dict[str, Any], str]:
        monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path / state))
        command = ["plan", *[str(tmp_path / "job.yaml")] * jobs]
        shown = CliRunner().invoke(app, [*command, *(["--why"] if jobs == 1 else [])])
        result = CliRunner().invoke(app, [*command, "--output", "json"])
        assert result.exit_code == code, result.output
        return json.loads(result.stdout), shown.output

    account.ec2.quota = {G_SPOT: 0}
    plan, shown = planned("one")
    (decision,) = plan["decisions"]
    assert decision["offer_id"].endswith("/on_demand")
    assert "your quota, not the market" in shown
    account.ec2.quota = dict.fromkeys(QUOTAS, 4)
    plan, shown = planned("together", jobs=3)
    assert sorted(each["offer_id"] or "" for each in plan["decisions"])[0] == ""
    assert len({each["offer_id"] for each in plan["decisions"]}) == 3, "one on spot, one on demand, one waits"
    assert {each["name"]: (each["starts"], each["more"]) for each in plan["quotas"]} == {
        name: (["far"], 4) for name in (G_SPOT, "Running On-Demand G and VT instances")
    }
    assert "4 vCPUs, 0 in use and 4 planned or on their way): 4 more would let far start now" in flat(shown)
    account.ec2.quota = dict.fromkeys(QUOTAS, 0)
    plan, shown = planned("two", code=6)
    assert "your quota" in shown
    assert "request-service-quota-increase" in json.dumps(plan) + shown


def flat(text: str) -> str:
    """Without the breaks between lines."""
    return " ".join(text.split())
