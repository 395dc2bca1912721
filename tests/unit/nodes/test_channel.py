"""The channel between the control plane and a machine: orders replace one another by compare-and-swap, and nothing that
the other end wrote is trusted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import SiteError
from orchestrator.nodes.channel import (
    Channel,
    Garbled,
    forget_run,
    machines_of,
    places,
    put_run,
    raise_epoch,
    recorded_epoch,
    runs_known,
)
from orchestrator.nodes.messages import (
    MOST_BYTES,
    MOST_ORDER_BYTES,
    Hold,
    JobFiles,
    NodeFacts,
    NodeReport,
    Order,
    RunOrder,
)
from trainers.errors import InvalidKey
from trainers.objects.base import ObjectStore
from trainers.objects.opening import open_store

RUN = RunOrder("run-1", "/runs/run-1", spec={"steps": 3}, hold=Hold(1, 2, 30.0))


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path / "control")


def test_an_order_arrives_as_it_was_written_and_is_decoded_once(store: ObjectStore) -> None:
    plane, agent = Channel(store, "m"), Channel(store, "m")
    assert agent.ordered(b"") == (b"", None)
    plane.replace_order(Order(1, 60.0, RUN), "")
    seen, order = agent.ordered(b"")
    assert order == Order(1, 60.0, RUN)
    assert agent.ordered(seen) == (seen, None)
    assert Channel(store, "other").order() == (None, "")


def test_a_machine_of_an_earlier_version_understands_orders_that_say_nothing_new(store: ObjectStore) -> None:
    """It refuses fields that it does not know."""
    channel = Channel(store, "m")
    order = Order(4, 60.0, RunOrder("run-1", files=JobFiles("jobs/install/job-1", "digest"), spec={"steps": None}))
    channel.replace_order(order, "")
    written = store.get("m/order", 1 << 20)
    assert written is not None
    files = {"place": "jobs/install/job-1", "code": "digest"}
    run = {"run_id": "run-1", "files": files, "spec": {"steps": None}}
    assert json.loads(written.data) == {"number": 4, "lease_s": 60.0, "run": run}
    assert channel.order()[0] == order


def test_of_two_control_planes_one_writes_the_next_order_and_the_other_gets_an_error(store: ObjectStore) -> None:
    one, two = Channel(store, "m"), Channel(store, "m")
    first = one.replace_order(Order(1, 60.0), "")
    with pytest.raises(SiteError, match="another control plane has changed "):
        two.replace_order(Order(1, 60.0, RUN), "")
    second = two.replace_order(Order(2, 60.0, RUN), two.order()[1])
    with pytest.raises(SiteError, match="another control plane"):  # it slept meanwhile
        one.replace_order(Order(2, 60.0), first)
    assert one.order() == (Order(2, 60.0, RUN), second)


def test_an_order_that_is_too_long_names_the_run_and_what_to_shorten(store: ObjectStore) -> None:
    long = RunOrder("run-1", "/runs/run-1", spec={"args": "x" * MOST_ORDER_BYTES})
    with pytest.raises(SiteError, match="the order for run-1 has") as caught:
        Channel(store, "m").replace_order(Order(1, 60.0, long), "")
    assert "train.args" in caught.value.hint
    assert Channel(store, "m").order() == (None, "")


def test_a_damaged_order_is_named_on_both_ends(store: ObjectStore) -> None:
    store.put("m/order", b'{"number": "three"}')
    with pytest.raises(SiteError, match="m/order is damaged"):
        Channel(store, "m").order()
    with pytest.raises(Garbled, match="number"):
        Channel(store, "m").ordered(b"")


@pytest.mark.parametrize("words", [b"", b"\xff\xfe", b"[]", b'{"boot": 1}', b"{" * 9999, b"x" * (MOST_BYTES + 1)])
def test_whatever_a_machine_writes_is_read_or_said_to_be_garbled(store: ObjectStore, words: bytes) -> None:
    channel = Channel(store, "m")
    assert channel.report() is None
    store.put("m/report", words)
    store.put("m/node", words)
    with pytest.raises(Garbled):
        channel.report()
    with pytest.raises(Garbled):
        channel.facts()


def test_reports_and_facts_arrive_as_they_were_written(store: ObjectStore) -> None:
    channel = Channel(store, "m")
    report = NodeReport("b", 7, 3, "run-1", {"state": "training", "loss": float("nan"), "error": "\udc80"}, 0.25)
    channel.put_report(report)
    found = channel.report()
    assert found is not None
    assert repr(found) == repr(report)
    channel.put_facts(NodeFacts("b", "00", "11"))
    assert channel.facts() == NodeFacts("b", "00", "11")


def test_the_machines_of_a_run_are_recorded_once(store: ObjectStore) -> None:
    assert machines_of(store, "run-1") == ()
    put_run(store, "run-1", "m")
    put_run(store, "run-1", "another")  # a run never changes its machine
    assert machines_of(store, "run-1") == ("m",)
    put_run(store, "run-2", "m", 3)
    assert machines_of(store, "run-2") == ("m/0", "m/1", "m/2") == places("m", 3)


def test_of_two_machines_exactly_one_gets_a_place(store: ObjectStore) -> None:
    first, second = (Channel(store, "m/0") for _ in range(2))
    assert first.claim("i-1") == "i-1"
    assert second.claim("i-2") == "i-1"
    assert first.claim("i-1") == "i-1"


def test_no_name_leads_out_of_the_store(store: ObjectStore) -> None:
    with pytest.raises(InvalidKey):
        Channel(store, "../m").order()
    with pytest.raises(InvalidKey):
        put_run(store, "../../run", "m")


@pytest.mark.parametrize("nodes", [1, 2])
def test_of_a_run_that_is_forgotten_nothing_is_left_in_the_folder(
    store: ObjectStore, tmp_path: Path, nodes: int
) -> None:
    for run_id, token in (("run-1", "m"), ("run-2", "other")):
        put_run(store, run_id, token, nodes)
        for place in places(token, nodes):
            plane = Channel(store, place)
            plane.replace_order(Order(1, 60.0, replace(RUN, run_id=run_id)), "")
            plane.put_grant("0" * 32, b"sealed")
    forget_run(store, "run-1")
    assert runs_known(store) == ["run-2"]
    assert sorted(each.name for each in (tmp_path / "control").iterdir()) == ["other", "runs"]
    assert all(Channel(store, place).order()[0] is not None for place in places("other", nodes))


def test_the_highest_epoch_is_on_record_and_a_damaged_one_is_named(store: ObjectStore) -> None:
    assert recorded_epoch(store) == 0
    raise_epoch(store, 3)
    assert raise_epoch(store, 2) == recorded_epoch(store) == 3
    store.put("epoch", b"\x00\x00")
    with pytest.raises(SiteError, match="epoch is damaged: it is not a number") as caught:
        recorded_epoch(store)
    assert "delete it" in caught.value.hint
