"""Ten task files as SkyPilot's users write them, and some of dstack: what becomes a job file, with notes on the rest.

The files are ours, written by the documentation of the tools.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from orchestrator.errors import SpecError, UsageError
from orchestrator.jobfile import load_job
from orchestrator.jobfile.convert.task_file import Conversion, convert_file, write_conversion
from providers.hardware import GIB

FILES = Path(__file__).parent / "task_files"
TASKS = sorted(path.name for path in FILES.glob("*.yaml"))
OPEN = {"multinode.yaml", "pipeline_in_run.yaml", "loop.yaml"}

PROGRAMS = {
    "train.py": "import trainers\n\n\ndef main():\n    trainers.attach()\n\n\nmain()\n",
    "finetune.py": "from transformers import HfArgumentParser\n\nparser = HfArgumentParser()\n",
    "pkg/cli.py": "def main(layers: str, version: str, steps: int = 1) -> None:\n    pass\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The ten task files, beside the code that they name."""
    folder = Path(shutil.copytree(FILES, tmp_path / "project"))
    for name, source in PROGRAMS.items():
        (folder / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "code" / name).write_text(source)
    (tmp_path / "corpus").mkdir()
    return folder


def said(conversion: Conversion, field: str) -> str:
    """The notes about a field, one per line."""
    return "\n".join(str(note) for note in conversion.notes if note.field == field)


def converted(folder: Path, text: str, name: str = "task.yaml") -> Conversion:
    (folder / name).write_text(text)
    return convert_file(folder / name)


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


# Mistake 6: several processes or machines taken for one.
def test_a_program_for_torchrun_keeps_its_number_of_processes_and_machines(project: Path) -> None:
    conversion = convert_file(project / "torchrun.yaml")
    assert "started once per process" in said(conversion, "run")
    assert conversion.job["train"]["script"] == "train.py"
    assert "processes" not in conversion.job["resources"]  # one per GPU is the default
    for gpus, nodes, options, processes in (
        ("A10G", 1, "", 1),
        ("A10G:4", 1, "--nproc-per-node 2", 2),
        ("A10G:4", 2, "--nnodes $SKYPILOT_NUM_NODES --node_rank $SKYPILOT_NODE_RANK --nproc-per-node gpu", None),
        ("A10G:4", 3, "--nnodes=3 --nproc_per_node=1 --master_addr $SKYPILOT_HEAD", 1),
    ):
        text = f"resources: {{accelerators: {gpus}}}\nnum_nodes: {nodes}\nrun: torchrun {options} code/train.py\n"
        job = converted(project, text).job
        assert job["train"]["script"] == "code/train.py"
        assert (job["resources"].get("nodes", 1), job["resources"].get("processes")) == (nodes, processes), text


@pytest.mark.parametrize("options", ["--nnodes 2", "--nproc_per_node $HOW_MANY", "--nnodes 1:4"])
def test_a_launcher_of_who_knows_how_many_processes_is_asked_about(project: Path, options: str) -> None:
    conversion = converted(project, f"run: torchrun {options} code/train.py\n")
    assert not {"script", "entry"} & conversion.job["train"].keys()
    assert "FILL IN" in conversion.text


def test_several_machines_start_the_program_themselves(project: Path) -> None:
    multi = convert_file(project / "multinode.yaml")
    assert multi.job["resources"]["nodes"] == 2
    assert "started once per process" in said(multi, "num_nodes")


@pytest.mark.parametrize(
    "command",
    [
        "torchrun code/train.py --lr 0.1",
        "torchrun --standalone --nproc_per_node=1 code/train.py --lr 0.1",
        "torchrun --nnodes 1 --nproc-per-node $SKYPILOT_NUM_GPUS_PER_NODE code/train.py --lr 0.1",
        "python -m torch.distributed.run --nproc_per_node gpu code/train.py --lr 0.1",
        "python3 -u code/train.py --lr=0.1 > log 2>&1",
        "uv run python ./code/train.py --lr 0.1",
        "time python code/train.py --lr 0.1 | tee -a log",
        'echo "begin (now: $(date)); go"\n  python code/train.py --lr 0.1',
        "echo begin && python code/train.py --lr 0.1; echo end",
        "cd code && python ../code/train.py --lr 0.1",
    ],
)
def test_one_process_is_one_program_however_it_is_started(project: Path, command: str) -> None:
    conversion = converted(project, f"resources: {{accelerators: A10G}}\nrun: |\n  {command}\n")
    train = conversion.job["train"]
    assert (train["workdir"], train["script"]) in ((".", "code/train.py"), ("code", "../code/train.py"))
    assert train["args"] == {"lr": 0.1}


