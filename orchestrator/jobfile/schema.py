"""The job file as pydantic models: every field's name, type, default and meaning (docs/job-file.md is made of it).

Each value is checked by itself here. Rules for several fields or files are in checks.py.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from orchestrator.jobfile.values import (
    Args,
    Bandwidth,
    Capacity,
    Command,
    Deadline,
    Distinct,
    Duration,
    Entry,
    Gpu,
    Gpus,
    JobName,
    Keep,
    Labels,
    Many,
    Money,
    Mount,
    Name,
    NonEmpty,
    Pattern,
    Precision,
    PythonVersion,
    Rate,
    Requirements,
    SettingText,
    Sharding,
    Share,
    Size,
    SizeRange,
    Standby,
    Variable,
    Weight,
    Whole,
    YesNo,
    read_objective,
)
from providers.offer import CapacityType

DEFAULT_PROJECT = "default"


def _about(
    meaning: str, kind: str, example: str, *, instead: bool = False, default_text: str = "", **field: Any
) -> Any:
    """A field with its documentation. `instead`: an alternative, commented out in the example file."""
    extra: dict[str, Any] = {"kind": kind, "instead": instead, "default_text": default_text}
    return Field(description=meaning, examples=[example], json_schema_extra=extra, **field)


class Section(BaseModel):
    """A mapping of the file. Empty keys are ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


class TrainSection(Section):
    """The work itself: exactly one of `entry` and `script`, and one of `steps` and `epochs`."""

    entry: Entry | None = _about(
        "The function to call, as module:function, with `args` as keyword arguments. It finds its session "
        "with `trainers.attach()`.",
        "text",
        "train:main",
        default=None,
    )
    script: NonEmpty | None = _about(
        "A program below `workdir` instead of a function. It may leave out `steps` and `epochs`.",
        "path",
        "train.py",
        default=None,
        instead=True,
    )
    args: Args = _about(
        "Arguments by name. A function gets them as keyword arguments, a script as `--name value`. Values are numbers, "
        "text, true/false, and one level of lists or mappings of them. For a script, `args` may also be a list of "
        "words, which it gets exactly as written: `[fit, --lr, 3e-4, --amp]`. Flags without a value, such as `--amp`, "
        "need this form.",
        "mapping or list",
        "{layers: 4, lr: 3.0e-4}",
        default={},
    )
    setup: Command | None = _about(
        "A shell command that prepares the machine. Bash runs it in `workdir` before the program starts, once per "
        "machine, and again if the command, or a file that it names, changes.",
        "command",
        "pip install -r requirements.txt",
        default=None,
    )
    requirements: Requirements | None = _about(
        "Python packages to install before `setup` runs: a requirements file below `workdir`, or a list of packages.",
        "path, or list of packages",
        "requirements.txt",
        default=None,
    )
    python: PythonVersion | None = _about(
        "The Python version of the program. Default: the version of Tradewind on the machine, with its packages "
        "(torch). Another version must be installed on the machine, with torch, or with torch in `requirements`.",
        "version",
        '"3.12"',
        default=None,
    )
    workdir: NonEmpty = _about("The folder that holds the code, relative to this file.", "path", ".", default=".")
    env: dict[Variable, SettingText] = _about(
        "Environment variables of the job.", "mapping of text", "{HF_HOME: /data/hf}", default={}
    )
    secrets: tuple[Variable, ...] = _about(
        "Names only: the values come from the submitter's environment, and are never logged or stored unencrypted.",
        "list of names",
        "[WANDB_API_KEY]",
        default=(),
    )
    steps: Whole | None = _about(
        "The job is complete after this many optimizer steps. Passed to a function that has a parameter `steps`.",
        "whole number",
        "20000",
        default=None,
        ge=1,
        le=10**15,
    )
    epochs: Whole | None = _about(
        "Passes over the data, instead of steps; the trainer converts them to steps. Passed on like `steps`.",
        "whole number",
        "3",
        default=None,
        instead=True,
        ge=1,
        le=10**9,
    )
    stall_after: Duration | None = _about(
        "A run fails if it stalls for this long: in a step, in a save, before the first step or after the last. "
        "Default: as configured (`stalls`).",
        "duration",
        "6h",
        default=None,
    )


