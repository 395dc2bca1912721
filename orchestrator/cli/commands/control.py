"""`migrate`, `pause`, `resume`, `budget set`, `cancel`, `secrets give`: requests of a user, which the control plane
carries out."""

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.help import Commands
from orchestrator.cli.output import Format, Output
from orchestrator.cli.session import (
    CONTROL,
    JobArgument,
    OptionalJobArgument,
    OutputOption,
    session,
)
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.services.views import Accepted


budget = Commands(no_args_is_help=True, help="Set the budget of a job or a group.")
secrets = Commands(no_args_is_help=True, help="Give the control plane the secrets of a job.")

OrderedGroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        help="Instead of JOB: a group, by name or id; the command applies to its jobs that have not ended.",
        autocompletion=complete.groups,
        show_default=False,
    ),
]
ProjectOption = Annotated[
    str | None,
    typer.Option(help="With --group: its project, if several have a group of that name.", show_default=False),
]
BudgetGroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        help="Instead of JOB: a group, by name or id, whose budget is set.",
        autocompletion=complete.groups,
        show_default=False,
    ),
]
OptionalAmountArgument = Annotated[
    str | None, typer.Argument(metavar="USD", help='Such as "2.50".', show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    budget.command("set", epilog="Example: tradewind budget set gpt 2.50")(set_budget)
    app.add_typer(budget, name="budget", rich_help_panel=CONTROL)
    app.command(
        rich_help_panel=CONTROL,
        epilog="Example: tradewind migrate gpt --to local/south/south-a/sim.small/spot",
    )(migrate)
    app.command(rich_help_panel=CONTROL, epilog="Example: tradewind pause gpt")(pause)
    app.command(rich_help_panel=CONTROL, epilog="Example: tradewind resume gpt")(resume)
    app.command(rich_help_panel=CONTROL, epilog="Example: tradewind cancel gpt --yes")(cancel)
    secrets.command(epilog="Example: WANDB_API_KEY=... tradewind secrets give gpt")(give)
    app.add_typer(secrets, name="secrets", rich_help_panel=CONTROL)


def migrate(
    ctx: typer.Context,
    job: JobArgument,
    to: Annotated[
        str | None, typer.Option(metavar="OFFER", help="Offer id.  [default: the best other offer]", show_default=False)
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Move a running job now, to a given offer or to the best other one.

    No completed steps are lost.
    """
    with session(ctx, output) as (client, out):
        _show(out, client.jobs.migrate(job, to))


def pause(
    ctx: typer.Context,
    job: OptionalJobArgument = None,
    group: OrderedGroupOption = None,
    project: ProjectOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Pause a job, or all jobs of a group: write a checkpoint and release the machine.

    Nothing is billed until `resume`.
    """
    with session(ctx, output) as (client, out):
        one = _job_or_group("pause", job, group, project)
        _show(out, client.jobs.pause(one) if one is not None else client.groups.pause(group or "", project=project))


def resume(
    ctx: typer.Context,
    job: OptionalJobArgument = None,
    group: OrderedGroupOption = None,
    project: ProjectOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Resume a paused job, or the paused jobs of a group, from its checkpoint, on the offer that is best now."""
    with session(ctx, output) as (client, out):
        one = _job_or_group("resume", job, group, project)
        _show(out, client.jobs.resume(one) if one is not None else client.groups.resume(group or "", project=project))


def set_budget(
    ctx: typer.Context,
    job: OptionalJobArgument = None,
    usd: OptionalAmountArgument = None,
    group: BudgetGroupOption = None,
    project: ProjectOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Change the budget of a job or a group; it must exceed what was already spent.

    With --group, omit JOB. Each job of the group keeps its part of the budget; `tradewind budget set JOB` changes one
    part. If one job has all of the remaining budget, it gets the whole increase. The first budget of a group is divided
    among its jobs without a budget.

    Use `tradewind resume JOB` to continue a job that was paused because of its budget.
    """
    with session(ctx, output) as (client, out):
        if group is not None and usd is None:
            job, usd = None, job
        if usd is None:
            example = "--group sweep 10" if group is not None else "gpt 2.50"
            raise UsageError("the amount is missing", hint=f"for example: tradewind budget set {example}")
        if (one := _job_or_group("budget set", job, group, project)) is not None:
            _show(out, client.jobs.set_budget(one, usd))
        else:
            _show(out, client.groups.set_budget(group or "", usd, project=project))


def cancel(
    ctx: typer.Context,
    job: OptionalJobArgument = None,
    group: OrderedGroupOption = None,
    project: ProjectOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Cancel a job, or all jobs of a group, permanently.

    Checkpoints, outputs and costs are kept.
    """
    with session(ctx, output) as (client, out):
        if (one := _job_or_group("cancel", job, group, project)) is None:
            found = client.groups.get(group or "", project=project)
            if not yes and not out.confirm(f"Cancel the jobs of {found.name} that have not ended?"):
                out.note("nothing was cancelled")
                raise typer.Exit(0)
            _show(out, client.groups.cancel(found.id))
            return
        view = client.jobs.get(one)
        ended = view.finished_at_ms is not None  # no confirmation needed: the answer says that it has ended
        if not yes and not ended and not out.confirm(f"Cancel {view.name} at step {view.step}?"):
            out.note("nothing was cancelled")
            raise typer.Exit(0)
        _show(out, client.jobs.cancel(view.id))


def give(ctx: typer.Context, job: JobArgument, output: OutputOption = Format.TABLE) -> None:
    """Give the control plane the secrets that the job file names, from this environment.

    `submit` does this, too. Run it again after the control plane restarts, unless secrets.key_file is set: until then
    the job keeps training, but cannot start on another machine.
    """
    with session(ctx, output) as (client, out):
        out.show(client.secrets.give(job))


def _job_or_group(command: str, job: str | None, group: str | None, project: str | None) -> str | None:
    """The job that a command applies to; None if it applies to a group. Raises UsageError."""
    if (job is None) == (group is None):
        raise UsageError(f"{command} takes a job or --group", hint="name one of the two")
    if job is not None and project is not None:
        raise UsageError(
            "--project selects the project of --group, but no --group is given",
            hint="omit --project: the job's name or id is enough",
        )
    return job


def _show(out: Output, accepted: "Accepted") -> None:
    out.show(accepted)
    if not accepted.control_plane:
        out.warn("no control plane is running here; the next one will carry this out", "tradewind up")
