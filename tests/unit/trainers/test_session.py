"""What a session does between two steps: hold, stop, notice, lease, fence, pace. Time is virtual."""

import json
import re
from contextlib import closing

import pytest
import torch

from tests.unit.trainers.simulated_run import JOB, SimulatedRun, names
from trainers.checkpoint import store
from trainers.control import Notice, QuiesceOrder
from trainers.errors import FencedError, StateError
from trainers.journal import Journal
from trainers.loop.session import attach
from trainers.process.run_context import RunContext, Timers, opened


def test_an_undisturbed_run_trains_all_steps_and_says_so(run):
    assert run.train() == "finished"
    progress = run.progress()
    assert run.trained == list(range(1, 31))
    assert (progress.step, progress.total_steps, progress.loss) == (30, 30, 30.0)
    assert (progress.manifest, progress.manifest_step) == ("1-30-0", 30)
    assert progress.weights_hash
    assert progress.useful_s == pytest.approx(3.0)
    assert progress.step_wall_s == pytest.approx(0.1)
    lines = [json.loads(line) for line in (run.control.path.parent / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 31))
    assert lines[4]["loss_hex"] == (5.0).hex()


def test_a_step_is_due_since_the_last_one_then_the_end_of_a_save_and_nothing_while_a_run_holds(run):
    run.save_s = 50.0
    run.at.append((1060.0, lambda: run.control.clear_quiesce()))
    quiesce = {7: lambda: run.control.put_quiesce(QuiesceOrder(1e9, 2))}
    assert run.train(before_step=lambda step: quiesce.get(step, lambda: None)()) == "finished"
    assert "quiesced" in run.states
    assert set(run.due_s["quiesce"]) == {None}
    assert None not in run.due_s["save"]
    assert run.due_s["step"] == pytest.approx(sorted(run.due_s["step"]))
    assert len(run.due_s["step"]) == 30
    assert run.progress().still_since_s is None
    assert run.progress().save_wall_s == pytest.approx(50.0)


def test_after_the_last_step_the_end_of_the_program_is_due(run):
    timers = Timers(monotonic=lambda: run.now, sleep=run.sleep, cpu=lambda: run.cpu)
    journal = Journal(run.control, timers.monotonic)
    with closing(journal), opened(RunContext(run.spec, run.control, journal, timers)):
        attached = attach(model=run.model, optimizer=run)
        for _ in attached.batches():
            attached.step(0.0)
        assert run.progress().awaited == "end"
        assert run.progress().still_since_s is not None


def test_checkpoints_take_no_more_than_their_share_of_the_time(tmp_path):
    store.write_fence(tmp_path / "checkpoints", JOB, 1, None)
    run = SimulatedRun(tmp_path, steps=100, max_overhead=0.1)
    run.save_s = 0.2
    assert run.train() == "finished"
    steps = [name.step for name in store.manifests(run.root, JOB)]
    assert steps == [5, 25, 45, 65, 85, 100]  # the first after 0.5 s, then every 0.2 s / 0.1
    assert run.progress().checkpoint_s == pytest.approx(6 * 0.2)


def test_training_waits_for_the_fence_of_its_generation(run):
    run = SimulatedRun(run.root.parent, generation=2)
    store.write_fence(run.root, JOB, 1, None)
    run.at.append((1001.0, lambda: store.write_fence(run.root, JOB, 2, None)))
    assert run.train() == "finished"
    assert set(run.states) == {"restored"}
    assert run.now >= 1004


def test_a_run_that_waits_for_its_fence_can_be_stopped(run):
    run = SimulatedRun(run.root.parent, generation=2)
    run.at.append((1001.0, run.control.request_stop))
    assert run.train() == "checkpointed_and_stopped"
    assert run.trained == []


def test_a_run_that_waits_ends_when_another_generation_gets_the_job(run):
    run = SimulatedRun(run.root.parent, generation=2)
    run.at.append((1001.0, lambda: store.write_fence(run.root, JOB, 3, None)))
    assert run.train() == "fenced"
    assert run.trained == []


def test_a_run_starts_from_the_checkpoint_that_the_fence_names_even_if_it_restored_another(run):
    assert run.train(lambda step: run.control.request_stop() if step == 19 else None) == "checkpointed_and_stopped"
    assert names(run)[-2:] == ["1-15-0", "1-20-0"]
    target = SimulatedRun(run.root.parent, generation=2, manifest="1-15-0")
    target.at.append((1000.0, lambda: store.write_fence(target.root, JOB, 2, "1-20-0")))
    assert target.train() == "finished"
    assert target.trained == list(range(21, 31))
    assert target.progress().start_step == 20
    assert target.progress().loss == 30.0


