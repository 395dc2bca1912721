"""`queue`, `status`, `nodes`, `ssh`, `logs`, `watch`, `wait`, `events`, `fetch`: what jobs do and what they produce."""

import subprocess
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.output import Format, Output
from orchestrator.cli.session import (
    GOES_ON,
    JOBS,
    CursorOption,
    GroupOption,
    JobArgument,
    OptionalJobArgument,
    OutputOption,
    WideOption,
    session,
)
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.services.views import JobList, JobView

SHOWN = 100  # jobs, in a table
RankOption = Annotated[
    int | None, typer.Option("--rank", min=0, help="Print only what the process with this rank wrote.")
]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Keep printing until the job ends.")]


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command(rich_help_panel=JOBS, epilog="Example: tradewind queue --all")(queue)
    app.command(rich_help_panel=JOBS, epilog="Example: tradewind status gpt")(status)
    app.command(rich_help_panel=JOBS, epilog="Example: tradewind nodes gpt")(nodes)
    app.command(rich_help_panel=JOBS, epilog="Example: tradewind ssh gpt -- nvidia-smi")(ssh)
    app.command(rich_help_panel=JOBS, epilog="Example: tradewind logs -f gpt")(logs)
    app.command(rich_help_panel=JOBS, epilog="Example: tradewind watch gpt")(watch)
    app.command(rich_help_panel=JOBS, epilog="Example: tradewind wait gpt --timeout 600")(wait)
    app.command(rich_help_panel=JOBS, epilog="Example: tradewind events gpt --output json")(events)
    app.command(rich_help_panel=JOBS, epilog="Example: tradewind fetch gpt --to results/")(fetch)


def queue(
    ctx: typer.Context,
    all_jobs: Annotated[bool, typer.Option("--all", "-a", help="Include jobs that have ended.")] = False,
    project: Annotated[str | None, typer.Option(help="Only jobs of this project.", show_default=False)] = None,
    group: GroupOption = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"Show at most this many jobs, the oldest.  [default: {SHOWN} in a table]", show_default=False
        ),
    ] = None,
    cursor: CursorOption = None,
    wide: WideOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """List jobs: state, progress, where they run, and what they have cost so far."""
    if limit is None and output is Format.TABLE:
        limit = SHOWN
    with session(ctx, output, wide=wide) as (client, out):
        _show_jobs(
            client, out, client.jobs.list(ended=all_jobs, project=project, group=group, limit=limit, cursor=cursor)
        )


def _show_jobs(client: "Client", out: Output, found: "JobList") -> None:
    _warn_if_unattended(client, out, any(map(_goes_on, found.jobs)))
    out.show(found)


def _goes_on(job: "JobView") -> bool:
    """Whether the job needs a control plane."""
    from orchestrator.model import TERMINAL

    return job.state not in (*TERMINAL, "paused") or "resume" in job.requested


def _warn_if_unattended(client: "Client", out: Output, something_runs: bool) -> bool:
    """Warn, and return True, if no control plane runs, so that jobs and machines are shown as they were when the last
    one stopped."""
    if not something_runs or (unattended := client.control_plane.status().unattended) is None:
        return False
    why, remedy = unattended
    out.warn(f"{why}, so jobs are not watched or moved, and costs are not booked", remedy)
    return True


def status(
    ctx: typer.Context, job: OptionalJobArgument = None, wide: WideOption = False, output: OutputOption = Format.TABLE
) -> None:
    """Show one job in detail: its runs, the move in progress, and the latest events.

    Without JOB, list all jobs as `queue` does.
    """
    with session(ctx, output, wide=wide) as (client, out):
        if job is None:
            _show_jobs(client, out, client.jobs.list(limit=None))
        else:
            out.show(client.jobs.status(job))


def nodes(
    ctx: typer.Context, job: OptionalJobArgument = None, wide: WideOption = False, output: OutputOption = Format.TABLE
) -> None:
    """List the machines that are up: since when, what they cost, and their latest reports.

    Without JOB, this includes machines that the store did not rent. The list comes from the providers; if one does not
    answer, it shows the machines in the store.
    """
    with session(ctx, output, wide=wide) as (client, out):
        found = client.nodes.list(job)
        _warn_if_unattended(client, out, bool(found.nodes))
        out.show(found)


def ssh(
    ctx: typer.Context,
    job: JobArgument,
    command: Annotated[
        list[str] | None, typer.Argument(help="The command to run, after `--`; a shell if omitted.", show_default=False)
    ] = None,
    node: Annotated[
        int, typer.Option(min=0, help="The number of the job's machine, as shown by `tradewind nodes`.")
    ] = 0,
) -> None:
    """Log in to the machine that a job trains on, or run a command there.

    Only machines that you own (provider static) offer a login. It starts in the folder of the machine's files. Exits
    with the exit code of the command.
    """
    with session(ctx, Format.TABLE) as (client, _):
        line = client.nodes.shell(job, command or (), node=node)
    code = subprocess.run(line, check=False).returncode
    raise typer.Exit(code if code >= 0 else 128 - code)  # as shells report that a signal ended it


