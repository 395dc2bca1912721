"""`submit`, `plan`, `apply`: show what would be done, ask, and do it."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.invocation import current
from orchestrator.cli.output import Format, Output
from orchestrator.cli.session import PLANNING, STARTS_ANYWAY, OutputOption, WhyOption, WideOption, session
from orchestrator.cli.trial_run import trial_run_here
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.services.views import PlanView

CHANGES = 10  # `plan --check`: exit code if applying the plan would start or move something

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Job file (YAML).", show_default=False)]
YesOption = Annotated[
    bool,
    typer.Option("--yes", "-y", help="Do not ask. Refused if a limit is less than 80% likely to be met."),
]
RiskOption = Annotated[
    bool, typer.Option("--accept-risk", help="With --yes: accept a deadline and budget that are unlikely to be met.")
]


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
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
        bool, typer.Option("--no-profile", help="Do not profile the job on this machine, even if its speed is unknown.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job ends; exit 8 if it failed.")] = False,
    token: Annotated[
        str | None,
        typer.Option(
            help="A name of your choice: submitting again with it returns the same job.",
            show_default=False,
        ),
    ] = None,
    why: WhyOption = False,
    wide: WideOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Submit a job, or a group of jobs: show where it would run and what it would cost, ask, then submit.

    If the speed of the job is unknown and the job fits this machine, submit offers to profile it here first; --yes
    accepts. Without a profile the plan shows no cost and no finish time.

    If the deadline and budget are less than 80% likely to be met, --yes is refused with exit code 9 unless you also
    pass --accept-risk.

    Starts the control plane in the background if none runs. Once the job is stored the exit code is 0; any later
    failure is only a warning. With --wait, the exit code is the job's.
    """
    again = shlex.join(["tradewind", "plan", str(file)])
    with session(ctx, output, why=why, wide=wide, file=file, again=again) as (client, out):
        if client.groups.is_group_file(file):
            from orchestrator.cli.commands.groups import submit_group

            submit_group(
                client, out, file, yes=yes, accept_risk=accept_risk, dry_run=dry_run, wait=wait, token=token, why=why
            )
            return
        before = client.jobs.submitted(file, token) if token is not None and not dry_run else None
        tried = None
        if before is not None:
            job = before
        else:
            spec = client.job_files.load(file)
            if not dry_run:
                from orchestrator.services.secrets.submission import require_secrets

                require_secrets(spec)
                if (unknown := client.job_files.check_entry(spec)) is not None:
                    out.warn(unknown)
            plan = client.plans.create(spec)
            tried = None if dry_run or no_profile else trial_run_here(client, out, spec, plan, yes=yes)
            if tried is not None and tried.measured:
                plan = client.plans.create(spec)
            from orchestrator.services.jobs.feasible import require_startable

            if dry_run:
                out.show(plan)
                require_startable(plan, shown=out.format is Format.TABLE)
                return
            require_startable(plan, shown=_review(out, plan, yes=yes))
            agreed = _code_agreed(client, out, plan, yes=yes)
            if not (agreed and _agreed(out, plan, "Submit this job?", yes=yes, accept_risk=accept_risk)):
                out.note("nothing was submitted")
                raise typer.Exit(0)
            job = replace(client.jobs.submit(plan, token=token, accept_code=True), trial=tried)
        current().is_stored(f"{job.name} is submitted as {job.id}")
        if before is None:
            out.note(f"submitted {job.name} as {job.id}")
        else:
            out.note(f"{job.name} was already submitted with this token, as {job.id}")
        try:
            if not client.control_plane.status().running:
                out.note("starting the control plane in the background; to stop it: tradewind down")
                client.control_plane.up(progress=out.note, warn=out.warn)
            if wait:
                from orchestrator.cli.commands.jobs import wait_for

                job = replace(wait_for(client, out, job.id, None), trial=tried)
        except KeyboardInterrupt:
            out.note(f"\n{job.name} is submitted and continues: tradewind status {job.name}")
            raise
        except Exception as error:
            current().only_a_warning(error)
            out.show(job)
            return
        out.show(job)
        if wait:
            from orchestrator.cli.commands.jobs import exit_as

            exit_as(client, job)
            return
        out.note(f"watch it:  tradewind watch {job.name}\nread logs: tradewind logs -f {job.name}")