class DataSection(Section):
    """Data that must be available before the job starts."""

    source: NonEmpty = _about("Where the data is: a path or a URL.", "path or URL", "s3://bucket/set")
    mount: Mount = _about("The absolute path where the job finds the data.", "path", "/data")
    size: Size | None = _about("The size of the data, for the cost of its transfer.", "size", "120 GB", default=None)


class OutputSection(Section):
    """Files that `tradewind fetch JOB` brings back."""

    path: NonEmpty = _about("A path below the job's output folder.", "path", "runs/")
    keep: Keep = _about("Which versions of the files are kept.", "all, last or best", "best", default="all")


class ResourcesSection(Section):
    """What each node must have. Without these fields, any machine is suitable."""

    gpu: Gpus | None = _about(
        "Any of these kinds of GPU, with the number that each node needs (default 1). `A100` means both "
        "`A100-40GB` and `A100-80GB`.",
        "NAME or NAME:COUNT, or a list of them",
        "[H100:8, A100-80GB:8]",
        default=None,
    )
    gpu_memory: SizeRange | None = _about(
        "Any GPU with this much memory, instead of named kinds. A single size means at least that much.",
        "range of sizes",
        "40 GB..",
        default=None,
        instead=True,
    )
    cpu: Whole | None = _about(
        "At least this many virtual CPUs.", "whole number", "4", default=None, instead=True, ge=1, le=100_000
    )
    memory: Size | None = _about("At least this much main memory.", "size", "64 GB", default=None)
    nodes: Whole = _about(
        "The number of nodes, all or none. RANK, WORLD_SIZE, MASTER_ADDR and so on are set as torchrun sets them.",
        "whole number",
        "1",
        default=1,
        ge=1,
        le=10_000,
    )
    processes: Whole | None = _about(
        "The number of processes of the program on each node. Default: one per GPU. With `1`, a program written for "
        "torchrun also runs on one GPU.",
        "whole number",
        "2",
        default=None,
        ge=1,
        le=1_000,
    )


class ObjectiveSection(Section):
    """Minimise cost^cost x time^time."""

    cost: Weight = _about("Weight of the cost.", "number", "0.7")
    time: Weight = _about("Weight of the time.", "number", "0.3")


class WhereSection(Section):
    """Where the job may run. Default: all enabled providers and their regions."""

    clouds: Annotated[tuple[Pattern, ...], Many, Distinct] | None = _about(
        "Providers, by name or shell-style pattern.",
        "pattern or list of patterns",
        "[aws, gcp]",
        default=None,
    )
    regions: Annotated[tuple[Pattern, ...], Many, Distinct] | None = _about(
        "Regions, by name or shell-style pattern.", "pattern or list of patterns", '["eu-*"]', default=None
    )


class ExpectedSection(Section):
    """The job's speed, if you know it. Forecasts use it until the speed is measured. A measurement on a simulated GPU
    does not replace the speed that you state for a real one."""

    gpu: Gpu = _about("The GPUs of the machine with this speed.", "NAME or NAME:COUNT", "A100-80GB")
    steps_per_s: Rate = _about("Optimizer steps per second.", "number", "2.5")


class CheckpointSection(Section):
    """Where and how often the job's progress is saved."""

    to: NonEmpty | None = _about(
        "Where checkpoints are stored: a folder or a bucket (s3://bucket/prefix, gs://bucket/prefix, "
        "az://container/prefix). Default: the state folder.",
        "path or URL",
        "s3://bucket/ck",
        default=None,
    )
    keep: Whole = _about(
        "How many of the latest checkpoints are kept.", "whole number", "3", default=3, ge=1, le=10_000
    )
    keep_hourly: Whole = _about(
        "For this many hours, the last checkpoint of each hour is also kept.",
        "whole number",
        "24",
        default=0,
        ge=0,
        le=10_000,
    )
    keep_best: Whole = _about(
        "This many checkpoints with the lowest last recorded loss are also kept.",
        "whole number",
        "1",
        default=0,
        ge=0,
        le=10_000,
    )
    max_overhead: Share = _about(
        "The share of the time that writing checkpoints may take.",
        "percentage",
        "3.5%",
        default=0.035,
        default_text="3.5%",
    )
    max_in_flight: Whole = _about(
        "How many checkpoints may be written at a time while training continues, each from a separate copy in memory. "
        "With 0, training waits.",
        "whole number",
        "1",
        default=1,
        ge=0,
        le=8,
    )
    max_upload: Bandwidth | None = _about(
        "The highest bandwidth that a machine uses to write checkpoints while training continues. Checkpoints that "
        "something waits for are written at full speed. Default: no limit.",
        "size per second",
        "50 MB/s",
        default=None,
    )


