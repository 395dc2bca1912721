"""The machines that are up: what the store, the providers and the machines' reports say, each alone and together."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import text

from orchestrator.engine.billing.machine_cost import job_cost_nano_usd
from orchestrator.errors import NotFoundError
from orchestrator.formats.codec import dumps
from orchestrator.installation import Installation
from orchestrator.model import Migration, Run, Step
from orchestrator.nodes.channel import Channel, Pace, control_store
from orchestrator.nodes.messages import NodeReport
from orchestrator.services.nodes.listing import nodes
from orchestrator.services.nodes.views import Heard, Node, NodeList
from providers.base import LaunchSpec
from providers.clock import VirtualClock
from providers.fake import FakeProvider, Fault
from tests.unit.services.recorded_history import HOUR_MS, OTHER_SPOT, SPOT, Past
from trainers.errors import StoreUnavailable
from trainers.objects.base import Listed
from trainers.objects.folder import FolderStore

TOKEN = "mig_4"  # of the recorded machine that is up
SAID = {"state": "training", "step": 50}


@pytest.fixture
def report(installation: Installation, past: Past, clock: VirtualClock) -> Callable[..., None]:
    """Writes what the recorded machine reports, so many seconds ago."""

    def write(said: object = SAID, *, ago_s: float = 0.5, boot: str = "b0", beat: int = 7, **fields: object) -> None:
        run_id = fields.pop("run_id", past.runs[3])
        sent = NodeReport(boot, beat, 3, run_id, said, **fields)  # type: ignore[arg-type]
        control_store(installation.control_root).put(f"{TOKEN}/report", dumps(sent).encode())
        at_s = clock.now_ms() / 1000 - ago_s
        os.utime(report_file(installation), (at_s, at_s))

    return write


def report_file(installation: Installation) -> Path:
    return Path(installation.control_root) / TOKEN / "report"


def only(view: NodeList) -> Node:
    (node,) = view.nodes
    return node


def heard(installation: Installation) -> Heard:
    found = only(nodes(installation)).heard
    assert found is not None
    return found


def cloud_of(installation: Installation) -> FakeProvider:
    provider = installation.providers["fake"]
    assert isinstance(provider, FakeProvider)
    return provider


def launch(installation: Installation, token: str, offer_id: str = SPOT) -> str:
    """A machine with the installation's tag that its provider lists."""
    tags = {"tradewind-install": installation.store.install_id}
    (instance_id,) = cloud_of(installation).launch(LaunchSpec(token, offer_id, "", tags))
    installation.clock.sleep(cloud_of(installation).listing_lag_s)
    return instance_id


def change(installation: Installation, run_id: str, **fields: object) -> None:
    with installation.store.write() as tx:
        tx.update_run(run_id, **fields)  # type: ignore[arg-type]


def test_without_machines_there_is_nothing_to_list(installation: Installation) -> None:
    view = nodes(installation)
    assert (view.nodes, view.unmanaged, view.no_answer) == ((), (), ())
    assert not Path(installation.control_root).exists(), "looking has created something"


def test_a_machine_is_listed_with_its_job_offer_bill_and_report(
    installation: Installation, past: Past, report: Callable[..., None]
) -> None:
    report(said_ago_s=0.25)
    view = nodes(installation)
    node = only(view)
    assert (node.job, node.job_id, node.run_id) == ("conv", past.conv, past.runs[3])
    assert (node.offer_id, node.instance_id, node.state, node.simulated) == (SPOT, "i-4", "training", True)
    assert node.since_ms == past.start_ms + HOUR_MS
    assert node.heard == Heard(0.5, True, "b0", 7, "training", 50, 0.75)
    beat_s = Pace.of(control_store(installation.control_root)).beat_s
    assert (view.silent_after_wall_s, view.simulated) == (installation.config.suspect_after_s + beat_s, True)
    with installation.store.read() as tx:
        hourly = tx.price_changes(SPOT, view.at_ms, view.at_ms + 1)[-1][1]
        spent = job_cost_nano_usd(tx, past.conv, [tx.run(past.runs[3])], view.at_ms)
    assert node.nano_usd_per_hour == hourly
    assert node.cost_nano_usd == spent > 0


def test_the_cost_is_up_to_now_and_not_up_to_the_last_booking(
    installation: Installation, past: Past, clock: VirtualClock
) -> None:
    before = only(nodes(installation))
    clock.advance(HOUR_MS / 1000)
    after = only(nodes(installation))
    assert before.cost_nano_usd is not None
    assert after.cost_nano_usd is not None
    assert after.cost_nano_usd >= before.cost_nano_usd + (before.nano_usd_per_hour or 0) > before.cost_nano_usd


def test_a_machine_whose_price_is_not_known_has_no_cost(installation: Installation, past: Past) -> None:
    change(installation, past.runs[3], billed_from_ms=past.start_ms - 1000 * HOUR_MS)
    assert only(nodes(installation)).cost_nano_usd is None


