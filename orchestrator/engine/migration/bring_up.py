"""The first steps of a migration: rent a machine (provision), and wait until a trainer is prepared on it (ready).

The intent, a row with a deterministic token, is stored before the launch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from orchestrator.engine.billing.spending_limits import no_longer_covers
from orchestrator.engine.calls import LIMIT_S, Answer, place_of
from orchestrator.engine.context import Context
from orchestrator.engine.inputs.snapshot import perf, profiled_bytes
from orchestrator.engine.jobs import trainer_spec
from orchestrator.engine.jobs.blame import died_alone
from orchestrator.engine.machines.launched import answered, at_its_offer, land, launch_key, named, with_machines
from orchestrator.engine.machines.renewals import covered_s, may_live_until, others_outlive
from orchestrator.engine.migration import timeouts
from orchestrator.engine.migration.disk import disk_gb
from orchestrator.engine.migration.limits import check_limits, within_limits
from orchestrator.engine.migration.move import Move, abort, step, voided
from orchestrator.engine.migration.revalidate import still_pays
from orchestrator.engine.migration.wasted import Cause
from orchestrator.engine.orders import PLACE
from orchestrator.engine.runtime import RunReport
from orchestrator.errors import LimitError, SiteError
from orchestrator.model import Job, Member, Migration, Run, Step
from orchestrator.nodes.boot.launching import Remote
from providers.base import Landed, LaunchesAnywhere, LaunchSpec
from providers.errors import CapacityError, ConflictError, NotTogetherError, PriceError, ProviderError, QuotaError
from providers.instance import EndReason, InstanceState
from providers.offer import provider_of
from providers.traits import shares_host

LAUNCH_RETRY_S = 1.0
LAUNCH_TIME_TO_LIVE_S = 3600.0
"""Wall seconds that a machine may run unmonitored, unless a budget covers less; engine.machines.renewals renews them as
soon as the machine is known."""
LOCAL = ("zone", "region")
"""Errors of this scope concern one place, such as a host without Python, so another offer is tried."""
HELD_UP_S = 10.0
MAX_LAUNCHES = 30  # calls without a clear answer before another offer is tried,
LAUNCHES_FOR_S = 60.0  # and for how long, counted from the first one
PREPARE_EVERY_S = 15.0
FETCHING_S = 600.0  # how long a move waits while its target fetches data that no checkpoint changes
UPLOAD_S = 300.0  # for the runtime of machines of other hosts, the first time


def provision(ctx: Context, move: Move) -> bool:
    """Launch a machine with the intent's token. Repeated calls launch only one."""
    migration, key = move.migration, launch_key(move.migration)
    answer = ctx.answer(key)
    if answer is None:
        provider = ctx.installation.providers.get(provider_of(migration.offer_id))
        if provider is None:
            return abort(ctx, move, f"the provider of {migration.offer_id} is no longer enabled")
        if (missing := ctx.secrets.missing(move.job, ctx.typed_name)) is not None:
            return abort(ctx, move, missing)  # before money is spent on a machine that could not train
        if move.job.spec.train.code is None and not shares_host(migration.offer_id):
            why = f"the code of {move.job.name} was not uploaded, because no machine of another host was enabled then"
            return abort(ctx, move, f"{why}: submit the job again to run it on {migration.offer_id}")
        if ctx.calls.under_way(key):
            return False
        try:
            user_data = _user_data(ctx, migration, move.job)
        except (SiteError, ProviderError) as error:  # a call that is not answered in time raises TimedOutError
            return _nothing_rented(ctx, move, error)
        if user_data is None or not ctx.may_ask(key, place_of(migration.offer_id), LAUNCH_RETRY_S):
            return False
        pays = still_pays(ctx, move)
        if pays is None:
            return True
        if not migration.attempt:
            if (refusal := no_longer_covers(ctx, move.job, move.target)) is not None:
                return abort(ctx, move, refusal)
            if others_outlive(ctx, move.job, move.target):
                return _held_up(ctx, move)
        try:
            counted = _counted(ctx, move, pays)
        except LimitError as error:
            return abort(ctx, move, str(error))
        if counted is None:
            return False
        spec = launch_spec(ctx, counted, move.job, user_data)
        call: Callable[[LaunchSpec], Landed] = partial(at_its_offer, provider.launch)
        if spec.also and isinstance(provider, LaunchesAnywhere):
            call = provider.launch_any
        answer = ctx.begin(key, place_of(migration.offer_id), partial(answered, call, spec))
    return answer is not None and _launched(ctx, move, answer)


