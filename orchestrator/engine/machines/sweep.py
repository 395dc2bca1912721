"""Sweep: finds machines with this installation's tag that no run accounts for.

A machine launched by this store, according to its token, is assigned to the run that it was rented for, so that its
cost is booked, and is ended like any other; at once if that run cannot be read. The same applies to a machine that was
assumed gone. A machine that a launch made in addition to those of its run is ended and reported, because its cost can
be booked on no run. Any other machine is reported and left alone: it was rented by another copy of the store, which may
need it, or after the backup that was restored here. It ends by itself unless another control plane renews it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from orchestrator.engine.calls import place_of
from orchestrator.engine.compartment import Compartment, contained
from orchestrator.engine.context import ACTOR, Context
from orchestrator.engine.inputs.snapshot import left_out
from orchestrator.engine.machines.launched import land_found, with_machines
from orchestrator.errors import RowError
from orchestrator.model import Event, Member, Run
from orchestrator.store import Tx
from providers.base import Landed, Provider
from providers.errors import ProviderError
from providers.instance import Instance, InstanceState
from providers.offer import provider_of

UNKNOWN = "instance.unknown"
SURPLUS = "instance.surplus"
SWEEP_EVERY_S = 5.0
SWEEP_EVERY_LOOKS = 10
"""The cost of listing all regions for a provider, as a multiple of the cost of polling one."""


def sweep(ctx: Context) -> bool:
    """Check all machines that each provider lists. Returns whether anything changed."""
    changed = False
    for provider in ctx.installation.providers.values():
        changed |= contained(ctx, Compartment.SWEEP, partial(_sweep_at, ctx, provider), False, about=provider.name)
    return changed


def adopt(ctx: Context, run: Run, token: str, found: Landed) -> None:
    """Assign machines to the ended run that they were rented for with this token, as many as it has room for. Any
    others that its launch may have created are still looked for."""
    machines = with_machines(run, found.instance_ids)
    with ctx.write() as tx:
        tx.set_machines(run.id, machines)
        land_found(tx, run, token, found.offer_id)
        if all(each.instance_id is not None for each in machines):
            tx.update_run(run.id, state="ended")
        for instance_id in found.instance_ids:
            message = f"ending {instance_id}, which no run uses any more"
            ctx.event(tx, "instance.adopted", message, tx.outline(run.job_id), run=run, instance_id=instance_id)


def _sweep_at(ctx: Context, provider: Provider) -> bool:
    every_s = max(SWEEP_EVERY_S, SWEEP_EVERY_LOOKS * provider.describe_every_s)
    listed = partial(provider.list_owned, ctx.installation.store.install_id)
    answer = ctx.ask(f"sweep:{provider.name}", (provider.name, ""), listed, every_s=every_s)
    try:
        owned = None if answer is None else answer.result()
    except ProviderError:
        return False  # asked again
    if owned is None:
        return False
    _forget_unknown(ctx, provider, owned)
    changed = False
    rented = [run for run in ctx.work.runs if run.end is None and run.machine_from_ms is None]
    in_use = {each for run in rented for each in run.instance_ids}  # by the run for which they were rented
    for instance in owned:
        if instance.id in in_use:
            continue
        step, about = partial(_account_for, ctx, provider, instance), f"{provider.name} {instance.id}"
        changed |= contained(ctx, Compartment.SWEEP, step, False, about=about)
    return changed


def _account_for(ctx: Context, provider: Provider, instance: Instance) -> bool:
    with ctx.installation.store.read() as tx:
        run_id = tx.run_of_token(instance.token)
        if run_id is None:
            run = None
        else:
            try:
                run = _newest_on_its_machine(tx, tx.run(run_id))
            except RowError:  # no run can handle it any more
                run = None
    if run_id is None:
        return _unknown(ctx, provider, instance)
    return _left_over(ctx, provider, instance, run)


def _newest_on_its_machine(tx: Tx, run: Run) -> Run:
    """The newest run on the machine that was rented for this run."""
    runs = tx.runs(job_id=run.job_id, unreadable=left_out)
    had_it = [each for each in runs if run.instance_id is not None and run.instance_id in each.instance_ids]
    return max(had_it, key=lambda each: each.generation, default=run)


def _left_over(ctx: Context, provider: Provider, instance: Instance, run: Run | None) -> bool:
    has_it = run is not None and instance.id in run.instance_ids
    if run is not None and has_it and run.billed_to_ms is not None:
        return _came_back(ctx, provider, instance, run)
    if run is not None and has_it and (run.end is None or _is_at(provider, run)):
        return False  # it is in use, or engine.machines.reap ends it
    if run is not None and run.end is None and not _is_up(ctx, run):
        return False  # its migration is about to launch with the same token, or does not know its machine yet
    room = None if run is None or has_it or run.end is None else _without_phantoms(ctx, run)
    if room is not None and not room.complete:
        adopt(ctx, room, instance.token, Landed(instance.offer_id, (instance.id,)))
    else:
        if run is not None and not has_it:
            _surplus(ctx, provider, instance, run)
        key, end = f"terminate/{instance.id}", partial(provider.terminate, instance.id)
        ctx.ask(key, place_of(instance.offer_id), end)  # asked again by the next sweep
    return True


def _is_up(ctx: Context, run: Run) -> bool:
    """Whether all machines of a run are known and up."""
    known = [ctx.instances.get(each) for each in run.instance_ids]
    return run.complete and all(each is not None and each.state is InstanceState.RUNNING for each in known)


def _without_phantoms(ctx: Context, run: Run) -> Run:
    """The run without machines that its launch named, but that never existed: they are gone and were never billed."""
    machines = tuple(
        Member() if each.billed_from_ms is None and _is_phantom(ctx, each) else each for each in run.machines
    )
    if len(machines) > 1:
        return replace(run, members=machines)
    return replace(run, instance_id=machines[0].instance_id)


def _is_phantom(ctx: Context, machine: Member) -> bool:
    if machine.instance_id is None:
        return False
    not_there = machine.instance_id in ctx.instances and ctx.instances[machine.instance_id] is None
    return not_there or machine.billed_to_ms is not None


def _surplus(ctx: Context, provider: Provider, instance: Instance, run: Run) -> None:
    """Report, once, a machine for which no run can be billed."""
    if (reported := f"surplus:{provider.name}:{instance.id}") in ctx.pacing:
        return
    ctx.pacing[reported] = ctx.installation.clock.monotonic_s()
    message = (
        f"ending {instance.id} ({instance.offer_id}), which {provider.name} launched in addition to the machines that "
        "were requested: the ledger does not contain its cost"
    )
    with ctx.write() as tx:
        ctx.event(tx, SURPLUS, message, tx.outline(run.job_id), run=run, instance_id=instance.id)


def _is_at(provider: Provider, run: Run) -> bool:
    return provider_of(run.offer_id) == provider.name


def gone_key(run_id: str) -> str:
    """The key for the time since which all machines of a run are gone."""
    return f"gone/{run_id}"


def _came_back(ctx: Context, provider: Provider, instance: Instance, run: Run) -> bool:
    """Reopen the books of a machine that was assumed gone but is running, so that it is ended and booked like any
    other. Lists may be outdated, so a description decides."""
    with suppress(ProviderError):  # asked again by the next sweep, which also reads a late answer
        described = partial(provider.describe, [instance.id])
        answer = ctx.ask(f"came-back/{run.id}", place_of(instance.offer_id), described)
        if answer is not None and any(each.alive for each in answer.result()):
            ctx.instances.pop(instance.id, None)
            ctx.waits_anew(gone_key(run.id))
            machines = [
                replace(each, billed_to_ms=None) if each.instance_id == instance.id else each for each in run.machines
            ]
            with ctx.write() as tx:
                tx.set_machines(run.id, machines)
                message = f"{instance.id} was assumed gone but is running: ending and booking it"
                ctx.event(tx, "instance.returned", message, tx.outline(run.job_id), run=run)
            return True
    return False


def _unknown(ctx: Context, provider: Provider, instance: Instance) -> bool:
    """Report an unknown machine once."""
    reported = f"unknown:{provider.name}:{instance.id}"
    if reported in ctx.pacing:
        return False
    ctx.pacing[reported] = ctx.installation.clock.monotonic_s()
    with ctx.write() as tx:
        if any(event.data.get("instance_id") == instance.id for event in tx.events(kinds=(UNKNOWN,))):
            return False
        message = (
            f"{instance.id} ({instance.offer_id}) has this installation's tag but was not rented by this store, so it "
            f"is left alone. If it is not in use elsewhere, run: tradewind reap {instance.id}"
        )
        data = {"instance_id": instance.id, "offer_id": instance.offer_id}
        tx.add_event(Event(ctx.new_id("ev"), ctx.now_ms, UNKNOWN, message, ACTOR, data=data))
    return True


def _forget_unknown(ctx: Context, provider: Provider, listed: Sequence[Instance]) -> None:
    """Forget unknown machines that the provider no longer lists."""
    prefix = f"unknown:{provider.name}:"
    kept = {f"{prefix}{instance.id}" for instance in listed}
    ctx.pacing = {key: at for key, at in ctx.pacing.items() if not key.startswith(prefix) or key in kept}