def test_a_job_that_tries_again_on_its_machine_has_one_machine_with_the_cost_of_both_runs(
    installation: Installation, past: Past, clock: VirtualClock, report: Callable[..., None]
) -> None:
    alone = only(nodes(installation))
    now_ms = clock.now_ms()
    change(installation, past.runs[3], state="ended", end="failed", billed_to_ms=now_ms, training_to_ms=now_ms)
    again = Run("run_9", past.conv, 9, SPOT, "i-4", "starting", now_ms, now_ms, machine_from_ms=alone.since_ms)
    with installation.store.write() as tx:
        tx.add_run(again)
        tx.add_migration(
            Migration("mig_9", past.conv, past.runs[3], "run_9", SPOT, 9, "retry", Step.READY, 0, "t9", now_ms, now_ms)
        )
    report({"state": "prepared"}, run_id="run_9")
    node = only(nodes(installation))
    assert (node.run_id, node.state, node.since_ms) == ("run_9", "starting", alone.since_ms)
    assert node.cost_nano_usd == alone.cost_nano_usd
    assert node.heard is not None
    assert node.heard.said == "prepared"


def test_what_a_machine_said_of_an_earlier_run_is_not_shown(
    installation: Installation, report: Callable[..., None]
) -> None:
    report(run_id="run_before")
    assert heard(installation) == Heard(0.5, True, "b0", 7)


def test_the_states_are_those_of_the_job(installation: Installation, past: Past, clock: VirtualClock) -> None:
    run_id, now_ms = past.runs[3], clock.now_ms()
    change(installation, run_id, state="provisioning")
    assert only(nodes(installation)).state == "starting"
    with installation.store.write() as tx:
        tx.add_migration(
            Migration("mig_9", past.conv, None, run_id, SPOT, 9, "standby", Step.CHECKPOINT, 1, "t9", now_ms, now_ms)
        )
    assert only(nodes(installation)).state == "standby"
    change(installation, run_id, state="quiesced", end="moved")
    assert only(nodes(installation)).state == "ending"
    change(installation, run_id, state="ended", billed_to_ms=now_ms)
    assert nodes(installation).nodes == ()


def test_the_machines_of_one_job(installation: Installation, past: Past) -> None:
    launch(installation, "another's")
    view = nodes(installation, "conv")
    assert (view.job, only(view).job, view.unmanaged) == ("conv", "conv", ())
    assert nodes(installation, "lstm").nodes == ()
    with pytest.raises(NotFoundError):
        nodes(installation, "unknown")


# What providers say


def test_a_machine_that_its_provider_lists(installation: Installation, past: Past) -> None:
    instance_id = launch(installation, TOKEN)
    change(installation, past.runs[3], instance_id=instance_id)
    node = only(nodes(installation))
    assert (node.instance_id, node.listed, node.notice_at_ms) == (instance_id, True, None)
    cloud_of(installation).cloud.preempt(instance_id, notice_s=120.0)
    assert only(nodes(installation)).notice_at_ms is not None


def test_a_provider_that_leaves_a_machine_out_is_quoted_unless_the_machine_is_new(
    installation: Installation, past: Past, clock: VirtualClock
) -> None:
    assert only(nodes(installation)).listed is False
    change(installation, past.runs[3], created_at_ms=clock.now_ms())
    assert only(nodes(installation)).listed is None


def test_a_provider_that_does_not_answer_hides_nothing_that_the_store_knows(
    installation: Installation, past: Past, report: Callable[..., None]
) -> None:
    report()
    cloud_of(installation).faults.inject("list_owned", Fault.NO_ANSWER)
    view = nodes(installation)
    assert [each.provider for each in view.no_answer] == ["fake"]
    assert view.no_answer[0].error
    node = only(view)
    assert (node.listed, node.job, node.heard is not None) == (None, "conv", True)


def test_a_launch_whose_answer_is_not_stored_yet_is_found_by_its_token(
    installation: Installation, past: Past, report: Callable[..., None]
) -> None:
    report()
    change(installation, past.runs[3], instance_id=None)
    assert nodes(installation).nodes == ()
    instance_id = launch(installation, TOKEN)
    node = only(nodes(installation))
    assert (node.instance_id, node.run_id, node.listed) == (instance_id, past.runs[3], True)
    assert node.heard is not None


def test_a_machine_that_lives_on_after_its_books_were_closed_is_shown(installation: Installation, past: Past) -> None:
    instance_id = launch(installation, "mig_1")
    found = {node.instance_id: node for node in nodes(installation).nodes}
    assert (found[instance_id].job, found[instance_id].state, found[instance_id].listed) == ("gpt", "ending", True)


def test_a_machine_that_the_store_did_not_rent_is_named_apart(installation: Installation, past: Past) -> None:
    instance_id = launch(installation, "another's", OTHER_SPOT)
    view = nodes(installation)
    (stray,) = view.unmanaged
    assert (stray.instance_id, stray.offer_id, stray.simulated) == (instance_id, OTHER_SPOT, True)
    assert stray.nano_usd_per_hour
    assert instance_id not in {node.instance_id for node in view.nodes}