def test_a_run_refuses_to_mix_a_restored_state_with_a_fresh_start(run):
    run.train()
    target = SimulatedRun(run.root.parent, generation=2)
    target.at.append((1000.0, lambda: store.write_fence(target.root, JOB, 2, None)))
    with pytest.raises(StateError, match="from scratch, but 1-30-0 was restored"):
        target.train()


def test_a_stop_request_ends_at_the_next_step_with_a_checkpoint(run):
    assert run.train(lambda step: run.control.request_stop() if step == 6 else None) == "checkpointed_and_stopped"
    assert run.trained[-1] == 7
    assert run.progress().manifest == "1-7-0"


def test_a_holding_run_waits_with_a_checkpoint_and_trains_on_when_let_go(run):
    run.at.append((1001.5, run.control.clear_quiesce))
    assert run.train(lambda step: run.control.put_quiesce(QuiesceOrder(1060.0, 2)) if step == 6 else None) == "finished"
    assert set(run.states) == {"quiesced"}
    assert "1-7-0" in names(run)
    assert run.trained == list(range(1, 31))
    assert run.now < 1010
    assert run.progress().useful_s == pytest.approx(3.0)  # waiting is not useful


def test_a_hold_that_nobody_ends_runs_out(run):
    assert run.train(lambda step: run.control.put_quiesce(QuiesceOrder(1060.0, 2)) if step == 6 else None) == "finished"
    assert run.now == pytest.approx(1060 + 2.3, abs=0.1)


def test_a_run_that_goes_on_after_a_hold_can_never_be_replaced_by_the_generation_it_held_for(run):
    """The process that asked it to hold may wake up late, and would hand the job over from where it stood then."""
    late = []

    def hand_over(step):
        if step == 6:
            run.control.put_quiesce(QuiesceOrder(1060.0, 2))
        if step == 25:
            with pytest.raises(FencedError):
                store.write_fence(run.root, JOB, 2, "1-7-0")
            late.append(step)

    assert run.train(hand_over) == "finished"
    assert late == [25]
    assert run.trained == list(range(1, 31))


def test_a_holding_run_can_be_stopped_without_a_second_checkpoint(run):
    run.at.append((1002.0, run.control.request_stop))
    assert (
        run.train(lambda step: run.control.put_quiesce(QuiesceOrder(1060.0, 2)) if step == 6 else None)
        == "checkpointed_and_stopped"
    )
    assert names(run) == ["1-5-0", "1-7-0"]


def test_a_holding_run_whose_job_moved_ends_quietly(run):
    run.at.append((1002.0, lambda: store.write_fence(run.root, JOB, 2, "1-7-0")))
    assert run.train(lambda step: run.control.put_quiesce(QuiesceOrder(1060.0, 2)) if step == 6 else None) == "fenced"
    assert names(run) == ["1-5-0", "1-7-0"]


def test_a_notice_is_used_to_the_last_safe_step_and_none_is_lost(run):
    run.save_s = 0.2

    def notice(step):
        if step == 6:
            run.control.put_notice(Notice("preemption", run.now + 2.0))

    assert run.train(notice) == "checkpointed_and_stopped"
    assert run.now <= 1000.6 + 0.2 + 2.0
    assert len(run.trained) > 12
    assert run.progress().manifest_step == run.trained[-1]


def test_a_notice_without_time_ends_the_run_at_once_with_a_checkpoint(run):
    assert (
        run.train(lambda step: run.control.put_notice(Notice("preemption", run.now + 0.2)) if step == 2 else None)
        == "checkpointed_and_stopped"
    )
    assert run.trained == [1, 2, 3]
    assert run.progress().manifest == "1-3-0"


def taken_away(run, left_s):
    """Its first checkpoint, of step 5, takes 50 s; after step 20, its machine is given that long."""
    run.save_s = 50.0

    def notice(step):
        if step == 20:
            run.save_s = 0.0
            run.control.put_notice(Notice("preemption", run.now + left_s))

    return run.train(notice)


def test_a_checkpoint_that_takes_longer_than_the_notice_is_not_begun_and_the_log_says_so(run, capsys):
    assert taken_away(run, 30.0) == "finished", "the machine may live longer than announced"
    assert names(run)[-2:] == ["1-5-0", "1-30-0"]
    said = capsys.readouterr().err
    assert "steps after step 5 will be repeated" in said
    assert said.count("taken away") == 2, "once, with its reason"


