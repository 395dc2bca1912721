"""The control directory, the journal and the cadence: no torch, no clock."""

import json
import math

import pytest

from trainers.control import ControlDirectory, Notice, Progress, QuiesceOrder
from trainers.journal import Journal
from trainers.loop.cadence import Cadence


def test_what_one_end_writes_the_other_reads(tmp_path):
    agent, trainer = ControlDirectory(tmp_path / "control"), ControlDirectory(tmp_path / "control")
    assert (trainer.notice(), trainer.quiesce(), trainer.lease_until()) == (None, None, None)
    assert not trainer.stop_requested()
    assert agent.progress() is None
    agent.put_notice(Notice("preemption", 12.5))
    agent.put_quiesce(QuiesceOrder(3.0, 2))
    agent.put_lease(4.0)
    agent.request_stop()
    assert trainer.notice() == Notice("preemption", 12.5)
    assert (trainer.quiesce(), trainer.lease_until(), trainer.stop_requested()) == (QuiesceOrder(3.0, 2), 4.0, True)
    agent.put_lease(5.0)
    agent.clear_quiesce()
    agent.clear_quiesce()
    assert (trainer.quiesce(), trainer.lease_until()) == (None, 5.0)
    progress = Progress(state="training", step=3, loss=0.5)
    trainer.write_progress(progress)
    assert agent.progress() == progress


def test_the_files_have_the_documented_form(tmp_path):
    control = ControlDirectory(tmp_path)
    control.put_notice(Notice("preemption", 1.0))
    control.put_quiesce(QuiesceOrder(2.0, 7))
    assert json.loads((tmp_path / "notice.json").read_text()) == {"kind": "preemption", "deadline_monotonic_s": 1.0}
    assert json.loads((tmp_path / "quiesce.json").read_text()) == {"until_monotonic_s": 2.0, "successor": 7}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notice.json", "quiesce.json"]


@pytest.fixture
def clock():
    return [0.0]


@pytest.fixture
def journal(tmp_path, clock):
    journal = Journal(ControlDirectory(tmp_path / "control"), lambda: clock[0])
    yield journal
    journal.close()


def seen(journal):
    return json.loads((journal.folder / "control" / "progress.json").read_text())


def test_a_state_is_seen_at_once_and_the_rest_ten_times_a_second(journal, clock):
    journal.enter("training")
    journal.step(1, 0.5)
    assert (seen(journal)["state"], seen(journal)["step"]) == ("training", 0)
    clock[0] += 0.1
    journal.step(2, 0.25)
    assert (seen(journal)["step"], seen(journal)["loss"]) == (2, 0.25)
    journal.step(3, 0.25)
    journal.enter("quiesced")
    assert (seen(journal)["state"], seen(journal)["step"]) == ("quiesced", 3)


def test_a_step_is_due_from_when_it_is_awaited_and_again_after_each_one(journal, clock):
    journal.enter("training")
    assert seen(journal)["still_since_s"] is None
    clock[0] = 5.0
    journal.expect("step")
    assert seen(journal)["still_since_s"] == 5.0
    clock[0] = 7.0
    journal.step(1, 0.5)
    assert seen(journal)["still_since_s"] == 7.0
    clock[0] = 7.01
    with journal.saving():
        assert (seen(journal)["still_since_s"], seen(journal)["awaited"]) == (7.01, "save")
        clock[0] = 90.0
    assert (seen(journal)["still_since_s"], seen(journal)["awaited"]) == (90.0, "step")
    journal.enter("quiesced")
    with journal.saving():
        pass
    assert seen(journal)["still_since_s"] is None


def test_a_program_that_made_a_step_has_begun_whatever_it_was_expected_to_do(journal, clock):
    """One that calls run.step() without run.batches(): it is watched for its next step, not for its beginning."""
    journal.enter("training")
    journal.expect("begin")
    clock[0] = 10.0
    journal.step(1, 0.5)
    assert journal.progress.awaited == "step"


@pytest.mark.parametrize(("loss", "text"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_a_loss_that_json_lacks_is_null_and_exact_beside_it(journal, loss, text):
    journal.enter("training")
    journal.step(1, loss)
    line = json.loads((journal.folder / "metrics.jsonl").read_text())
    assert (line["step"], line["loss"], line["loss_hex"]) == (1, None, text)


def test_a_line_cut_by_a_kill_does_not_swallow_the_next(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"st')
    journal = Journal(ControlDirectory(tmp_path / "control"), lambda: 0.0)
    journal.enter("training")
    journal.step(2, 1.0)
    journal.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert lines[1] == '{"st'
    assert json.loads(lines[2])["step"] == 2


def test_saves_are_due_by_their_cost_within_half_a_second_and_a_quarter_hour():
    cadence = Cadence(0.035, since_s=100.0)
    assert not cadence.due(100.4)
    assert cadence.due(100.5)
    cadence.saved(100.5, 101.2)
    assert not cadence.due(101.2 + 19.9)
    assert cadence.due(101.2 + 20.1)
    cadence.saved(200.0, 300.0)
    assert not cadence.due(300.0 + 899)
    assert cadence.due(300.0 + 900)
    cadence.saved(0.0, 0.001)
    assert cadence.due(0.501)


def test_a_save_that_could_not_be_made_is_tried_again_after_pauses_that_double():
    cadence = Cadence(0.035, since_s=0.0)
    cadence.saved(0.0, 1.0)
    cadence.postponed(30.0, 50.0)
    assert not cadence.due(69.9)
    assert cadence.due(70.0)
    cadence.postponed(70.0, 71.0)
    assert not cadence.due(110.9)
    assert cadence.due(111.0)
    cadence.postponed(111.0, 2000.0)
    assert cadence.due(2900.0)
    cadence.saved(2900.0, 2901.0)
    assert cadence.due(2901.0 + 28.6)


def test_no_overhead_allowed_means_the_longest_interval():
    cadence = Cadence(0.0, since_s=0.0)
    assert not cadence.due(899.0)
    assert cadence.due(900.0)


def test_the_time_for_a_last_save_counts_the_slowest_recent_step():
    cadence = Cadence(0.035, since_s=0.0)
    cadence.saved(0.0, 1.0)
    for step_s in (0.1, 3.0, 0.1):
        cadence.stepped(step_s)
    assert not cadence.must_end(0.0, deadline_s=5.3)
    assert cadence.must_end(0.1, deadline_s=5.3)