def test_a_machine_whose_run_cannot_be_read_is_shown_as_its_provider_lists_it(
    installation: Installation, past: Past, report: Callable[..., None]
) -> None:
    report()
    instance_id = launch(installation, TOKEN)
    with installation.store.write() as tx:
        tx._connection.execute(text("UPDATE run SET state = 'dancing' WHERE id = :id"), {"id": past.runs[3]})
    node = only(nodes(installation))
    assert (node.job, node.run_id, node.instance_id, node.state) == (None, past.runs[3], instance_id, "unknown")
    assert (node.offer_id, node.cost_nano_usd) == (SPOT, None)
    assert nodes(installation, "conv").nodes == ()


# What machines report


def test_a_machine_that_has_not_reported(installation: Installation, past: Past) -> None:
    with suppress(FileNotFoundError):
        report_file(installation).unlink()
    node = only(nodes(installation))
    assert (node.heard, node.unreadable) == (None, "")


def test_an_age_is_by_the_stores_clock_and_never_negative(
    installation: Installation, report: Callable[..., None]
) -> None:
    report(ago_s=42.0)
    assert heard(installation).age_wall_s == 42.0
    report(ago_s=-3600.0)
    assert heard(installation).age_wall_s == 0.0


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"\x1b[2J",
        b"[]",
        b"{}",
        b'{"boot": "b0", "beat": "one"}',
        b'{"boot": "b0", "beat": -1}',
        b'{"boot": "b0", "beat": 1e999}',
        b'{"boot": "b0", "beat": 99999999999999999999999999}',
        b'{"boot": "\\u001b[2J", "beat": 1}',
        b'{"boot": "", "beat": 1}',
        b'{"boot": "b0", "beat": 1, "said": 5}',
        b'{"boot": "b0", "beat": 1, "said": ' + b'{"a":' * 100_000,
        b" " * (1 << 20),
    ],
    ids=str,
)
def test_a_garbled_report_is_shown_as_such(
    installation: Installation, report: Callable[..., None], written: bytes
) -> None:
    report()
    report_file(installation).write_bytes(written)
    found = heard(installation)
    assert (found.valid, found.boot, found.beat, found.said, found.step) == (False, None, None, None, None)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"state": "\x1b[2Jdancing"},
        {"state": "training", "step": -1},
        {"state": "training", "step": "secret"},
        {"state": "training", "step": 2.5},
    ],
    ids=str,
)
def test_words_of_a_trainer_that_are_not_valid_are_not_passed_on(
    installation: Installation, report: Callable[..., None], said: object
) -> None:
    report(said)
    assert heard(installation) == Heard(0.5, True, "b0", 7, "malformed")


@pytest.mark.parametrize(("ago_s", "age_s"), [(-1e9, 0.5), (3.0, 3.5)])
def test_a_machine_cannot_claim_that_its_trainer_spoke_after_the_report(
    installation: Installation, report: Callable[..., None], ago_s: float, age_s: float
) -> None:
    report(said_ago_s=ago_s)
    assert heard(installation).said_age_wall_s == age_s


def test_what_an_error_of_the_trainer_says_is_not_shown(
    installation: Installation, report: Callable[..., None]
) -> None:
    report({"state": "failed", "error": "the password is 1234"})
    node = only(nodes(installation))
    assert node.heard is not None
    assert node.heard.said == "failed"
    assert "1234" not in str(node)


@pytest.mark.parametrize("harm", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_something_else_than_a_report_is_no_report(
    installation: Installation, report: Callable[..., None], harm: Callable[[Path], None]
) -> None:
    report()
    report_file(installation).unlink()
    harm(report_file(installation))
    found = only(nodes(installation)).heard
    assert found is None or not found.valid


def test_reports_that_cannot_be_read_hide_no_machine(installation: Installation, past: Past) -> None:
    folder = Path(installation.control_root)
    folder.rename(folder.with_name("elsewhere"))
    folder.write_bytes(b"")
    node = only(nodes(installation))
    assert (node.job, node.heard) == ("conv", None)
    assert str(folder) in node.unreadable


def test_a_report_that_is_deleted_while_it_is_looked_for(
    installation: Installation, report: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    report()
    monkeypatch.setattr(Channel, "report", lambda _channel: None)
    assert only(nodes(installation)).heard is None


def test_a_store_of_reports_that_does_not_answer_is_asked_once(
    installation: Installation, past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(installation, "mig_1")
    asked = []

    def unanswered(_store: FolderStore, key: str) -> Listed | None:
        asked.append(key)
        raise StoreUnavailable("no answer", hint="try again")

    monkeypatch.setattr(FolderStore, "head", unanswered)
    assert [node.unreadable for node in nodes(installation).nodes] == ["no answer", "no answer"]
    assert len(asked) == 1


def test_a_store_of_reports_that_cannot_be_opened_hides_no_machine(
    installation: Installation, past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Installation, "control_root", "ftp://host/prefix")
    node = only(nodes(installation))
    assert (node.job, node.heard) == ("conv", None)
    assert "ftp://" in node.unreadable