def test_a_checkpoint_that_just_fits_is_written(run):
    assert taken_away(run, 50.2) == "checkpointed_and_stopped"
    assert names(run)[-1] == f"1-{run.trained[-1]}-0"


def test_where_most_of_a_model_is_frozen_what_has_changed_fits_in_a_shorter_notice(run, capsys):
    run.model.register_parameter("frozen", torch.nn.Parameter(torch.ones(4_000_000), requires_grad=False))
    assert taken_away(run, 30.0) == "checkpointed_and_stopped"
    assert names(run)[-1] == f"1-{run.trained[-1]}-0"
    share = re.search(r"(\d+)% of the state has changed since 1-5-0", capsys.readouterr().err)
    assert share is not None
    assert int(share[1]) < 10


def test_a_run_without_a_checkpoint_secures_its_work_as_soon_as_there_is_a_notice(run):
    run.train(lambda step: run.control.put_notice(Notice("preemption", run.now + 1.0)) if step == 2 else None)
    assert names(run)[0] == "1-3-0"


def test_a_warning_is_followed_by_one_checkpoint_at_once_and_the_run_goes_on(run):
    run.save_s = 1.0  # so that the next periodic one is half a minute after the first
    assert run.train(lambda step: run.control.warn() if step == 12 else None) == "finished"
    assert names(run) == ["1-5-0", "1-13-0", "1-30-0"]


def test_a_run_stops_by_itself_when_its_lease_lapses(run):
    run.control.put_lease(1001.0)
    assert run.train() == "fenced"
    assert run.now < 1001.2
    assert run.progress().manifest_step <= 10


def test_a_lease_that_lapses_during_a_save_keeps_it_from_being_committed(run):
    run.save_s = 2.0
    run.control.put_lease(1001.0)
    assert run.train() == "fenced"
    assert names(run) == []


def test_a_lease_that_is_renewed_changes_nothing(run):
    assert run.train(lambda step: run.control.put_lease(run.now + 0.2)) == "finished"


def test_a_newer_fence_ends_training_and_nothing_more_is_written(run):
    assert run.train(lambda step: store.write_fence(run.root, JOB, 2, None) if step == 12 else None) == "fenced"
    assert run.trained[-1] == 13
    assert max(name.step for name in store.manifests(run.root, JOB)) == 10


def test_a_fence_at_the_very_end_keeps_a_zombie_from_calling_itself_finished(run):
    assert run.train(lambda step: store.write_fence(run.root, JOB, 2, None) if step == 29 else None) == "fenced"
    assert run.progress().weights_hash is None


def test_a_throttled_machine_sleeps_in_proportion_to_cpu_time_not_wall_time(tmp_path):
    store.write_fence(tmp_path / "checkpoints", JOB, 1, None)
    run = SimulatedRun(tmp_path, throttle=0.25, steps=3)

    def contention(step):
        run.now += 5.0

    assert run.train(contention) == "finished"
    assert run.slept == pytest.approx([0.3, 0.3, 0.3])


@pytest.mark.parametrize("leave_every", [1, 7])
def test_a_program_that_leaves_its_loop_and_comes_back_goes_on_where_it_was(run, leave_every):
    assert run.train(leave_every=leave_every) == "finished"
    assert run.trained == list(range(1, 31))
    assert len(names(run)) > 4, "checkpoints are made all the same"


def test_a_program_that_leaves_its_loop_after_each_step_is_stopped_like_any_other(run):
    assert (
        run.train(lambda step: run.control.request_stop() if step == 9 else None, leave_every=1)
        == "checkpointed_and_stopped"
    )
    assert run.progress().manifest_step == 10


def test_a_finished_job_that_is_run_again_only_repeats_its_ending(run):
    run.train()
    again = SimulatedRun(run.root.parent, generation=2)
    store.write_fence(again.root, JOB, 2, "1-30-0")
    assert again.train() == "finished"
    assert again.trained == []
    assert again.progress().weights_hash == run.progress().weights_hash


def test_a_damaged_newest_checkpoint_costs_steps_but_not_the_job(run, caplog):
    run.train(lambda step: run.control.request_stop() if step == 19 else None)
    (run.root / JOB / "manifests" / "1-20-0.json").write_bytes(b"{}")
    target = SimulatedRun(run.root.parent, generation=2, manifest="1-20-0")
    store.write_fence(target.root, JOB, 2, "1-20-0")
    assert target.train() == "finished"
    assert target.progress().start_step == 15
    assert "1-20-0.json is truncated or altered" in caplog.text
