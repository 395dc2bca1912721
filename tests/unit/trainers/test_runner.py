"""Whatever the job's code does, the run has a last word. Real processes, forked by the nursery."""

import json
import os
import subprocess
import sys

import pytest

from tests.unit.trainers.test_trainers_surface import EXAMPLES
from trainers.checkpoint import store
from trainers.checkpoint.reader import load_newest
from trainers.control import ControlDirectory
from trainers.runner import lost_contact


def test_a_program_that_raises_is_reported_with_its_traceback_and_keeps_its_checkpoints(job):
    outcome = job.run(raise_at=20)
    assert (outcome.status, outcome.progress.state) == ("failed", "failed")
    for text in (outcome.progress.error, outcome.log):
        assert "ValueError: the gradient descended too far" in text
        assert "everything.py" in text
        assert "runner.py" not in text
    assert outcome.progress.step == 20
    assert store.newest_counting(job.root, job.job_id, 1, on_damage=pytest.fail) == outcome.progress.manifest


def test_an_exit_in_the_middle_is_a_failure_with_its_reason(job):
    outcome = job.run(exit_at=3)
    assert outcome.status == "failed"
    assert "SystemExit: no more" in outcome.progress.error


def test_a_full_checkpoint_folder_fails_the_run_with_the_remedy_and_loses_nothing(job):
    outcome = job.run(file_limit_after_step=20)
    assert outcome.status == "failed"
    assert "CheckpointFull: cannot write the checkpoint: " in outcome.progress.error
    assert "File too large" in outcome.progress.error
    assert "free space there" in outcome.progress.error
    newest = store.newest_counting(job.root, job.job_id, 1, on_damage=pytest.fail)
    assert newest == outcome.progress.manifest is not None
    assert job.run().status == "finished"


def test_a_checkpoint_folder_that_cannot_be_written_fails_the_run_before_the_first_step(job):
    job.root.write_text("a file")
    outcome = job.run(fence=False)
    assert outcome.status == "failed"
    assert "CheckpointReadOnly: cannot write the checkpoint" in outcome.progress.error
    assert "point checkpoint.to at another" in outcome.progress.error
    assert outcome.losses == {}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("everythin:main", "did you mean everything?"),
        ("everything:mian", "did you mean main?"),
        ("zzz:main", "available: "),
        ("odd:data", "has no function data"),
        ("odd:needs", "train.args do not fit odd:needs"),
        ("odd:raises_without_a_stderr", "ValueError: said although there is nowhere to say it"),
        ("odd:interrupted", "KeyboardInterrupt"),
        ("broken:main", "No module named 'a_module_that_is_not_here'"),
    ],
)
def test_an_entry_that_cannot_be_called_is_explained(job, entry, message):
    outcome = job.run(spec={"entry": entry})
    assert outcome.status == "failed"
    assert message in outcome.progress.error
    assert message in outcome.log
    assert outcome.progress.permanent is (not entry.startswith(("odd:raises", "odd:interrupted")))


@pytest.mark.parametrize("name", ["test", "trace", "sched"])
def test_a_module_may_have_the_name_of_one_of_python_that_nothing_loads(job, name):
    (job.folder / f"{name}.py").write_text("import trainers\n\n\ndef main():\n    print('this is mine')\n")
    outcome = job.run(spec={"entry": f"{name}:main", "workdir": str(job.folder)})
    assert outcome.status == "finished", outcome.log
    assert "this is mine" in outcome.log


