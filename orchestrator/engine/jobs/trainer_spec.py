"""Trainer spec: builds the specification that a node executes, from a job and a migration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orchestrator.engine.context import Context
from orchestrator.engine.runtime import RunSpec
from orchestrator.model import Job, JobSpec, Migration, Resources, Run
from orchestrator.nodes.messages import Ahead, JobFiles
from providers.hardware import GPUS
from providers.offer import Offer
from providers.traits import shares_host
from trainers.spec import SetupSpec, TrainerSpec


def run_spec(ctx: Context, migration: Migration, job: Job) -> RunSpec:
    """The run that this migration brings up. Raises MissingSecret."""
    values = ctx.secrets.of(job, ctx.typed_name)
    run_dir = ctx.installation.run_dir(migration.target_run_id)
    spec = trainer_spec(
        job.spec,
        job_id=job.id,
        run_id=migration.target_run_id,
        generation=migration.generation,
        checkpoint_root=ctx.checkpoint_root(job),
        run_dir=run_dir,
        output_dir=ctx.installation.output_dir(job.id),
    )
    offer = offer_of(ctx, migration.offer_id)
    spec = replace(
        spec, throttle=throttle(offer), manifest=migration.manifest, processes=processes(job.spec.resources, offer)
    )
    if not shares_host(migration.offer_id):
        spec = replace(spec, control_dir="", output_dir="", workdir="")
    return RunSpec(
        run_id=migration.target_run_id,
        job_id=job.id,
        generation=migration.generation,
        trainer=spec.to_json(),
        secrets=values,
    )


def trainer_spec(
    spec: JobSpec, *, job_id: str, run_id: str, generation: int, checkpoint_root: str, run_dir: Path, output_dir: Path
) -> TrainerSpec:
    """The job file's settings for the trainer, with the folders of one run."""
    train = spec.train
    return TrainerSpec(
        job_id=job_id,
        run_id=run_id,
        generation=generation,
        attempt=1,
        checkpoint_root=checkpoint_root,
        control_dir=str(run_dir / "control"),
        output_dir=str(output_dir),
        workdir=train.workdir,
        entry=train.entry,
        script=train.script,
        args=dict(train.args),
        argv=train.argv,
        env=dict(train.env),
        steps=train.steps,
        epochs=train.epochs,
        keep=spec.checkpoint.keep,
        keep_hourly=spec.checkpoint.keep_hourly,
        keep_best=spec.checkpoint.keep_best,
        max_overhead=spec.checkpoint.max_overhead,
        max_in_flight=spec.checkpoint.max_in_flight,
        max_upload_bytes_per_s=spec.checkpoint.max_upload_bytes_per_s,
        threads=spec.reproducible.threads,
        deterministic=spec.reproducible.deterministic,
        seed=spec.reproducible.seed,
        torchrun=spec.resources.distributed,
    )


def setup_spec(ctx: Context, run: Run, job: Job) -> SetupSpec | None:
    """The job's set-up on the machine of `run` before its trainer starts; the site supplies `root`."""
    train, wanted = job.spec.train, job.spec.train.setup
    if wanted is None:
        return None
    here = shares_host(run.offer_id)
    return SetupSpec(
        root="",
        log=str(ctx.installation.run_dir(run.id) / "log") if here else "",
        workdir=train.workdir if here else "",
        command=wanted.command,
        requirements=wanted.requirements,
        requirement_files=wanted.requirement_files,
        python=wanted.python,
        env=dict(train.env),
        timeout_s=ctx.installation.config.stalls.setup_fail_after_s,
    )


def job_files(ctx: Context, run: Run, job: Job, *, source_trains: bool) -> JobFiles | None:
    """Where the machine of `run` reads and writes a job's files; None for a machine that shares this host's folders.
    The agent of any other machine uses its own folders. `source_trains`: the previous run is still training."""
    if shares_host(run.offer_id):
        return None
    root = ctx.checkpoint_root(job)
    ahead = Ahead(root, job.id, run.generation, source_trains) if run.generation > 1 and "://" in root else None
    place, nodes = ctx.installation.job_place(job.id), job.spec.resources.nodes
    return JobFiles(place, job.spec.train.code or "", machines=nodes, ahead=ahead)


def offer_of(ctx: Context, offer_id: str) -> Offer | None:
    """The offer; None if it is no longer known."""
    with ctx.installation.store.read() as tx:
        return tx.offer(offer_id)


def processes(wanted: Resources, offer: Offer | None) -> int:
    """How many processes of the program run on each machine: as the job file says, else one per GPU."""
    if wanted.processes is not None:
        return wanted.processes
    return 1 if offer is None else max(1, offer.gpu_count)


def throttle(offer: Offer | None) -> float:
    """The declared speed of a simulated machine; 1.0 for real ones."""
    gpu = None if offer is None else offer.gpu
    return GPUS[gpu].throttle if gpu in GPUS else 1.0