def plan(
    ctx: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Job files, or one group file.", show_default=False),
    ] = None,
    all_jobs: Annotated[bool, typer.Option("--all", help="Plan all submitted jobs that have not ended.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit 10 if the plan would start or move something.")] = False,
    anywhere: Annotated[
        bool, typer.Option("--anywhere", help="Include the catalogue's offers of clouds that are not enabled.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option("-o", "--save", help="Save the plan for `apply`.", show_default=False)
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="QUOTA=LIMIT",
            help="Group files only: plan with another quota, such as quota.aws.us-east-1.p5=384.",
            show_default=False,
        ),
    ] = None,
    policy_trace: Annotated[
        bool,
        typer.Option("--policy-trace", help="Show which options were compared, by which rule, and the value of each."),
    ] = False,
    why: WhyOption = False,
    wide: WideOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show where jobs would run now, what they would cost, and what would change the choice.

    For a group file: the joint plan, each job's share, and the value of a larger quota. Changes nothing. If no enabled
    provider can run a job, the plan uses the catalogue's offers and says so.
    """
    from orchestrator.services.jobs.feasible import require_feasible

    file = files[0] if files and len(files) == 1 else None
    with session(ctx, output, why=why, wide=wide, file=file) as (client, out):
        groups = [each for each in files or () if client.groups.is_group_file(each)]
        if groups:
            from orchestrator.cli.commands.groups import plan_group, require_alone

            of_jobs = {
                "--all": all_jobs,
                "--check": check,
                "--anywhere": anywhere,
                "-o": save is not None,
                "--policy-trace": policy_trace,
            }
            require_alone(groups[0], files or (), [option for option, given in of_jobs.items() if given])
            plan_group(client, out, groups[0], why=why, what_if=what_if or ())
            return
        if what_if:
            raise UsageError("--what-if is for a group file", hint="name one: tradewind plan GROUP.yaml --what-if ...")
        view = client.plans.create(
            *files or (), all_jobs=all_jobs, anywhere=True if anywhere else None, trace=policy_trace
        )
        out.show(view)
        if save is not None:
            client.plans.save(view, save)
            out.note(f"saved; to act on it: tradewind apply {shlex.quote(str(save))}")
        require_feasible(view, shown=out.format is Format.TABLE)
        if check and view.changes:
            raise typer.Exit(CHANGES)


def apply(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan saved by `plan -o`.", show_default=False)],
    yes: YesOption = False,
    accept_risk: RiskOption = False,
    why: WhyOption = False,
    wide: WideOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Apply a saved plan exactly as it was reviewed.

    Refuses with exit code 7 if the market or the jobs have changed since, and says what changed. Once the plan is
    accepted the exit code is 0; any later failure is only a warning.
    """
    with session(ctx, output, why=why, wide=wide, again="") as (client, out):
        view = client.plans.load(file)
        client.plans.check(view)
        _review(out, view, yes=yes)
        agreed = _code_agreed(client, out, view, yes=yes)
        if not (agreed and _agreed(out, view, "Apply this plan?", yes=yes, accept_risk=accept_risk)):
            out.note("nothing was changed")
            raise typer.Exit(0)
        accepted = client.plans.apply(view, accept_code=True)
        current().is_stored(f"the plan {view.id} is accepted")
        out.show(accepted)
        if not accepted.control_plane:
            out.note("starting the control plane in the background; to stop it: tradewind down")
            with out.after_ctrl_c(STARTS_ANYWAY):
                client.control_plane.up(progress=out.note, warn=out.warn)


def _code_agreed(client: "Client", out: Output, plan: "PlanView", *, yes: bool) -> bool:
    """Whether the code of the plan's new jobs may be uploaded. Raises UsageError if the user cannot be asked."""
    from orchestrator.services.jobs.code import remedy

    for job in plan.new_jobs:
        code = client.jobs.code(job.spec)
        if code is None:
            continue
        files = "1 file" if code.files == 1 else f"{code.files:,} files"
        are = "is" if code.files == 1 else "are"
        out.note(f"{job.name}: {files} of {code.folder} {are} uploaded ({code.size_bytes / 1e6:,.1f} MB)")
        if code.concern is None:
            continue
        if yes:
            out.warn(code.concern, remedy(code.folder))
        elif not out.can_ask or out.format is Format.JSON:
            raise UsageError(code.concern, hint=remedy(code.folder))
        else:
            out.note(f"{code.concern}\n{remedy(code.folder)}")
            if not out.confirm("Upload it?"):
                return False
    return True


def _agreed(out: Output, plan: "PlanView", question: str, *, yes: bool, accept_risk: bool) -> bool:
    """Whether the user agrees to the plan. Raises LimitError if `--yes` is not enough."""
    from orchestrator.services.jobs.feasible import require_accepted_risk

    if not yes:
        return out.confirm(question)
    if not accept_risk:
        require_accepted_risk(plan)
    return True


def _review(out: Output, plan: "PlanView", *, yes: bool) -> bool:
    """Whether to show the plan, on stderr. With `--output json`, only if the user is asked to agree to it; otherwise
    its cautions are warnings."""
    shown = out.format is Format.TABLE or (out.can_ask and not yes)
    if shown:
        out.review(plan)
    else:
        for caution in plan.cautions:
            out.warn(caution)
    return shown