ARGUMENTS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.parse_args()
"""
COMMAND = """
import typer
def main(lr: float) -> None: ...
typer.run(main)
"""


@pytest.mark.parametrize(
    ("source", "args", "said"),
    [
        (ARGUMENTS, {}, "the following arguments are required: --lr"),
        (ARGUMENTS, {"lr": "fast"}, "argument --lr: invalid float value: 'fast'"),
        (ARGUMENTS, {"lr": 1, "layer": 2}, "unrecognized arguments: --layer 2"),
        (COMMAND, {"rate": 1}, "No such option: --rate"),
    ],
)
def test_arguments_that_a_script_refuses_are_reported_and_would_be_refused_anywhere(job, source, args, said):
    (job.folder / "parses.py").write_text(source)
    outcome = job.run(spec={"workdir": str(job.folder), "entry": None, "script": "parses.py"}, **args)
    assert outcome.status == "failed"
    assert outcome.progress.error.startswith(f"trainers.errors.EntryError: train.args do not fit parses.py: {said}")
    assert outcome.progress.permanent


def test_a_script_that_exits_with_2_for_reasons_of_its_own_may_be_tried_again(job):
    (job.folder / "exits.py").write_text("import sys\nsys.exit(2)\n")
    outcome = job.run(spec={"workdir": str(job.folder), "entry": None, "script": "exits.py"})
    assert outcome.status == "failed"
    assert not outcome.progress.permanent


def test_a_program_that_has_made_a_step_may_be_tried_again_whatever_it_raises(job):
    outcome = job.run(spec={"entry": "odd:imports_late"})
    assert "ModuleNotFoundError" in outcome.progress.error
    assert not outcome.progress.permanent


def test_a_folder_that_is_not_there_is_explained(job):
    outcome = job.run(spec={"workdir": str(job.folder / "gone")})
    assert "correct train.workdir" in outcome.progress.error


@pytest.mark.parametrize(
    ("entry", "length", "reported"),
    [
        ("odd:scheduled", {"steps": 5}, [5, 7, [], 5]),
        ("odd:scheduled", {"steps": None, "epochs": 2}, [800, 2, [], 6]),
        ("odd:scheduled", {"steps": None}, [800, 7, [], 21]),
        ("odd:decorated", {"steps": 5}, [5, 7, [], 5]),
        ("odd:closed", {"steps": 5}, [800, 7, [], 5]),
    ],
)
def test_the_length_of_the_job_reaches_a_program_that_asks_for_it(job, entry, length, reported):
    outcome = job.run(spec={"entry": entry, **length})
    assert outcome.progress.error is None, outcome.progress.error
    assert json.loads((job.folder / "outputs" / "lengths").read_text()) == reported


def test_the_jobs_length_wins_over_an_argument_of_that_name(job):
    assert job.run(spec={"entry": "odd:scheduled", "steps": 5}, steps=350).status == "finished"
    assert json.loads((job.folder / "outputs" / "lengths").read_text())[0] == 5


@pytest.mark.parametrize("name", ["gpt", "convnet"])
def test_an_example_builds_its_schedule_for_the_length_of_its_job(job, name):
    job.steps = 2
    small = {"gpt": {"width": 8, "context": 8}, "convnet": {"width": 2, "images": 64}}[name]
    outcome = job.run(spec={"workdir": str(EXAMPLES), "entry": f"{name}:main"}, **small)
    assert outcome.status == "finished", outcome.log
    loaded = load_newest(job.root, job.job_id, 1, None)
    assert loaded.items["scheduler"]["T_max"] == 2
    assert loaded.items["scheduler"]["_last_lr"] == pytest.approx([0.0])


def test_a_script_gets_its_arguments_environment_and_output_folder(job):
    outcome = job.run(spec={"entry": None, "script": "plain.py", "env": {"GREETING": "hello"}}, lr=0.5)
    assert outcome.status == "finished", outcome.log
    seen = json.loads((job.folder / "outputs" / "seen.json").read_text())
    assert seen["argv"] == ["plain.py", "--lr", "0.5"]
    assert seen["env"]["GREETING"] == "hello"
    assert seen["env"]["TRADEWIND_CHECKPOINT_DIR"] == str(job.root / job.job_id)
    assert seen["threads"] == 1
    assert seen["deterministic"] is True
    assert "printed by the script\nwritten to descriptor 2\n" in outcome.log


def test_a_script_gets_a_list_of_arguments_word_for_word(job):
    (job.folder / "shows.py").write_text("import sys\nprint(sys.argv)\n")
    words = ["fit", "-b", "010", "--lr", "3e-4", "--amp", "", "two words", "--"]
    outcome = job.run(spec={"workdir": str(job.folder), "entry": None, "script": "shows.py", "argv": words})
    assert f"{['shows.py', *words]}\n" in outcome.log


def test_a_script_that_is_not_there_is_explained(job):
    outcome = job.run(spec={"entry": None, "script": "plan.py"})
    assert "did you mean plain.py?" in outcome.progress.error


@pytest.mark.parametrize("entry", ["odd:leaves", "odd:never_attaches"])
def test_a_program_that_ends_by_itself_is_finished(job, entry):
    outcome = job.run(spec={"entry": entry})
    assert (outcome.status, outcome.progress.error) == ("finished", None)


def test_a_program_may_say_that_it_stops_early_and_its_last_state_is_saved(job):
    outcome = job.run(spec={"entry": "odd:stops_early"})
    assert outcome.status == "finished"
    assert (outcome.progress.step, outcome.progress.total_steps, outcome.progress.manifest) == (3, 3, "1-3-1")
    assert outcome.progress.stopped_early


def test_a_program_that_leaves_its_loop_after_the_last_step_of_its_last_epoch_is_finished(job):
    outcome = job.run(spec={"entry": "odd:leaves_after_the_last_epoch", "steps": None})
    assert outcome.status == "finished", outcome.log
    assert (outcome.progress.step, outcome.progress.manifest) == (6, "1-6-1")


@pytest.mark.parametrize(("entry", "step"), [("odd:breaks_off", 3), ("odd:exits_with_0", 3), ("odd:attaches_only", 0)])
def test_a_program_that_attached_and_ends_before_its_last_step_without_a_word_has_failed(job, entry, step):
    outcome = job.run(spec={"entry": entry})
    assert outcome.status == "failed"
    assert outcome.progress.error.startswith(f"the program ended at step {step} of 40")
    assert "run.stop()" in outcome.progress.error
    assert outcome.progress.error in outcome.log


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("odd:raises_surrogates", r"ValueError: odd \ud800 text"),
        ("odd:raises_unprintable", "Unprintable"),
        ("odd:raises_with_notes_that_raise", "ValueError"),
    ],
)
def test_an_exception_whose_text_cannot_be_shown_is_still_the_users(job, entry, message):
    outcome = job.run(spec={"entry": entry})
    assert outcome.status == "failed"
    for text in (outcome.progress.error, outcome.log):
        assert message in text
        assert f"in {entry.partition(':')[2]}" in text
        text.encode()


def test_an_error_without_a_text_is_no_sign_of_a_lost_peer():
    class Mute(RuntimeError):
        def __str__(self):
            raise ValueError("no text")

    assert not lost_contact(Mute())


def test_what_a_job_prints_need_not_be_text(job):
    assert r"printed \udcff as well" in job.run(spec={"entry": "odd:raises_surrogates"}).log


def test_a_segmentation_fault_leaves_the_stack_in_the_log(job):
    outcome = job.run(spec={"entry": "odd:crashes"})
    assert outcome.status == "killed 11"
    assert "Segmentation fault" in outcome.log
    assert "in steps_then" in outcome.log


def test_a_loss_that_is_no_number_is_reported_with_the_first_step_that_had_it(job):
    outcome = job.run(spec={"entry": "odd:diverges"})
    assert (outcome.status, outcome.progress.not_finite_step, outcome.progress.loss) == ("finished", 4, None)


@pytest.mark.parametrize(
    ("what", "state", "code"),
    [
        ("stop", "checkpointed_and_stopped", 0),
        ("notice", "checkpointed_and_stopped", 0),
        ("lease", "fenced", 3),
        ("fence", "fenced", 3),
    ],
)
def test_a_program_that_never_attaches_is_ended_when_it_must_end(job, what, state, code):
    outcome = job.run(spec={"entry": "stubborn:main"}, what=what)
    assert (outcome.status, outcome.progress.state) == (f"left {code}", state)


@pytest.mark.parametrize(("on_term", "status"), [("leave", "checkpointed_and_stopped"), ("ignore", "left 0")])
def test_a_program_that_handles_sigterm_may_save_its_state_and_is_not_finished(job, on_term, status):
    outcome = job.run(spec={"entry": "stubborn:main"}, what="stop", on_term=on_term)
    assert (outcome.status, outcome.progress.state) == (status, "checkpointed_and_stopped")
    assert (job.folder / "outputs" / "saved").read_text() == "mine"


def test_a_program_whose_lease_has_lapsed_gets_no_time_to_save(job):
    outcome = job.run(spec={"entry": "stubborn:main"}, what="lease", on_term="ignore")
    assert outcome.progress.state == "fenced"
    assert not (job.folder / "outputs" / "saved").exists()


def test_a_notice_that_is_far_off_lets_a_program_go_on(job):
    outcome = job.run(spec={"entry": "stubborn:main"}, what="far notice")
    assert outcome.status == "finished"


def test_the_command_line_runs_a_spec_without_any_orchestrator(job):
    job.generation = 1
    spec = job.spec(entry="odd:shows_what_is_deterministic")
    path = job.folder / "spec.json"
    spec.save(path)
    command = [sys.executable, "-m", "trainers.runner", str(path), "--standalone"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("finished: ")
    assert done.stdout == ""
    assert ControlDirectory(spec.control_dir).progress().manifest == "1-3-1"
    assert store.fence(job.root, job.job_id) == store.Fence(1, None)
    log = (ControlDirectory(spec.control_dir).path.parent / "log").read_text()
    assert "deterministic: True True, compiler loaded before: False\n" in log


@pytest.mark.parametrize("wanted", [True, False])
def test_a_run_is_deterministic_if_its_job_wants_that_also_where_the_compiler_is_loaded(job, wanted):
    outcome = job.run(spec={"entry": "odd:shows_what_is_deterministic", "deterministic": wanted})
    assert f"deterministic: {wanted} {wanted}, compiler loaded before: True\n" in outcome.log


@pytest.mark.parametrize(("steps", "due"), [(10, "begin"), (None, "None")])
def test_a_program_that_has_steps_is_expected_to_begin_with_them(job, steps, due):
    outcome = job.run(spec={"entry": "odd:tells_what_is_due", "steps": steps})
    assert f"due: {due}\n" in outcome.log
