"""A job that is killed, again and again, ends with the same losses and the same weights, bit for bit."""

import dataclasses
import json
import random
import shutil

import pytest

from tests.unit.trainers.conftest import Job
from trainers.checkpoint import store
from trainers.checkpoint.manifest import Manifest, ManifestName


def assert_equal_bits(outcomes, uninterrupted):
    """Every step that was ever run has the reference's loss; the last run has its weights."""
    seen = {}
    for outcome in outcomes:
        for step, loss in outcome.losses.items():
            assert loss == uninterrupted.losses[step], f"step {step}"
        seen |= outcome.losses
    assert seen.keys() == uninterrupted.losses.keys()
    assert outcomes[-1].status == "finished", outcomes[-1].log
    assert outcomes[-1].progress.weights_hash == uninterrupted.progress.weights_hash


def test_the_reference_exercises_what_it_must(uninterrupted):
    assert len(uninterrupted.losses) == 40
    assert uninterrupted.progress.step == uninterrupted.progress.total_steps == 40
    assert uninterrupted.progress.manifest == "1-40-1"
    assert len(set(uninterrupted.losses.values())) == 40


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kills_at_random_steps_change_no_bit(job, uninterrupted, seed):
    numbers = random.Random(seed)
    outcomes = [job.run(kill_after_step=step) for step in sorted(numbers.sample(range(2, 40), 3))]
    assert {outcome.status for outcome in outcomes} == {"killed 9"}
    outcomes.append(job.run())
    assert outcomes[-1].progress.start_step > 0
    assert_equal_bits(outcomes, uninterrupted)


def test_machines_whose_wall_clocks_are_an_hour_wrong_lose_nothing(job, uninterrupted):
    """One ahead, one behind: file times determine neither the newest checkpoint nor what may be deleted."""
    outcomes = [
        job.run(clock_off_s=3600.0, kill_after_step=14, spec={"keep": 2}),
        job.run(clock_off_s=-3600.0, kill_after_step=27, spec={"keep": 2}),
        job.run(clock_off_s=3600.0, spec={"keep": 2}),
    ]
    manifests = (job.root / job.job_id / "manifests").iterdir()
    assert min(abs(file.stat().st_mtime - job.folder.stat().st_mtime) for file in manifests) > 3000.0
    assert [outcome.progress.start_step > 0 for outcome in outcomes] == [False, True, True]
    assert_equal_bits(outcomes, uninterrupted)


def test_the_number_of_loader_workers_may_change_between_runs(job, uninterrupted):
    assert_equal_bits([job.run(kill_after_step=21), job.run(workers=2)], uninterrupted)


def test_a_kill_between_any_two_durable_writes_of_a_save_loses_no_committed_checkpoint(job, uninterrupted):
    outcomes, steps = [], [0]
    for point in range(4, 14):  # the first three syncs are those of the start; a save makes six, with two links
        outcomes.append(job.run(kill_at_sync=point))
        assert outcomes[-1].status == "killed 9"
        newest = store.newest_counting(job.root, job.job_id, job.generation, on_damage=pytest.fail)
        steps.append(0 if newest is None else ManifestName.parse(newest).step)
        assert steps[-1] >= outcomes[-1].progress.manifest_step
    assert steps == sorted(steps)
    assert 0 < steps[-1] < 40
    outcomes.append(job.run())
    assert_equal_bits(outcomes, uninterrupted)