def _counted(ctx: Context, move: Move, migration: Migration) -> Migration | None:
    """Count a launch before it is made, so that an abort knows whether a machine may exist, and keep its request for
    the next try. The first launch leaves out further offers that would exceed a limit. Returns the migration as stored
    after that; None if it is at another step. Raises LimitError."""
    disk_gb, to_live_s = _disk_gb(ctx, migration, move.job), _to_live_s(ctx, migration, move)
    with ctx.write() as tx:  # a write transaction: a control plane that lost leadership launches nothing
        run_id, also = move.target.id, migration.also
        check_limits(ctx, tx, move.job, migration.offer_id, besides=run_id)
        if not migration.attempt:
            also = within_limits(ctx, tx, move.job, also, besides=run_id)
        ctx.waited_s(f"launching/{migration.id}")
        tried = migration.attempt + 1
        kept = replace(migration, attempt=tried, disk_gb=disk_gb, to_live_s=to_live_s, also=also)
        if not tx.advance(
            *(migration.id, Step.PROVISION, Step.PROVISION),
            attempt=tried,
            disk_gb=disk_gb,
            to_live_s=to_live_s,
            also=also,
        ):
            return None
    return kept


def _to_live_s(ctx: Context, migration: Migration, move: Move) -> int:
    """The market seconds for which the machine may run if no control plane ever renews it."""
    if migration.to_live_s is not None:
        return migration.to_live_s
    runs = [run for run in ctx.work.runs if run.job_id == move.job.id and run.end is None]
    wall_s = min(LAUNCH_TIME_TO_LIVE_S, covered_s(ctx, move.job, runs, {}))
    return int(wall_s * ctx.installation.clock.factor)


def _launched(ctx: Context, move: Move, answer: Answer[Landed]) -> bool:
    migration, target = move.migration, move.target
    try:
        landed = answer.result()
    except ProviderError as error:
        return _refused(ctx, replace(move, migration=_stored(ctx, migration)), error)
    if (to_live_s := _stored(ctx, migration).to_live_s) is not None:
        for instance_id in landed.instance_ids:
            may_live_until(ctx, instance_id, answer.asked_s + to_live_s / ctx.installation.clock.factor)
    with ctx.write() as tx:
        if tx.advance(migration.id, Step.PROVISION, Step.READY, error=None):
            tx.set_machines(target.id, with_machines(target, landed.instance_ids))
            offer_id = land(tx, migration, landed.offer_id)
            for _ in landed.instance_ids:
                tx.add_availability(offer_id, ctx.now_ms, "launched", target.id, "")
            message = f"rented {offer_id}"
            rented: dict[str, str] = {"instance_id": landed.instance_ids[0]}
            if target.nodes > 1:
                message = f"rented {target.nodes} x {offer_id}: {named(landed.instance_ids)}"
                rented["instance_ids"] = " ".join(landed.instance_ids)
            if migration.also:
                message += f", one of {1 + len(migration.also)} offers requested at once"
            ctx.event(tx, "migration.provision", message, move.job, run=target, migration=migration, **rented)
    return True


def _stored(ctx: Context, migration: Migration) -> Migration:
    """The migration as `_counted` stored it."""
    with ctx.installation.store.read() as tx:
        return tx.migration(migration.id)