class ReproducibleSection(Section):
    """Settings with which a resumed job gives bit-identical results to an uninterrupted one."""

    threads: Whole = _about("CPU threads of the computation.", "whole number", "1", default=1, ge=1, le=4096)
    deterministic: YesNo = _about("Use deterministic algorithms only.", "true or false", "true", default=True)
    seed: Whole = _about("Seed of every random generator.", "whole number", "0", default=0, ge=0, le=2**32 - 1)


class JobFile(Section):
    """A whole job file."""

    name: JobName = _about("The name of the job in all lists.", "name", "gpt-small")
    project: Name = _about("Budgets and reports group by it.", "name", "research", default=DEFAULT_PROJECT)
    labels: Labels = _about(
        "Labels to filter and group by: at most 64, each at most 256 characters.",
        "mapping of text",
        "{cost-center: ml-42}",
        default={},
    )
    train: TrainSection = _about("", "section", "")
    data: tuple[DataSection, ...] = _about("", "list of sections", "", default=())
    outputs: tuple[OutputSection, ...] = _about("", "list of sections", "", default=())
    resources: ResourcesSection = _about("", "section", "", default=ResourcesSection())
    objective: Annotated[ObjectiveSection, BeforeValidator(read_objective)] = _about(
        "What to minimise: `cheapest` (expected cost to finish), `fastest` (time; among finishes within 3% of the "
        "earliest, cost), or weights for both, such as `{cost: 0.7, time: 0.3}`.",
        "cheapest, fastest or weights",
        "cheapest",
        default=ObjectiveSection(cost=1.0, time=0.0),
        default_text="cheapest",
    )
    deadline: Deadline | None = _about(
        "When the job must be done: a duration from submission, or a timestamp with its time zone. Tradewind switches "
        "to on-demand machines in time to meet it.",
        "duration or timestamp",
        "48h",
        default=None,
    )
    budget: Money | None = _about(
        "A limit that is never exceeded. Shortly before the limit, the job saves a checkpoint and pauses; if it does "
        "not respond, it is paused at its last checkpoint.",
        "US dollars",
        "250 USD",
        default=None,
    )
    capacity: Annotated[tuple[Capacity, ...], Many, Distinct] = _about(
        "The capacity types that the job may use.",
        "spot, on_demand, or a list of them",
        "[spot, on_demand]",
        default=(CapacityType.SPOT, CapacityType.ON_DEMAND),
    )
    where: WhereSection = _about("", "section", "", default=WhereSection())
    checkpoint: CheckpointSection = _about("", "section", "", default=CheckpointSection())
    reproducible: ReproducibleSection = _about("", "section", "", default=ReproducibleSection())
    standby: Standby = _about(
        "`warm` keeps a standby node for fast recovery, as long as the budget pays for both. The plan shows its cost.",
        "none or warm",
        "none",
        default="none",
    )
    precision: Precision | None = _about(
        "The precision of most of the program's arithmetic. GPU speeds are compared at this precision. Default: the "
        "precision in the job's profile, otherwise `fp32`.",
        "fp32, tf32, fp16, bf16 or fp8",
        "bf16",
        default=None,
    )
    sharding: Sharding = _about(
        "What the program shards over the GPUs of a machine: nothing, the optimizer's state (`zero1`), also gradients "
        "(`zero2`), also weights (`zero3`, `fsdp`). Tradewind uses this to find GPUs with enough memory.",
        "none, zero1, zero2, zero3 or fsdp",
        "fsdp",
        default="none",
    )
    expected: ExpectedSection | None = _about("", "section", "", default=None)
    probe: YesNo = _about(
        "Whether Tradewind may try another kind of GPU for some minutes if that is expected to save money.",
        "true or false",
        "true",
        default=True,
    )
    retries: Whole = _about(
        "How many more attempts the job gets if its own code fails: 5 allow 6 in total. Preemptions do not count.",
        "whole number",
        "5",
        default=5,
        ge=0,
        le=1000,
    )
    max_duration: Duration | None = _about(
        "The job fails if its runs train for longer than this in total. Waiting for machines and pauses do not count.",
        "duration",
        "72h",
        default=None,
    )
