"""Ten task files as SkyPilot's users write them: what becomes a job file, with notes on the rest.

The files are ours, written by the documentation of the tools.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from orchestrator.errors import SpecError, UsageError
from orchestrator.jobfile import load_job
from orchestrator.jobfile.convert.task_file import convert_file, write_conversion
from providers.hardware import GIB
from tests.unit.jobfile.conftest import FILES, converted, said

TASKS = sorted(path.name for path in FILES.glob("*.yaml"))
OPEN = {"multinode.yaml", "pipeline_in_run.yaml", "loop.yaml"}


@pytest.mark.parametrize("name", TASKS)
def test_each_task_file_becomes_a_job_file_or_one_with_a_marked_place_to_fill_in(project: Path, name: str) -> None:
    conversion = convert_file(project / name)
    assert yaml.safe_load(conversion.text).keys() == conversion.job.keys()
    assert conversion.text.startswith("# Converted by")
    assert name in conversion.text.splitlines()[0]
    wrong = [problem for problem in conversion.problems if not problem.unsupported]
    assert [problem.field for problem in wrong] == (["train"] if name in OPEN else [])
    assert ("FILL IN" in conversion.text) == (name in OPEN)
    if name not in OPEN:
        (project / "job.yaml").write_text(conversion.text)
        assert load_job(project / "job.yaml").name == conversion.job["name"]


@pytest.mark.parametrize("name", TASKS)
def test_every_note_names_a_line_of_the_file_that_is_about_its_field(project: Path, name: str) -> None:
    lines = (project / name).read_text().splitlines()
    for note in convert_file(project / name).notes:
        last = note.field.rsplit(".", 1)[-1].partition("[")[0]
        if note.field in ("run", "setup", "workdir") or last not in "\n".join(lines):
            assert 1 <= note.line <= len(lines)
        else:
            assert last in lines[note.line - 1], str(note)


def test_there_are_ten_of_them() -> None:
    assert len(TASKS) == 10


# Mistake 1: secrets in clear, or given at launch.
def test_no_value_of_a_secret_is_copied_or_repeated(project: Path) -> None:
    for name, secret, variable in (
        ("finetune.yaml", "0123456789abcdef", "WANDB_API_KEY"),
        ("instance.yaml", "hf_abcdef", "HF_TOKEN"),
        ("instance.yaml", "hunter2", "PASSWORD"),
        ("loop.yaml", "abcdef", None),
    ):
        conversion = convert_file(project / name)
        assert secret not in conversion.text + "\n".join(map(str, conversion.notes))
        assert variable is None or variable in conversion.job["train"]["secrets"]
    assert "HF_TOKEN" in convert_file(project / "finetune.yaml").job["train"]["secrets"]


def test_a_number_is_not_a_secret_and_a_password_in_a_command_is_masked(project: Path) -> None:
    text = """\
envs: {MAX_TOKEN: 2048, MAX_TOKENS: 4096}
run: |
  git clone https://me:hunter2@host/repo
  wandb login hunter2
  tool --api-key hunter2