# Mistake 7: a script that prepares its machine, or runs two programs.
def test_what_prepares_the_machine_becomes_its_set_up(project: Path) -> None:
    conversion = convert_file(project / "finetune.yaml")
    assert conversion.job["train"]["setup"] == "pip install -r requirements.txt"
    assert "train.setup" in said(conversion, "setup")
    text = """\
setup: |
  sudo apt-get install -y ffmpeg   # sound
  pip install -r requirements.txt

  for i in 1 2; do echo $i; done
run: |
  pip install --upgrade 'tqdm>=4' && python code/train.py
"""
    conversion = converted(project, text)
    (project / "job.yaml").write_text(conversion.text)
    wanted = load_job(project / "job.yaml").train.setup
    assert wanted is not None
    assert wanted.command is not None
    assert wanted.command.splitlines() == [
        "sudo apt-get install -y ffmpeg   # sound",
        "pip install -r requirements.txt",
        "for i in 1 2; do echo $i; done",
        "pip install --upgrade 'tqdm>=4'",
    ]
    assert "setup: |-" in conversion.text
    assert "FILL IN" not in conversion.text


def test_what_prepares_more_than_the_machine_is_to_be_done_by_its_owner(project: Path) -> None:
    conversion = convert_file(project / "pipeline_in_run.yaml")
    notes = said(conversion, "run")
    assert "conda activate research" in notes
    assert "git clone" in notes
    assert "one program" in notes
    secret = converted(project, "setup: pip install x && wandb login 0123abcd\nrun: python code/train.py\n")
    assert "0123abcd" not in secret.text
    assert "to do" in said(secret, "setup")
    assert "conda" in said(converted(project, "setup: conda install x\nrun: python code/train.py\n"), "setup")


# Mistake 8: arguments that a job file cannot say.
@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ("--out $OUT", "$OUT"),
        ("--out ${OUT:-x}", "$..."),
        ("--data ~/set", "~/set"),
        ("--files *.csv", "*.csv"),
        ("--files {a,b}.csv", "{a,b}.csv"),
        ('--name "$(hostname)"', "plain commands"),
        ('--price "$5"', "$..."),
        ("--name $(hostname)", "plain commands"),
        ("--lr 0.1 &", "plain commands"),
        ("--lr 'open", "plain commands"),
    ],
)
def test_an_argument_that_would_reach_the_program_otherwise_is_left_to_the_reader(
    project: Path, arguments: str, word: str
) -> None:
    conversion = converted(project, f"run: |\n  python code/train.py {arguments}\n")
    assert word in said(conversion, "run")
    assert f"python code/train.py {arguments}" in conversion.text
    assert not {"script", "entry", "args"} & conversion.job["train"].keys()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("50 10", ["50", "10"]),
        ("fit -b 32", ["fit", "-b", "32"]),
        ("--layers 1 2 3", ["--layers", "1", "2", "3"]),
        ("--lr 1e-1 --lr 0.2", ["--lr", "1e-1", "--lr", "0.2"]),
        ("--compile", ["--compile"]),
        ("--colour '#fff' -q", ["--colour", "#fff", "-q"]),
        ("""--price '$5' "a  b" 'it'"'"'s'""", ["--price", "$5", "a  b", "it's"]),
        ("--rule 'x > y' --rule 'y | z; `x`'", ["--rule", "x > y", "--rule", "y | z; `x`"]),
        ("--sep ';' '~' '*.csv' '{a,b}'", ["--sep", ";", "~", "*.csv", "{a,b}"]),
        ('-x "(1 & 2) # 3"', ["-x", "(1 & 2) # 3"]),
        ("-x \"$MODE;\" '$MODE'", ["-x", "fast;", "$MODE"]),
    ],
)
def test_arguments_without_a_name_or_a_value_become_a_list_of_the_same_words(
    project: Path, arguments: str, words: list[str]
) -> None:
    command = f"python code/train.py {arguments}"
    assert shlex.split(command.replace('"$MODE', '"fast'))[2:] == words  # as a shell would
    conversion = converted(project, yaml.safe_dump({"envs": {"MODE": "fast"}, "run": command}))
    assert conversion.job["train"]["args"] == words
    (project / "job.yaml").write_text(conversion.text)
    assert load_job(project / "job.yaml").train.argv == tuple(words)


