"""Profile: runs a few steps of a job's program here, counts the operations of one, and predicts speeds elsewhere.

The program runs in a child process, in temporary folders; only the counts are stored, for later plans.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar, get_args

from orchestrator.engine.inputs.snapshot import perf
from orchestrator.errors import MissingExtraError, PartialFailure, TradewindError
from orchestrator.installation import Installation
from orchestrator.model import Job, JobSpec
from orchestrator.perf import SORTS, InstanceKind, PerfBook, Work, kind_name, kind_of, program_of
from orchestrator.services.jobs.plan import freshen
from orchestrator.services.secrets.submission import require_secrets
from orchestrator.services.speed.children import ended_with_all
from orchestrator.services.speed.entry_check import trial_spec, would_repeat
from orchestrator.services.speed.views import ProfileRow, ProfileView
from orchestrator.store import Tx
from providers.hardware import GPUS, Precision
from trainers.control import ControlDirectory
from trainers.process.masking import Mask
from trainers.profile import STEPS, TOO_FEW_STEPS, StepCounts

TIMEOUT_S = 900.0
_LOG_LINES = 20
_MOST_SAID_BYTES = 1 << 20


def profile(
    installation: Installation, spec: JobSpec, *, timeout_s: float = TIMEOUT_S, memory_bytes: int | None = None
) -> ProfileView:
    """Profiles the program of a job and stores the counts for its plans.

    Raises MissingExtraError without torch; UsageError if a secret is missing in the environment; SpecError for an error
    that would repeat on every machine; PartialFailure if it fails otherwise, needs more than `memory_bytes` (None: no
    limit), has too few steps or takes them outside of run.batches(), never calls attach() or takes longer than
    `timeout_s` (wall seconds).
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("torch", "train")
    require_secrets(spec)
    counts = _count(spec, timeout_s, memory_bytes)
    if counts.step_s <= 0:
        raise PartialFailure(
            f"the duration of the steps of {spec.name} is unknown: it takes them outside of run.batches()",
            hint="iterate run.batches(), and call run.step(loss) once in each iteration: docs/training-code.md",
        )
    factor = installation.clock.factor
    work = Work(
        flops=counts.flops,
        half_flops=counts.half_flops,
        traffic_bytes=counts.traffic_bytes,
        operations=counts.operations,
        parameters=counts.parameters,
        resident_bytes=counts.resident_bytes,
        activation_bytes=counts.activation_bytes,
        host_steps_per_s=1 / (counts.step_s * factor),
        precision=_one_of(get_args(Precision), counts.precision),
        sort=_one_of(SORTS, counts.sort),
        weight_bytes=counts.weight_bytes,
        gradient_bytes=counts.gradient_bytes,
        outside_s=counts.outside_s,
    )
    freshen(installation)
    now = installation.clock.now_ms()
    with installation.store.write() as tx:
        tx.put_work(program_of(spec.train), work, now)
    with installation.store.read() as tx:
        book, job = perf(tx, now), Job("profiled", spec, "", now, "queued")
        precision, rows = book.precision(job), _rows(tx, book, job, work, now)
    return ProfileView(
        name=spec.name,
        at_ms=now,
        flops=work.flops,
        half_flops=work.half_flops,
        traffic_bytes=work.traffic_bytes,
        precision=precision,
        computes=work.sort,
        sharding=spec.sharding,
        operations=work.operations,
        parameters=work.parameters,
        resident_bytes=work.resident_bytes,
        activation_bytes=work.activation_bytes,
        gpu_memory_bytes=work.gpu_memory_bytes,
        step_wall_s=counts.step_s,
        outside_wall_s=counts.outside_s,
        kinds=rows,
        simulated=any(row.simulated for row in rows),
        clock_factor=factor,
    )