def _held_up(ctx: Context, move: Move) -> bool:
    """Wait until a budget covers this machine and the others even if the control plane stops now. Report it if that
    takes long."""
    if ctx.waited_s(f"held-up/{move.migration.id}") < HELD_UP_S:
        return False
    why = "its budget covers another machine only after the present ones have got a shorter time to live"
    return _nothing_rented(ctx, move, SiteError(why, hint="Tradewind asks their provider again"))


def _nothing_rented(ctx: Context, move: Move, error: SiteError | ProviderError) -> bool:
    """Report, once, why no machine is rented. The launch is retried."""
    if ctx.due(f"site.unavailable/{move.migration.id}", math.inf):
        with ctx.write() as tx:
            message = f"no machine is rented: {error} ({error.hint})"
            ctx.event(tx, "site.unavailable", message, move.job, run=move.target, migration=move.migration)
    return False


def _user_data(ctx: Context, migration: Migration, job: Job) -> str | None:
    """The user data of the machine, which may require a query to the store; None: not available yet. It is kept while
    the launch waits for its turn or is repeated: a store that is slow once must not delay each try. Raises SiteError,
    ProviderError."""
    key = f"user-data/{migration.id}"
    answer = ctx.answer(key, keep=True)
    if answer is None and ctx.may_ask(key, PLACE, LAUNCH_RETRY_S):
        remote = _remote(ctx, migration, job)
        nodes = job.spec.resources.nodes
        make = partial(ctx.runtime.bootstrap, token=migration.token, nodes=nodes, remote=remote)
        answer = ctx.begin(key, PLACE, make, LIMIT_S if remote is None else UPLOAD_S, keep=True)
    return None if answer is None else answer.result()


def launch_spec(ctx: Context, migration: Migration, job: Job, user_data: str) -> LaunchSpec:
    """The launch request of a migration: the same each time, as its token requires. So the size of the disk and the
    time to live are those of the first try, even if the job's checkpoints turn out to be larger before the next one."""
    return LaunchSpec(
        token=migration.token,
        offer_id=migration.offer_id,
        user_data=user_data,
        count=job.spec.resources.nodes,
        tags={
            "tradewind-install": ctx.installation.store.install_id,
            "tradewind-job": job.id,
            "tradewind-run": migration.target_run_id,
            "tradewind-generation": str(migration.generation),
            "tradewind-project": job.project,
        },
        time_to_live_s=migration.to_live_s or int(LAUNCH_TIME_TO_LIVE_S * ctx.installation.clock.factor),
        disk_gb=_disk_gb(ctx, migration, job),
        also=migration.also,
    )


def _disk_gb(ctx: Context, migration: Migration, job: Job) -> int:
    if migration.disk_gb is not None:
        return migration.disk_gb
    if shares_host(migration.offer_id):
        return 0
    with ctx.installation.store.read() as tx:
        size_bytes = tx.job_facts(job.id).checkpoint_bytes
        if size_bytes is None:
            size_bytes = profiled_bytes(perf(tx, ctx.now_ms, [job.id]), job)
    return disk_gb(job.spec.data, size_bytes)


def _remote(ctx: Context, migration: Migration, job: Job) -> Remote | None:
    """The facts about its job that a machine of another host needs; None for a machine of this host."""
    if shares_host(migration.offer_id):
        return None
    with ctx.installation.store.read() as tx:
        offer = tx.offer(migration.offer_id)
    real = offer is not None and offer.gpu is not None and not offer.simulated
    gpu, count = (offer.gpu, offer.gpu_count) if real and offer is not None else (None, 0)
    return Remote(job.id, migration.target_run_id, ctx.checkpoint_root(job), gpu, count)