def test_a_module_becomes_a_call_of_main_where_that_takes_the_arguments(project: Path) -> None:
    (project / "loop.py").write_text("def main(lr: float, mixed_precision: bool = False, steps: int = 5): pass\n")
    train = converted(project, "run: python -m loop --lr 0.1 --mixed-precision --steps 7\n").job["train"]
    assert train["entry"] == "loop:main"
    assert train["steps"] == 7
    assert train["args"] == {"lr": 0.1, "mixed_precision": True, "steps": 7}
    assert convert_file(project / "instance.yaml").job["train"]["entry"] == "pkg.cli:main"
    without = converted(project, "run: python -m loop --lr 0.1\n")
    assert "FILL IN" in without.text
    assert [each.field for each in without.problems] == ["train"]


def test_a_program_that_attaches_to_nothing_is_told_what_that_means(project: Path) -> None:
    (project / "plain.py").write_text("print('no checkpoints')\n")
    assert "trainers.attach" in said(converted(project, "run: python plain.py\n"), "run")
    assert "trainers.attach" not in said(converted(project, "run: python code/train.py\n"), "run")


# Mistake 9: machine types, TPUs, halves of a GPU.
def test_machines_are_named_by_their_gpus(project: Path) -> None:
    assert convert_file(project / "instance.yaml").job["resources"]["gpu"] == "A100-40GB:8"
    conversion = convert_file(project / "misspelt.yaml")
    assert conversion.job["resources"]["gpu"] == "T4"
    notes = said(conversion, "resources.accelerators")
    assert "tpu-v3-8" in notes
    assert 'did you mean "H100"?' in notes
    assert "whole" in notes


def test_an_unknown_gpu_does_not_become_a_job_without_gpus(project: Path) -> None:
    conversion = converted(project, "resources: {accelerators: tpu-v3-8}\nrun: python code/train.py\n")
    assert [problem.field for problem in conversion.problems] == ["resources.gpu"]


@pytest.mark.parametrize(
    ("accelerators", "gpu"),
    [
        ("H100:8", "H100:8"),
        ("A100", "A100-40GB"),
        ("{A100-80GB: 4}", "A100-80GB:4"),
        ("{L4:1, A10G:1}", ["L4", "A10G"]),
        ("['L4:1', 'H100:2']", ["L4", "H100:2"]),
        ('"{V100:1, A100:1}"', ["V100", "A100-40GB"]),
    ],
)
def test_accelerators_are_read_in_each_of_their_forms(project: Path, accelerators: str, gpu: object) -> None:
    conversion = converted(project, f"resources: {{accelerators: {accelerators}}}\nrun: python code/train.py\n")
    assert conversion.job["resources"]["gpu"] == gpu


# Mistake 10: misspelt fields, anchors, files that are no task.
def test_a_misspelt_field_is_told_with_what_was_meant(project: Path) -> None:
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


# dstack

DSTACK = """\
type: task
name: trl
python: 3.12
env:
  - HF_TOKEN
  - MODEL=Qwen
  - WANDB_API_KEY=${{ secrets.wandb }}
files:
  - code:code
  - ../corpus:/data
commands:
  - uv pip install trl
  - |
    python code/train.py \\
      --model $MODEL --lr 1e-4
resources:
  gpu: A100:80GB:2
  memory: 200GB..
  cpu: x86:16..32
  shm_size: 16GB
backends: [aws, datacrunch, vastai]
regions: [us-east-1]
spot_policy: auto
max_duration: 3h
max_price: 3.0
retry: {on_events: [no-capacity, interruption], duration: 1h}
"""