def logs(
    ctx: typer.Context,
    job: JobArgument,
    follow: FollowOption = False,
    rank: RankOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Print the output of the job, across all its runs and machines.

    Each line starts with the number of the run and its zone, then the rank of the process if there are several. After a
    move, lines have a new prefix.
    """
    with session(ctx, output) as (client, out):
        hinting = out.after_ctrl_c(GOES_ON.format(job=job)) if follow else nullcontext()
        nothing = True
        with hinting:
            if follow:
                _note_if_nothing_ran(client, out, client.jobs.get(job))
            for line in client.jobs.logs(job, follow=follow, rank=rank):
                nothing = False
                out.show(line, stream=True)
        if nothing and not follow and not _note_if_nothing_ran(client, out, found := client.jobs.get(job)):
            out.note(f"{found.name} has written nothing{'' if found.finished_at_ms else ' yet'}")


def _note_if_nothing_ran(client: "Client", out: Output, job: "JobView") -> bool:
    """Note that a job has not run, and why; returns whether it has not run."""
    from orchestrator.services.jobs.current import why_nothing_ran

    if (why := why_nothing_ran(job)) is not None:
        out.note(why)
        _warn_if_unattended(client, out, _goes_on(job))
    return why is not None


def watch(ctx: typer.Context, job: OptionalJobArgument = None, output: OutputOption = Format.TABLE) -> None:
    """Show jobs, the prices of their offers and the latest events, until Ctrl-C or until JOB ends.

    On a terminal the view is redrawn; elsewhere each change is printed as a line. Reads only the store, so it keeps
    running while the control plane is stopped.
    """
    from orchestrator.cli.watching import REDRAW_WALL_S, Watcher, display, over
    from providers.clock import SystemClock

    clock = SystemClock()
    with session(ctx, output) as (client, out):
        watcher = Watcher(client, job)
        with suppress(KeyboardInterrupt), display(out, to_stdout=True) as show:
            while True:
                view = watcher.look()
                show(view)
                if job is not None and over(view):
                    break
                clock.sleep(REDRAW_WALL_S)


def wait(
    ctx: typer.Context,
    job: JobArgument,
    timeout: Annotated[
        float | None, typer.Option(help="Give up after this many real seconds (exit 8).", min=0, show_default=False)
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Wait until the job ends and its cost is final.

    Exit code 0 if it finished, 8 if it failed, was cancelled or is paused.
    """
    from orchestrator.errors import PartialFailure

    with session(ctx, output) as (client, out):
        client.jobs.get(job)  # an unknown job is an error; a warning before it would only distract
        warned = _warn_if_unattended(client, out, True)  # an ended job, too: its cost may not be booked yet
        with out.after_ctrl_c(GOES_ON.format(job=job)):
            try:
                view = wait_for(client, out, job, timeout)
            except PartialFailure as error:
                raise (PartialFailure(str(error), hint=f"tradewind status {job}") if warned else error) from None
        out.show(view)
        exit_as(client, view)


def events(
    ctx: typer.Context,
    job: OptionalJobArgument = None,
    follow: FollowOption = False,
    limit: Annotated[int, typer.Option(help="Show at most this many, the newest.", min=1)] = 100,
    cursor: CursorOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the audit trail: who did what, when and why, oldest first."""
    if follow and cursor is not None:
        raise UsageError("--follow shows new events, --cursor earlier ones", hint="omit one of them")
    with session(ctx, output) as (client, out):
        if not follow:
            out.show(client.events.list(job, limit=limit, cursor=cursor))
            return
        for batch in client.events.follow(job, limit=limit):
            out.show(batch, stream=True)


def fetch(
    ctx: typer.Context,
    job: JobArgument,
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="Files or folders below the job's output folder.", show_default=False),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="Folder to copy to.  [default: the job's name]", show_default=False)
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Copy outputs of the job to this machine: each PATH, or the outputs named in the job file, or all if it names
    none.

    While a job runs on another host, its outputs are those of the last checkpoint. Exit code 8 if some do not exist. If
    the folder already holds the outputs of another job with the same name, nothing is copied: choose another folder
    with `--to`.
    """
    with session(ctx, output) as (client, out), out.progress() as tick:

        def progress(path: str, done_bytes: int, total_bytes: int) -> None:
            tick(f"{path} (MB)", done_bytes // 1_000_000, max(1, total_bytes // 1_000_000))

        with out.after_ctrl_c("not all files were fetched; the fetched files are complete"):
            fetched = client.jobs.fetch(job, to, paths=paths or (), progress=progress)
        out.show(fetched)
        if fetched.missing:
            from orchestrator.errors import PartialFailure

            ended = client.jobs.get(job).finished_at_ms is not None
            raise PartialFailure(
                f"the job has not written: {', '.join(fetched.missing)}",
                hint=f"it has ended; see its output: tradewind logs {job}"
                if ended
                else f"it has not ended yet: tradewind status {job}",
            )


def wait_for(client: "Client", out: Output, job: str, timeout_s: float | None) -> "JobView":
    """Wait until a job ends, showing progress on stderr."""
    from orchestrator.cli.watching import REDRAW_WALL_S, Watcher, display
    from providers.clock import SystemClock

    clock, due_s = SystemClock(), 0.0
    watcher = Watcher(client, job)
    with display(out, to_stdout=False) as show:

        def progress(_view: "JobView") -> None:
            nonlocal due_s
            if clock.monotonic_s() >= due_s:
                show(watcher.look())
                due_s = clock.monotonic_s() + REDRAW_WALL_S

        return client.jobs.wait(job, timeout_s=timeout_s, progress=progress)


def exit_as(client: "Client", job: "JobView") -> None:
    """Raises PartialFailure unless the job finished."""
    if job.state != "finished":
        from orchestrator.errors import PartialFailure

        typed = job.name if client.jobs.get(job.name).id == job.id else job.id  # a newer job may have its name
        if job.state == "paused":
            from orchestrator.services.jobs.explain import why_paused

            raise PartialFailure(why_paused(job))  # it names the command that continues the job
        raise PartialFailure(f"{job.name} {job.state}", hint=f"tradewind logs {typed}")