"""
    conversion = converted(project, text)
    assert conversion.job["train"]["env"] == {"MAX_TOKEN": "2048", "MAX_TOKENS": "4096"}
    assert "hunter2" not in conversion.text + "\n".join(map(str, conversion.notes))


def test_an_export_that_needs_the_machine_is_left_to_the_reader(project: Path) -> None:
    conversion = converted(project, "run: |\n  export PATH=$PATH:/opt/x\n  python --version\n  python code/train.py\n")
    assert "$PATH" in said(conversion, "run")
    assert "FILL IN" in conversion.text


# Mistake 2: what YAML 1.1 and 1.2 read differently.
def test_values_are_those_that_skypilot_would_pass_on(project: Path) -> None:
    train = convert_file(project / "finetune.yaml").job["train"]
    assert train["env"] == {"MODEL_NAME": "meta-llama/Llama-2-7b", "LEARNING_RATE": "1e-4", "VERBOSE": "True"}
    assert train["args"][2:] == ["--learning_rate", "3e-4", "--max_steps", "5000", "--bf16", "--output_dir", "out"]
    assert train["steps"] == 5000
    job = convert_file(project / "instance.yaml").job
    assert job["train"]["args"] == {"layers": "0x10", "version": "1.10", "steps": 300}
    assert job["capacity"] == ["on_demand"]


# Mistake 3: a unit of 1024 taken for one of 1000, and "exactly" for "at least".
def test_memory_is_counted_as_skypilot_does(project: Path) -> None:
    conversion = convert_file(project / "instance.yaml")
    assert conversion.job["resources"]["memory"] == "512 GiB"
    assert "at least" in said(conversion, "resources.memory")
    (project / "job.yaml").write_text(conversion.text)
    assert load_job(project / "job.yaml").resources.memory_bytes == 512 * GIB


# Mistake 4: alternatives, their order, clouds that are none here, and on-demand by default.
def test_alternatives_become_lists_and_what_is_lost_is_reported(project: Path) -> None:
    conversion = convert_file(project / "candidates.yaml")
    assert conversion.job["resources"] == {"gpu": ["A10G", "L4"], "cpu": 8, "memory": "32 GiB"}
    assert conversion.job["capacity"] == ["spot", "on_demand"]
    assert conversion.job["where"] == {"clouds": ["aws", "gcp"]}
    assert conversion.job["retries"] == 3
    assert "order is not kept" in said(conversion, "resources.ordered")
    assert "every combination" in said(conversion, "resources.ordered")
    assert "us-east-1a" not in conversion.text
    assert "to do" in said(conversion, "resources.ordered[2].infra")
    assert "on_demand" in said(convert_file(project / "torchrun.yaml"), "resources")


def test_a_cloud_that_is_unknown_opens_no_other_one(project: Path) -> None:
    for infra, kept in (("k8s/my-context", "k8s"), ("kubernetes", "kubernetes"), ("vast", "vast")):
        conversion = converted(project, f"resources: {{infra: {infra}}}\nrun: python code/train.py\n")
        assert conversion.job["where"] == {"clouds": [kept]}


# Mistake 5: buckets, volumes and places that are written to.
def test_mounts_become_data_or_a_note(project: Path) -> None:
    conversion = convert_file(project / "buckets.yaml")
    assert conversion.job["data"] == [
        {"source": "s3://my-set/tokens", "mount": "/data/set"},
        {"source": "../corpus", "mount": "/data/local"},
        {"source": "gs://models/base", "mount": "/models"},
    ]
    for field, word in (
        ("file_mounts.~/config", "absolute"),
        ("file_mounts./data/r2", "r2://"),
        ("file_mounts./checkpoints", "checkpoint.to"),
        ("file_mounts./outputs-${SIZE}", "outputs"),
        ("file_mounts./mnt/disk", "volumes"),
        ("file_mounts./data/set", "not supported yet"),
    ):
        assert word in said(conversion, field), field


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python code/train.py --steps 10 --ckpt-dir /checkpoints/gpt", "--ckpt-dir"),
        ("python code/train.py --steps=10 --ckpt-dir=/checkpoints --fast", "--ckpt-dir"),
        ("python code/train.py trainer.dir=/checkpoints/gpt", "argument trainer.dir=/checkpoints/gpt"),
        ("python code/train.py /checkpoints", "argument /checkpoints"),
    ],
)
def test_an_argument_with_the_path_of_a_mount_that_is_left_out_is_to_do(project: Path, command: str, name: str) -> None:
    mounts = "file_mounts: {/checkpoints: {name: ck, store: s3, mode: MOUNT}}\n"
    conversion = converted(project, f"{mounts}run: |\n  nvidia-smi\n  {command}\n")
    (note,) = [each for each in conversion.notes if "/checkpoints is not mounted" in each.message]
    assert (note.field, note.line, note.outcome) == ("run", 4, "to do")
    assert note.message == f"{name}: /checkpoints is not mounted in a job"
    assert 'os.environ["TRADEWIND_CHECKPOINT_DIR"]' in note.hint
    assert f"# To do, run on line 4: {name}: /checkpoints is not mounted in a job" in conversion.text


def test_other_paths_that_are_not_mounted_are_to_do_too_and_no_others(project: Path) -> None:
    text = (
        "envs: {LOGS: /outputs/logs, DATA: /outputs-of-others}\n"
        "file_mounts:\n  /outputs: {store: s3, name: b}\n  /data: /data\n"
        "volumes: {/mnt/vol: disk}\n"
        "run: python code/train.py --data /data/set --cache /mnt/vol/cache --more /outputs2\n"
    )
    found = [each.message for each in converted(project, text).notes if "is not mounted in a job" in each.message]
    assert found == ["$LOGS: /outputs is not mounted in a job", "--cache: /mnt/vol is not mounted in a job"]
    volumes = "volumes: [disk:/ck, {name: other, path: /vol}]"
    text = f"type: task\n{volumes}\ncommands: [python code/train.py --to /ck/a --log /vol]\n"
    found = [each.message for each in converted(project, text, ".dstack.yml").notes if "in a job" in each.message]
    assert found == ["--to: /ck is not mounted in a job", "--log: /vol is not mounted in a job"]


@pytest.mark.parametrize("kind", [".dstack.yml", ".yaml"])
def test_the_remedy_for_the_path_of_a_volume_fits_what_it_may_hold(project: Path, kind: str) -> None:
    command = "python code/train.py --in /data --to /ckpt/a --log /results"
    text = {
        ".dstack.yml": f"type: task\nvolumes: [a:/data, b:/ckpt, c:/results]\ncommands: [{command}]\n",
        ".yaml": f"volumes: {{/data: a, /ckpt: b, /results: c}}\nrun: {command}\n",
    }[kind]
    data, saved, results = [each for each in converted(project, text, kind).notes if "in a job" in each.message]
    assert "copy the data to this machine" in data.hint
    assert "TRADEWIND_OUTPUT_DIR" in data.hint
    assert "TRADEWIND_CHECKPOINT_DIR" in saved.hint
    assert results.hint == 'let the program write results to os.environ["TRADEWIND_OUTPUT_DIR"]'


# Mistake 10: misspelt fields, anchors, files that are no task.
def test_a_misspelt_field_is_reported_with_what_was_meant(project: Path) -> None:
    conversion = convert_file(project / "misspelt.yaml")
    assert 'did you mean "accelerators"?' in said(conversion, "resources.accelerator")
    assert "left out" in said(conversion, "enviroment")
    assert conversion.job["where"] == {"clouds": ["gcp"]}  # from the anchor


@pytest.mark.parametrize(
    ("text", "name", "word"),
    [
        ("service: {readiness_probe: /}\nrun: python x.py\n", "task.yaml", "service"),
        ("name: p\n---\nrun: a\n---\nrun: b\n", "task.yaml", "several tasks"),
        ("type: dev-environment\nide: vscode\n", ".dstack.yml", "dev-environment"),
        ("name: x\ntrain: {entry: a:b, steps: 1}\n", "task.yaml", "not a task file"),
        ("- run\n", "task.yaml", "not a task file"),
        ("run: [\n", "task.yaml", "not valid YAML"),
        ("run: !!python/object:os.system x\n", "task.yaml", "tag"),
        ("run: a\nrun: b\n", "task.yaml", "duplicate"),
        ("run: &a [*a]\n", "task.yaml", "too large"),
    ],
)
def test_what_is_not_a_task_is_refused_with_its_place(project: Path, text: str, name: str, word: str) -> None:
    with pytest.raises(SpecError, match=word) as raised:
        converted(project, text, name)
    assert all(problem.path.endswith(name) for problem in raised.value.problems)


# The result, and our own parser


def test_paths_are_relative_to_the_job_file_wherever_that_is(project: Path) -> None:
    conversion = convert_file(project / "buckets.yaml", project / "code" / "job.yaml")
    assert conversion.job["train"]["workdir"] == "."
    assert conversion.job["data"][1]["source"] == "../../corpus"


def test_a_file_is_overwritten_only_on_demand(project: Path) -> None:
    conversion = convert_file(project / "instance.yaml")
    write_conversion(conversion, project / "job.yaml")
    with pytest.raises(UsageError, match="exists already"):
        write_conversion(conversion, project / "job.yaml")
    write_conversion(conversion, project / "job.yaml", force=True)
    with pytest.raises(UsageError, match="cannot be written"):
        write_conversion(conversion, project / "no" / "job.yaml")


@pytest.mark.parametrize(
    ("name", "text", "tool"),
    [
        ("finetune.yaml", None, "SkyPilot"),
        ("pipeline.yaml", "name: p\n---\nrun: a\n", "SkyPilot"),
        ("bare.yaml", "resources: {accelerators: H100}\n", "SkyPilot"),
        ("my task.dstack.yml", "commands: [ls]\n", "dstack"),
        ("task.yml", "type: task\ncommands: [ls]\n", "dstack"),
    ],
)
def test_a_job_file_of_another_tool_is_named_with_the_way_out(
    project: Path, name: str, text: str | None, tool: str
) -> None:
    if text is not None:
        (project / name).write_text(text)
    with pytest.raises(SpecError, match=rf"task file of {tool}.*tradewind convert ") as raised:
        load_job(project / name)
    assert len(raised.value.problems) == 1


@pytest.mark.parametrize(
    "text",
    [
        "name: x\ntrian: {entry: train:main}\nresources: {gpu: H100}\n",
        "name: x\nworkdir: .\nsetup: x\nenv: {A: b}\nsteps: 5\n",
        "name: x\nresources: {memory: 64 GB, cpu: 4}\n",
        "name: x\nrun: y\ntrain: {entry: train:main}\n",
    ],
)
def test_a_mistake_in_our_own_file_is_not_taken_for_another_tool(project: Path, text: str) -> None:
    (project / "job.yaml").write_text(text)
    with pytest.raises(SpecError) as raised:
        load_job(project / "job.yaml")
    assert "convert" not in str(raised.value)


def test_the_page_shows_what_the_converter_does(project: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "coming-from-skypilot.md").read_text()
    skypilot, dstack, job = (block.partition("```")[0] for block in page.split("```yaml\n")[1:])
    assert converted(project, skypilot).job == yaml.safe_load(job)
    assert converted(project, skypilot).text.endswith(job)
    assert converted(project, dstack, ".dstack.yml").job["train"] == yaml.safe_load(job)["train"]


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("num_nodes: .nan", "num_nodes"),
        ("num_nodes: -1", "num_nodes"),
        ("envs: [1]", "envs"),
        ("secrets: x", "secrets"),
        ("file_mounts: [a]", "file_mounts"),
        ("workdir: 5", "workdir"),
        ("resources: A100", "resources"),
        ("resources: {use_spot: maybe}", "resources.use_spot"),
        ("resources: {any_of: [A100]}", "resources.any_of"),
        ("resources: {ordered: 3}", "resources.ordered"),
        ("resources: {labels: x}", "resources.labels"),
        ("resources: {region: [a]}", "resources.region"),
        ("resources: {job_recovery: 5}", "resources.job_recovery"),
        (
            "resources: {job_recovery: {max_restarts_on_errors: many}}",
            "resources.job_recovery.max_restarts_on_errors",
        ),
        ("resources: {any_of: [{use_spot: 1}]}", "resources.any_of[0].use_spot"),
    ],
)
def test_a_value_of_skypilot_that_says_nothing_is_noted(project: Path, line: str, field: str) -> None:
    assert "left out: is n" in said(converted(project, f"{line}\nrun: python code/train.py\n"), field)