def test_a_task_of_dstack_is_converted_too(project: Path) -> None:
    conversion = converted(project, DSTACK, "train.dstack.yml")
    assert conversion.tool == "dstack"
    job = conversion.job
    assert job["train"] == {
        "script": "code/train.py",
        "args": {"model": "Qwen", "lr": 1e-4},
        "setup": "uv pip install trl",
        "python": "3.12",
        "workdir": ".",
        "env": {"MODEL": "Qwen"},
        "secrets": ["HF_TOKEN", "WANDB_API_KEY"],
    }
    assert job["resources"] == {"gpu": "A100-80GB:2", "memory": "200 GiB", "cpu": 16}
    assert job["capacity"] == ["spot", "on_demand"]
    assert job["where"] == {"clouds": ["aws", "verda"], "regions": ["us-east-1"]}
    assert (job["retries"], job["max_duration"]) == (0, "3h")
    assert job["data"] == [{"source": "../corpus", "mount": "/data"}]
    for field in ("python", "resources.shm_size", "backends[2]", "max_price", "retry.duration", "commands"):
        assert said(conversion, field), field
    assert [problem.field for problem in conversion.problems] == ["data[0].mount"]


@pytest.mark.parametrize(
    ("gpu", "asked"),
    [
        ("H100:8", "H100:8"),
        ("A100", ["A100-40GB", "A100-80GB"]),
        ("A100:40GB", "A100-40GB"),
        ("A10G,L4", ["A10G", "L4"]),
        ("nvidia:H200:2", "H200:2"),
        ("{name: [H100], count: 2}", "H100:2"),
        ("H100:1..2", "H100"),
        ("140GB..150GB:2", ["H200:2", "H200-NVL:2"]),
    ],
)
def test_the_gpus_of_dstack_are_read_in_each_of_their_forms(project: Path, gpu: str, asked: object) -> None:
    text = f"type: task\ncommands: [python code/train.py]\nresources: {{gpu: {gpu if '{' in gpu else repr(gpu)}}}\n"
    assert converted(project, text, ".dstack.yml").job["resources"]["gpu"] == asked


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


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("nodes: .inf", "nodes"),
        ("env: 5", "env"),
        ("resources: A100", "resources"),
        ("spot_policy: maybe", "spot_policy"),
        ("backends: aws", "backends"),
        ("regions: us-east-1", "regions"),
        ("instance_types: p4d", "instance_types"),
        ("retry: often", "retry"),
        ("max_duration: [3]", "max_duration"),
        ("tags: x", "tags"),
        ("working_dir: [a]", "working_dir"),
    ],
)
def test_a_value_of_dstack_that_says_nothing_is_noted(project: Path, line: str, field: str) -> None:
    text = f"type: task\n{line}\ncommands:\n  - python code/train.py\n"
    assert "left out: is n" in said(converted(project, text), field)


@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("python code/train.py && echo done > out.txt", "to do: python code/train.py && echo done > out.txt: a job"),
        ("hostname >> host.txt\npython code/train.py", "to do: hostname >> host.txt: a job file cannot write files"),
        ("> made.txt\npython code/train.py", "to do: > made.txt: a job file cannot write files"),
        (
            "curl http://h/x > x.bin\npython code/train.py",
            "to do: curl http://h/x > x.bin: prepares the",
        ),
        ("python code/train.py > log.txt 2>&1", "left out: the log is not written to this file"),
        ("python code/train.py 2>/dev/null >&2", ""),
        ("date > /dev/null\npython code/train.py 'a > b'", ""),
    ],
)
def test_what_a_command_writes_to_a_file_is_noted(project: Path, command: str, note: str) -> None:
    indented = "\n".join(f"  {line}" for line in command.splitlines())
    conversion = converted(project, f"run: |\n{indented}\n")
    assert conversion.job["train"]["script"].endswith("train.py")
    assert note in said(conversion, "run") if note else not said(conversion, "run")
