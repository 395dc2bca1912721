"""Messages: the control plane's orders to a machine, and the reports of the machine's agent.

Each is one JSON object of at most MOST_BYTES (orders: MOST_ORDER_BYTES) in the store of control objects
(nodes.channel). Points in time are never exchanged: orders carry durations and reports carry ages, and the reader
counts from the time of reading, by its own clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainers.control import Risk

MOST_BYTES = 256 << 10
MOST_ORDER_BYTES = 2 << 20
"""A job file has at most 256 KiB; each of its characters may take six bytes here."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Save a checkpoint, then wait at the step boundary for generation `successor`, for `for_s` seconds at most from
    when the order arrives. `number` is random and distinguishes repeated orders."""

    number: int
    successor: int
    for_s: float


@dataclass(frozen=True, slots=True)
class Ahead:
    """The data that a machine may fetch before its run restores (trainers.checkpoint.prefetch): chunks of the
    checkpoints of `job` in the bucket `root`, for a run of `generation`. `trains`: the previous run is still
    training."""

    root: str
    job: str
    generation: int
    trains: bool


@dataclass(frozen=True, slots=True)
class JobFiles:
    """Where a machine that shares no folder with the control plane finds the job's code and puts its log and outputs:
    `place` is a key below the installation's `store_root`, `code` the digest of the code (nodes.unpacking), `rank` the
    machine's number among the run's `machines`. `ahead`: the data that it may fetch meanwhile."""

    place: str
    code: str
    rank: int = 0
    machines: int = 1
    ahead: Ahead | None = None


@dataclass(frozen=True, slots=True)
class RunOrder:
    """The run that a machine should execute, in the folder `run_dir`; with `files`, in its own folders, which then
    replace those in `setup` and `spec`.

    It sets up `setup` (trainers.spec.SetupSpec), loads its libraries, and waits until there is a `spec`
    (trainers.spec.TrainerSpec). `grant` is the digest of the sealed secrets that it needs; None: it needs none. `stop`:
    save a checkpoint and end. Each new number of `stacks` writes the stacks of all threads to the run's log. `risk`:
    how often its machines are expected to be lost; None if unknown.
    """

    run_id: str
    run_dir: str = ""
    files: JobFiles | None = None
    setup: Mapping[str, object] | None = None
    spec: Mapping[str, object] | None = None
    grant: str | None = None
    hold: Hold | None = None
    stop: bool = False
    stacks: int = 0
    risk: Risk | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """What a machine should do; the newest order replaces all earlier ones. A run that `run` does not name is ended at
    once.

    `number` rises with each order. `lease_s`: the trainer stops by itself when its agent has not exchanged messages
    with the store for this many seconds. `epoch` is the epoch of the control plane that wrote it: one with an earlier
    epoch stops writing.
    """

    number: int
    lease_s: float
    run: RunOrder | None = None
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A machine that has started. `boot` is random; a machine starts once. `public_key` (X25519, hexadecimal) belongs
    to this boot: only this agent can open data sealed to it. `proof` shows that the agent has the token of its user
    data (nodes.sealing). A machine that cannot be used has no key, but an `error`.

    In a run on several machines, `instance` is the provider's id of the machine, if it knows it, `address` where the
    others reach it, `ray` the address of the run's Ray cluster (of machine 0), and `master_port` a port of it that was
    free for the processes of the run."""

    boot: str
    public_key: str
    proof: str
    error: str = ""
    instance: str = ""
    address: str = ""
    ray: str = ""
    master_port: int = 0


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The agent's report. `beat` rises with each report; `order` is the number of the newest order that it carries out.
    `said` is the report of the run `run_id` itself (None before the first); its actor answered `said_ago_s` ago. The
    agent adds `notice_s` when the provider has announced the machine's end."""

    boot: str
    beat: int
    order: int = 0
    run_id: str | None = None
    said: Mapping[str, object] | None = None
    said_ago_s: float = 0.0
