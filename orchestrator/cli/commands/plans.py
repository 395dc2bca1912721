"""`submit`, `plan`, `apply`: look at what would be done, agree, have it done."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.output import Format, Output
from orchestrator.cli.session import PLANNING, OutputOption, session
from orchestrator.cli.stored import is_stored, only_a_warning
from orchestrator.cli.tried import tried_here

if TYPE_CHECKING:
    from orchestrator.services.views import PlanView

CHANGES = 10  # `plan --check`: exit code when applying it would start or move something

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Job file (YAML).", show_default=False)]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask, unless deadline and budget are kept with less than 80 %.")
]
RiskOption = Annotated[
    bool, typer.Option("--accept-risk", help="With --yes: also where deadline and budget are unlikely to be kept.")
]


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=PLANNING, epilog="Example: tradewind submit examples/gpt.yaml --yes --wait")(submit)
    app.command(rich_help_panel=PLANNING, epilog="Example: tradewind plan examples/gpt.yaml -o plan.json")(plan)
    app.command(rich_help_panel=PLANNING, epilog="Example: tradewind apply plan.json")(apply)


def submit(
    ctx: typer.Context,
    file: FileArgument,
    yes: YesOption = False,
    accept_risk: RiskOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    no_profile: Annotated[
        bool, typer.Option("--no-profile", help="Don't profile the job on this machine, even if its speed is unknown.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; exit 8 if it failed.")] = False,
    token: Annotated[
        str | None,
        typer.Option(
            help="A name of your choice for this submission: made again with it, it is the same job.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Hand a job over: shows where it would run and what it would cost, asks, then submits it.

    If the speed of the job is unknown and the job fits this machine, submit offers to profile it here first; --yes
    accepts. Without a profile the plan shows no cost and no finish time.
    If the deadline and budget are less than 80 % likely to be met, --yes is refused with exit code 9 unless you also
    pass --accept-risk. Starts the control plane in the background when none runs. Once the job is stored the exit code
    is 0; what fails after that is a warning. Only with --wait the job's own end counts.
    """
    with session(ctx, output) as (client, out):
        spec = client.load(file)
        before = client.submitted(spec, token) if token is not None and not dry_run else None
        tried = None
        if before is not None:
            job = before
        else:
            if not dry_run and (unknown := client.check_entry(spec)) is not None:
                out.note(unknown)
            plan = client.plan(spec)
            tried = None if dry_run or no_profile else tried_here(client, out, spec, plan, yes=yes)
            if tried is not None and tried.measured:
                plan = client.plan(spec)
            if dry_run:
                from orchestrator.services.jobs.plan import require_startable

                out.show(plan)
                require_startable(plan)
                return
            _review(out, plan)
            if not _agreed(out, plan, "Submit this job?", yes=yes, accept_risk=accept_risk):
                out.note("nothing was submitted")
                raise typer.Exit(0)
            job = replace(client.submit(plan, token=token), trial=tried)
        is_stored(f"{job.name} is submitted as {job.id}")
        if before is None:
            out.note(f"submitted {job.name} as {job.id}")
        else:
            out.note(f"{job.name} was submitted before with this token, as {job.id}")
        try:
            if not client.control_plane().running:
                out.note("no control plane runs here: starting one in the background (stop it: tradewind down)")
                client.up(progress=out.note)
            if wait:
                from orchestrator.cli.commands.jobs import wait_for

                job = replace(wait_for(client, out, job.id, None), trial=tried)
        except KeyboardInterrupt:
            out.note(f"\n{job.name} is submitted and goes on: tradewind status {job.name}")
            raise
        except Exception as error:
            only_a_warning(error)
            out.show(job)
            return
        out.show(job)
        if wait:
            from orchestrator.cli.commands.jobs import exit_as

            exit_as(job)
        out.note(f"follow it: tradewind logs -f {job.name}     why there: tradewind explain {job.name}")


def plan(
    ctx: typer.Context,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Job files.", show_default=False)
    ] = None,
    all_jobs: Annotated[bool, typer.Option("--all", help="All submitted jobs that have not ended.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit 10 if it would start or move something.")] = False,
    anywhere: Annotated[
        bool, typer.Option("--anywhere", help="Plan with the catalogue's offers, also of clouds not enabled.")
    ] = False,
    save: Annotated[Path | None, typer.Option("-o", "--save", help="Save it for `apply`.", show_default=False)] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show where jobs would run now, what that would cost, and why not elsewhere.

    Changes nothing. Where no enabled provider can run a job, the plan is about the catalogue's offers and says so.
    """
    from orchestrator.services.jobs.plan import require_feasible

    with session(ctx, output) as (client, out):
        view = client.plan(*files or (), all_jobs=all_jobs, anywhere=True if anywhere else None)
        out.show(view)
        if save is not None:
            client.save_plan(view, save)
            out.note(f"saved; act on it: tradewind apply {save}")
        require_feasible(view)
        if check and view.changes:
            raise typer.Exit(CHANGES)


def apply(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="PLAN", help="Saved by `plan -o`.", show_default=False)],
    yes: YesOption = False,
    accept_risk: RiskOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Act on a saved plan exactly as it was reviewed.

    Refuses, with exit code 7, when the market or the jobs moved since, and says what did. Once the plan is accepted the
    exit code is 0; what fails after that is a warning.
    """
    with session(ctx, output) as (client, out):
        view = client.load_plan(file)
        client.check_plan(view)
        _review(out, view)
        if not _agreed(out, view, "Apply this plan?", yes=yes, accept_risk=accept_risk):
            out.note("nothing was changed")
            raise typer.Exit(0)
        accepted = client.apply(view)
        is_stored(f"the plan {view.id} is accepted")
        out.show(accepted)
        if not accepted.control_plane:
            out.note("no control plane runs here: starting one in the background (stop it: tradewind down)")
            client.up(progress=out.note)


def _agreed(out: Output, plan: "PlanView", question: str, *, yes: bool, accept_risk: bool) -> bool:
    """Raises LimitError where `--yes` is not enough."""
    from orchestrator.services.jobs.plan import require_accepted_risk

    if not yes:
        return out.confirm(question)
    if not accept_risk:
        require_accepted_risk(plan)
    return True


def _review(out: Output, view: object) -> None:
    from orchestrator.cli.render import render
    from orchestrator.services.views import PlanView

    assert isinstance(view, PlanView)
    out.note(render(view, color=False))