ITEMS = ["model", "optimizer", "scheduler", "scaler", "averaged", "python", "numpy", "torch", "loader"]
BUFFERS = ["model.1.running_mean", "model.1.running_var", "model.1.num_batches_tracked"]
ELSEWHERE = {"extra", "rng", "cuda", "given", "transient"}
"""What contains others of these, needs a GPU, or is left out below."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory, nursery):
    """A job that was killed after some checkpoints."""
    job = Job(tmp_path_factory.mktemp("killed"), nursery)
    assert job.run(kill_after_step=27).status == "killed 9"
    return job


def test_each_saved_item_is_one_that_is_left_out(killed):
    manifest = store.read_manifest(killed.root, killed.job_id, store.manifests(killed.root, killed.job_id)[-1])
    held = {*manifest.items, *manifest.items["rng"], *manifest.items["extra"], *manifest.position}
    assert held - {"steps_done", "epochs_done"} == {*ITEMS, *ELSEWHERE}


@pytest.mark.parametrize("component", [*ITEMS, *BUFFERS])
def test_one_stale_item_in_a_checkpoint_shows_in_the_losses(tmp_path, killed, uninterrupted, component):
    shutil.copytree(killed.folder, tmp_path, dirs_exist_ok=True)
    job = dataclasses.replace(killed, folder=tmp_path)
    names = store.manifests(job.root, job.job_id)
    assert len(names) >= 4
    swap_item(job, component, names[-1], names[0])
    outcome = job.run()
    assert outcome.status == "finished", outcome.log
    assert outcome.progress.start_step == names[-1].step
    with pytest.raises(AssertionError):
        assert_equal_bits([dataclasses.replace(uninterrupted), outcome], uninterrupted)


# What no state_dict holds


@pytest.mark.parametrize(
    ("clear", "kills"), [("after", (7, 18)), ("before", (6, 25)), ("in place", (9,)), ("never", (11,))]
)
def test_gradients_in_flight_buffers_data_sets_and_generators_are_as_they_were(keeping, kept, clear, kills):
    outcomes = [keeping.run(clear=clear, kill_after_step=step) for step in kills]
    assert {outcome.status for outcome in outcomes} == {"killed 9"}, outcomes[0].log
    outcomes.append(keeping.run(clear=clear))
    assert all(outcome.progress.start_step % 4 for outcome in outcomes[1:]), "in the middle of an accumulation"
    assert_equal_bits(outcomes, kept[clear])


@pytest.mark.parametrize("kill", [21, 22])
def test_a_program_that_clears_every_second_step_is_resumed_exactly(keeping, kept, kill):
    outcomes = [keeping.run(clear="second", kill_after_step=kill), keeping.run(clear="second")]
    assert_equal_bits(outcomes, kept["second"])


def test_layers_that_were_frozen_on_the_way_stay_frozen(keeping, kept):
    outcomes = [keeping.run(modes=True, kill_after_step=14), keeping.run(modes=True)]
    assert outcomes[1].progress.start_step > 6
    assert_equal_bits(outcomes, kept["modes"])


def test_a_program_that_keeps_its_gradients_only_later_is_resumed_exactly_or_refused(keeping, kept):
    """It drops used gradients up to step 20, so that they are not saved, and adds to them from then on."""
    ends = set()
    for step in range(19, 24):
        job = dataclasses.replace(keeping, folder=keeping.folder / str(step))
        job.folder.mkdir()
        outcomes = [job.run(clear="later", kill_after_step=step), job.run(clear="later")]
        ends.add(outcomes[-1].status)
        if outcomes[-1].status == "failed":
            assert "reuses gradients that its optimizer has used" in outcomes[-1].progress.error
            assert outcomes[-1].progress.manifest_step == outcomes[-1].progress.start_step, "nothing was committed"
        else:
            assert_equal_bits(outcomes, kept["later"])
    assert ends == {"finished", "failed"}


@pytest.mark.parametrize(
    "component",
    ["gradients", "buffers", "loose", "kept", "aliases", "best", "noise", "python_noise", "numpy_noise", "rng_noise"],
)
def test_one_stale_item_that_no_state_dict_holds_shows_in_the_losses(keeping, kept, component):
    keeping.run(clear="after", kill_after_step=19)
    names = store.manifests(keeping.root, keeping.job_id)
    assert names[-1].step % 4
    swap_item(keeping, component, names[-1], names[0])
    outcome = keeping.run(clear="after")
    assert outcome.status == "finished", outcome.log
    assert outcome.progress.start_step == names[-1].step
    with pytest.raises(AssertionError):
        assert_equal_bits([dataclasses.replace(kept["after"]), outcome], kept["after"])


def test_used_gradients_are_not_saved_once_the_program_was_seen_to_drop_them(keeping):
    keeping.run(clear="later", kill_after_step=15)
    saved = []
    for name in store.manifests(keeping.root, keeping.job_id):
        transient = store.read_manifest(keeping.root, keeping.job_id, name).items["transient"]
        saved.append((len(transient["gradients"]), len(transient["spent"])))
    assert saved[0] == (6, 0), "not seen yet"
    assert saved[-1] == (0, 6)
    assert saved == sorted(saved, reverse=True)


def test_a_data_set_that_remembers_in_silence_is_refused_at_the_first_step(keeping):
    outcome = keeping.run(forgetful=True)
    assert outcome.status == "failed"
    assert "changed dataset.calls" in outcome.progress.error
    assert "give its class state_dict() and load_state_dict()" in outcome.progress.error
    assert outcome.losses == {}


def swap_item(job, component, name, older_name):
    """Rewrite a manifest with one item of an older checkpoint, as if the saving code had forgotten it."""
    manifest = store.read_manifest(job.root, job.job_id, name)
    older = store.read_manifest(job.root, job.job_id, older_name)
    moved = json.loads(json.dumps({**older.items, "loader": older.position["loader"]}))
    shift(moved, len(manifest.tensors))
    items, position = dict(manifest.items), dict(manifest.position)
    if component == "loader":
        position["loader"] = moved["loader"]
    elif component == "kept":
        position["loader"] = {**position["loader"], "kept": moved["loader"]["kept"]}
    elif component in ("gradients", "buffers", "loose"):
        items["transient"] = {**items["transient"], component: moved["transient"][component]}
    elif component in items.get("extra", {}):
        items["extra"] = {**items["extra"], component: moved["extra"][component]}
    elif component.startswith("model."):
        stale, buffer = dict(moved["model"]["v"]), component.removeprefix("model.")
        pairs = [[key, stale[key] if key == buffer else node] for key, node in items["model"]["v"]]
        items["model"] = {**items["model"], "v": pairs}
    elif component in ("python", "numpy", "torch"):
        items["rng"] = {**items["rng"], component: moved["rng"][component]}
    else:
        items[component] = moved[component]
    tensors = manifest.tensors + older.tensors
    changed: Manifest = dataclasses.replace(manifest, items=items, position=position, tensors=tensors)
    path = job.root / job.job_id / "manifests" / f"{name}.json"
    path.write_bytes(changed.to_bytes())


def shift(node, places):
    for child in node.values() if isinstance(node, dict) else node:
        if isinstance(child, dict | list):
            shift(child, places)
    if isinstance(node, dict) and node.get("$") in ("tensor", "array", "scalar", "bytes"):
        node["v"] += places