def _refused(ctx: Context, move: Move, error: ProviderError) -> bool:
    migration = move.migration
    in_time = ctx.waited_s(f"launching/{migration.id}") < LAUNCHES_FOR_S
    if error.retryable and migration.attempt < MAX_LAUNCHES and in_time:
        # the launch may have worked: only a call with the same token can find out
        with ctx.write() as tx:
            tx.advance(migration.id, Step.PROVISION, Step.PROVISION, error=str(error))
        return False
    no_room = error.retryable or isinstance(error, CapacityError | PriceError | QuotaError) or error.scope in LOCAL
    if no_room:
        with ctx.write() as tx:
            for offer_id in (migration.offer_id, *migration.also):  # an error concerns all of them (LaunchesAnywhere)
                tx.add_availability(offer_id, ctx.now_ms, "refused", move.target.id, str(error))
    # An earlier call without an answer may still create a machine, regardless of this answer.
    refused = migration.attempt == 1 and not (error.retryable or isinstance(error, ConflictError))
    one_by_one = isinstance(error, NotTogetherError)  # decide again at once, with one offer
    return abort(ctx, move, str(error), at_once=no_room or one_by_one, refused=refused)


def ready(ctx: Context, move: Move) -> bool:
    """Wait until the machine has joined the installation and a trainer with its libraries loaded waits on it."""
    migration, target = move.migration, move.target
    remote = not shares_host(migration.offer_id)
    if remote and (error := ctx.runtime.boot_error(migration.token)) is not None:  # it may have ended because of it
        return abort(ctx, move, error, cause="ready", at_once=True)
    if abandoned(ctx, move):
        return True
    if (missing := ctx.secrets.missing(move.job, ctx.typed_name)) is not None:
        return abort(ctx, move, missing)  # another control plane received them
    instance, report = ctx.instance(target), ctx.reports.get(target.id)
    waited_s = ctx.waited_s(f"ready/{migration.id}")
    if waited_s > timeouts.READY_S and waited_s > (limit_s := timeouts.ready_s(ctx, move)):
        return abort(ctx, move, _unready(ctx, move, limit_s), cause="ready")
    if instance is None:
        return False
    if (machines := _as_billed(ctx, target)) != target.machines:
        with ctx.write() as tx:
            tx.set_machines(target.id, machines)
    if instance.state is not InstanceState.RUNNING or not ctx.runtime.joined(instance.token, target.nodes):
        return False
    _compare(ctx, move)
    setup = trainer_spec.setup_spec(ctx, target, move.job)
    unheard = report is None or report.state == "absent"
    if unheard or (setup is not None and report is not None and report.state == "starting"):
        if ctx.due(
            f"prepare/{target.id}", PREPARE_EVERY_S
        ):  # again: the process that asked before may have died half-way
            if unheard:
                _end_attempts_before(ctx, target)
            secrets = {} if setup is None else ctx.secrets.of(move.job, ctx.typed_name)
            files = trainer_spec.job_files(ctx, target, move.job, source_trains=move.living_source is not None)
            ctx.runtime.prepare(target.id, instance.token, setup, secrets, files, nodes=target.nodes)
        return False
    assert report is not None
    if report.state in ("starting", "silent", "malformed"):
        return False
    if report.state == "failed" and report.setup_failed:
        return _setup_failed(ctx, move, report)
    if report.state == "failed":
        return abort(ctx, move, report.error or "the trainer could not be prepared", cause="trainer")
    if report.fetching and _source_can_go_on(ctx, move):
        ctx.waits_anew(f"ready/{migration.id}")
        return False
    message = "the node is ready"
    if setup is not None and report.setup_s is not None:
        with ctx.write() as tx:
            tx.update_run(target.id, setup_wall_s=report.setup_s)
        message += f"; its set-up took {report.setup_s:.0f} s"
    if report.fetched_bytes:
        message += f"; it has already fetched {report.fetched_bytes / 1e6:,.1f} MB of the checkpoint"
    return step(ctx, move, Step.CHECKPOINT, message, state="starting")


def _compare(ctx: Context, move: Move) -> None:
    """Report, once, machines of another offer than the one whose price is booked for them."""
    offer_id = move.target.offer_id
    for instance_id in move.target.instance_ids:
        instance = ctx.instances.get(instance_id)
        if instance is None or instance.offer_id.casefold() == offer_id.casefold():
            continue
        if ctx.due(f"other-offer/{instance_id}", math.inf):
            message = (
                f"{instance_id} is {instance.offer_id} according to its provider, but {offer_id} was requested: the "
                f"ledger has the price of {offer_id}, so compare it with the bill"
            )
            with ctx.write() as tx:
                ctx.event(tx, "instance.other_offer", message, move.job, run=move.target, instance_id=instance_id)


