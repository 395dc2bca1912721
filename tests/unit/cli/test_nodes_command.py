"""`tradewind nodes` as text: reports that are fresh, silent, missing, garbled; strays; providers that do not answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from typer.testing import Result

from orchestrator.cli.render import render
from orchestrator.cli.render.text import Screen, width_of
from orchestrator.errors import NotFoundError
from orchestrator.services.nodes.views import Heard, NoAnswer, Node, NodeList, UnmanagedNode

Run = Callable[..., Result]
NOW_MS = 1_700_000_000_000
OFFER = "azure/germanywestcentral/germanywestcentral-1/Standard_NC96ads_A100_v4/on_demand"
SPOT = "local/north/north-a/sim.small/spot"
NODE = Node(
    job="gpt",
    job_id="job_1",
    run_id="run_1",
    instance_id="local-0c2f5a11be90",
    offer_id=SPOT,
    state="training",
    since_ms=NOW_MS - 720_000,
    nano_usd_per_hour=420_000_000,
    cost_nano_usd=84_000_000,
    simulated=False,
    listed=True,
    notice_at_ms=None,
    heard=Heard(0.4, True, "b0", 7, "training", 120, 0.5),
)


def listed(*nodes: Node, **fields: object) -> NodeList:
    view = NodeList(NOW_MS, None, nodes, (), (), silent_after_wall_s=5.0, clock_factor=1.0, simulated=False)
    return replace(view, **fields)  # type: ignore[arg-type]


def shown(view: NodeList, width: int | None = None, *, wide: bool = False) -> str:
    return render(view, Screen(width=width, wide=wide))


def test_a_row_has_the_job_the_offer_the_bill_and_what_was_heard() -> None:
    head, row, total = shown(listed(NODE)).splitlines()
    assert " ".join(head.split()) == "job state where machine type instance up price cost last heard"
    assert row.split("  ")[0] == "gpt"
    for cell in ("training", "local/north-a", "sim.small", "spot", "local-0c2f5a11be90", "12 min", "$0.4200/h"):
        assert cell in row
    assert row.endswith("0.4 s ago: training, step 120")
    assert total.startswith("1 machine, $0.4200/h, $0.08")
    assert "2023-11-14 22:01:20 UTC" in shown(listed(NODE), wide=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"heard": None}, "never"),
        ({"heard": None, "state": "ending"}, "no report is kept"),
        ({"heard": Heard(42.0, True, "b0", 7, "training", 120, 42.1)}, "silent for 42 s: training, step 120"),
        ({"heard": Heard(600.0, True, "b0", 7)}, "silent for 10 min: nothing from this run yet"),
        ({"heard": Heard(0.0, True, "b0", 7, "prepared", 0, 0.1)}, "0.0 s ago: prepared"),
        ({"heard": Heard(1.0, True, "b0", 7, "malformed")}, "1.0 s ago: its trainer's report is not valid"),
        ({"heard": Heard(1.0, False)}, "1.0 s ago: the report is not valid"),
        ({"heard": Heard(9.0, False)}, "silent for 9.0 s: the report is not valid"),
        (
            {"heard": Heard(0.1, True, "b0", 7, "training", 3, 31.0)},
            "0.1 s ago, its trainer silent for 31 s: training, step 3",
        ),
        ({"heard": Heard(0.1, True, "b0", 7, "checkpointed_and_stopped", 3, 0.1)}, "checkpointed and stopped, step 3"),
        ({"heard": None, "unreadable": "cannot read it"}, "cannot be read: cannot read it"),
        ({"listed": False}, "step 120; its provider does not list it"),
        ({"notice_at_ms": NOW_MS}, "step 120; its provider will take it away at 11-14 22:13:20"),
        (
            {"state": "unknown", "job": None, "cost_nano_usd": None},
            "step 120; run_1 cannot be read: tradewind store check",
        ),
    ],
)
def test_what_was_heard_is_said_in_words(change: dict[str, object], said: str) -> None:
    row = shown(listed(replace(NODE, **change))).splitlines()[1]  # type: ignore[arg-type]
    assert row.endswith(said)


def test_a_machine_that_is_not_billed_yet_has_no_bill() -> None:
    row = shown(listed(replace(NODE, state="starting", since_ms=None, cost_nano_usd=0, heard=None))).splitlines()[1]
    assert row.split()[-4:] == ["-", "$0.4200/h", "$0.00", "never"]


@pytest.mark.parametrize("width", [70, 80, 100, 120])
def test_machines_fit_the_terminal(width: int) -> None:
    expensive = replace(
        NODE,
        job="pretraining-of-a-small-model-2026",
        offer_id=OFFER,
        nano_usd_per_hour=98_320_000_000,
        cost_nano_usd=1_234_560_000_000,
        heard=Heard(0.1, True, "b0", 7, "checkpointed_and_stopped", 2**53, 31.0),
        listed=False,
    )
    text = shown(listed(expensive, NODE), width)
    assert all(width_of(line) <= width for line in text.splitlines()), text
    for cell in ("training", "$98.3200/h", "$1,234.56", "local/north-a", "12 min", "0.4 s ago"):
        assert cell in text


def test_what_the_store_and_machines_hold_cannot_steer_the_terminal() -> None:
    steering = replace(NODE, job="\x1b[2Jgpt\n", instance_id="i\x1b[31m", heard=None, unreadable="\x1b]0;x\x07")
    text = shown(listed(steering, no_answer=(NoAnswer("aws", "\x1b[2Jno\nroute"),)))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.count("\n") == 3


def test_no_machine_is_one_sentence() -> None:
    assert shown(listed()) == "no machines are up"
    assert shown(listed(job="gpt")) == "no machine is up for gpt"
    unanswered = shown(listed(no_answer=(NoAnswer("aws", "no route"),))).splitlines()
    assert unanswered[0] == "no machines that the store knows are up"
    assert unanswered[1].startswith("aws did not answer")
    assert "no route" in unanswered[1]


def test_a_simulated_market_names_its_clock_and_its_money() -> None:
    text = shown(listed(replace(NODE, simulated=True), simulated=True, clock_factor=60.0))
    assert "1 real second is 60 market seconds" in text
    assert "no real money" in text
    assert "market" not in shown(listed(NODE))


def test_the_total_is_of_all_machines() -> None:
    assert "2 machines, $0.8400/h, $0.168" in shown(listed(NODE, replace(NODE, instance_id="other")))


def test_a_machine_that_was_not_rented_is_named_with_what_ends_it() -> None:
    stray = UnmanagedNode("aws-us-east-1-i-1", OFFER, NOW_MS, 1_000_000_000, simulated=False)
    text = shown(listed(unmanaged=(stray,)), 80)
    assert OFFER in text
    assert "$1.0000/h" in text
    assert text.splitlines()[-1] == "  tradewind reap aws-us-east-1-i-1"


def test_the_machines_of_one_job(tradewind: Run) -> None:
    document = json.loads(tradewind("nodes", "conv", "--output", "json").stdout)
    assert document["schema"] == "tradewind/nodes/v1"
    assert (document["job"], [node["job"] for node in document["nodes"]]) == ("conv", ["conv"])
    assert tradewind("nodes", "lstm").stdout == "no machine is up for lstm\n"
    assert tradewind("nodes", "unknown").exit_code == NotFoundError.exit_code
