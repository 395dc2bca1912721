"""Commands of task files that start programs or prepare the machine: entry points, arguments, set-up."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from orchestrator.jobfile import load_job
from orchestrator.jobfile.convert.task_file import convert_file
from tests.unit.jobfile.conftest import converted, said


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


def test_a_program_that_attaches_to_nothing_gets_a_note_that_says_what_that_means(project: Path) -> None:
    (project / "plain.py").write_text("print('no checkpoints')\n")
    assert "trainers.attach" in said(converted(project, "run: python plain.py\n"), "run")
    assert "trainers.attach" not in said(converted(project, "run: python code/train.py\n"), "run")


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