def _source_can_go_on(ctx: Context, move: Move) -> bool:
    """Whether the source may continue training for a while, so that the target fetches more before training pauses."""
    source = move.living_source
    if source is None or ctx.waited_s(f"fetching/{move.migration.id}") > FETCHING_S:
        return False
    report, instance = ctx.reports.get(source.id), ctx.instance(source)
    noticed = instance is not None and instance.notice_deadline_ms is not None
    return report is not None and report.state == "training" and not noticed


def _unready(ctx: Context, move: Move, limit_s: float) -> str:
    """Why a machine that was not ready in time is abandoned: it may run without ever having reported."""
    target, instance = move.target, ctx.instance(move.target)
    if instance is None or instance.state is not InstanceState.RUNNING or shares_host(target.offer_id):
        return f"the machine was not ready within {limit_s:.0f} s"
    if ctx.runtime.joined(instance.token, target.nodes):
        return f"the machine reported, but its trainer was not ready within {limit_s:.0f} s"
    return (
        f"the machine runs, but its agent did not report within {limit_s:.0f} s: see its console output; its image may "
        "have no cloud-init, or it cannot reach the store"
    )


def _as_billed(ctx: Context, target: Run) -> tuple[Member, ...]:
    """Its machines, with the start of billing where the provider has reported it since."""
    described = (ctx.instances.get(each.instance_id or "") for each in target.machines)
    return tuple(
        replace(each, billed_from_ms=instance.billed_from_ms)
        if each.billed_from_ms is None and instance is not None
        else each
        for each, instance in zip(target.machines, described, strict=True)
    )


def _setup_failed(ctx: Context, move: Move, report: RunReport) -> bool:
    """Handle a failed set-up. It is the job's own fault, uses up its retries and blames no offer, unless its machine
    was going down."""
    alone = died_alone(ctx, move.target)
    if alone is None:
        return False
    why = report.error or "the set-up failed"
    if not alone:
        return abort(ctx, move, why, cause="taken")
    return abort(ctx, move, why, cause="setup", failed=True, permanent=report.permanent)


def _end_attempts_before(ctx: Context, target: Run) -> None:
    """Kill what is left of a failed trainer on the same machine, to free it for the next attempt."""
    if target.machine_from_ms is None:
        return
    with ctx.installation.store.read() as tx:
        runs = tx.runs(job_id=target.job_id)
    for run in runs:
        if run.instance_id == target.instance_id and run.id != target.id:
            ctx.runtime.kill(run.id)


def abandoned(ctx: Context, move: Move) -> bool:
    """Abort the migration if its target's machine is gone, which is recorded about the offer, or has a preemption
    notice, which engine.machines.observe has recorded.

    A recovery tries another offer at once. An offer whose machine failed by itself is at fault: the next machine there
    would probably fail, too. Returns whether the migration was aborted.
    """
    target = move.target
    instance = ctx.instance(target)
    cause: Cause = "taken"
    if ctx.lost(target):
        reason = instance.end_reason if instance is not None else None
        why = f"the new machine ended ({reason.value if reason is not None else 'gone'})"
        if reason is EndReason.FAILED:
            cause = "ready"
    elif instance is not None and instance.notice_deadline_ms is not None:
        return abort(ctx, move, "the provider gave notice for the new machine", cause=cause, at_once=True)
    else:
        return False
    if move.migration.step is Step.CUTOVER:
        voided(ctx, move)  # before anything is recorded: it may take several ticks
    with ctx.write() as tx:
        tx.add_availability(target.offer_id, ctx.now_ms, "lost", target.id, why)
    return abort(ctx, move, why, cause=cause, at_once=True)