def _rows(tx: Tx, book: PerfBook, job: Job, work: Work, now_ms: int) -> tuple[ProfileRow, ...]:
    """A row for every known GPU and offered kind: cheapest per step first, then fastest; those that do not fit last."""
    cheapest = _cheapest(tx, now_ms)
    kinds = {kind_of(name, 1) for name, gpu in GPUS.items() if not gpu.simulated} | cheapest.keys()
    ordered = sorted(kinds, key=kind_name)
    rows = []
    for kind, speed in zip(ordered, book.estimate_kinds(job, ordered), strict=True):
        shortfall = work.shortfall_bytes(kind, job.spec.sharding)
        price = cheapest.get(kind)
        rows.append(
            ProfileRow(
                gpu=kind[0],
                gpu_count=kind[1],
                steps_per_s=speed.value,
                steps_per_s_low=speed.low,
                steps_per_s_high=speed.high,
                throughput_source=speed.provenance,
                shortfall_bytes=shortfall,
                nano_usd_per_hour=price,
                nano_usd_per_step=None if price is None or shortfall else price / 3600 / speed.value,
                simulated=kind[0] is not None and GPUS[kind[0]].simulated,
            )
        )
    rows.sort(
        key=lambda row: (
            row.shortfall_bytes > 0,
            row.nano_usd_per_step is None,
            row.nano_usd_per_step or 0.0,
            -row.steps_per_s,
        )
    )
    return tuple(rows)


T = TypeVar("T", bound=str)


def _one_of(known: tuple[T, ...], reported: str | None) -> T | None:
    """`reported` if it is a known value, else None: the child runs the user's program, so its output is not trusted."""
    return next((each for each in known if each == reported), None)


def _cheapest(tx: Tx, now_ms: int) -> Mapping[InstanceKind, int | None]:
    """The lowest hourly price (nano-USD) of each offered kind; None without a price."""
    prices = {point.offer_id: point.nano_usd_per_hour for point in tx.eligible_as_of(now_ms)}
    found: dict[InstanceKind, int | None] = {}
    for offer in tx.offers():
        kind, price = kind_of(offer.gpu, offer.gpu_count), prices.get(offer.id)
        before = found.get(kind)
        found[kind] = price if before is None else before if price is None else min(before, price)
    return found


def _count(spec: JobSpec, timeout_s: float, memory_bytes: int | None) -> StepCounts:
    with tempfile.TemporaryDirectory(prefix="tradewind-profile-") as name:
        folder = Path(name)
        trainer = trial_spec(spec, folder, least_steps=STEPS)
        trainer.save(folder / "spec.json")
        # -P: ignore a `trainers` or `torch` in the current folder; the runner adds the job's own folder.
        command = [
            sys.executable,
            "-P",
            "-m",
            "trainers.profile.child",
            str(folder / "spec.json"),
            str(folder / "counts"),
            *([] if memory_bytes is None else [str(memory_bytes)]),
        ]
        # Its output goes to a file, because a process that it leaves behind would keep a pipe open.
        with open(folder / "said", "w+b") as said:
            with ended_with_all(command, said) as child:
                try:
                    code = child.wait(timeout_s)
                except subprocess.TimeoutExpired:
                    raise PartialFailure(
                        f"{spec.name} did not make {STEPS} steps within {timeout_s:g} s",
                        hint="if it calls trainers.attach() and run.step(loss), profile it on a faster machine, or "
                        "submit it: its first minutes on a machine measure its speed; if not: docs/training-code.md",
                    ) from None
            said.seek(max(0, said.seek(0, os.SEEK_END) - _MOST_SAID_BYTES))
            last = said.read().decode(errors="replace")
        if code == 0:
            return StepCounts.load(folder / "counts")
        raise _failure(spec, code, last, folder)


class ProgramFailed(PartialFailure):
    """The program of the job itself failed while it was profiled."""


def _failure(spec: JobSpec, code: int, said: str, folder: Path) -> TradewindError:
    if code == TOO_FEW_STEPS:
        return PartialFailure(
            f"{spec.name} ended before {STEPS} recorded steps",
            hint="the program must call trainers.attach() and run.step(loss): docs/training-code.md",
        )
    progress = ControlDirectory(folder / "run" / "control").progress()
    error = (progress.error if progress is not None else None) or said
    error = Mask({name: os.environ[name] for name in spec.train.secrets}).text(error)  # others may see this output
    if progress is not None and progress.permanent:
        raise would_repeat(spec, error)
    last = "\n".join(error.strip().splitlines()[-_LOG_LINES:])
    return ProgramFailed(
        f"{spec.name} failed while it was profiled:\n{last}", hint="correct the program; nothing was stored"
    )
