"""`backtest`: compares policies with each other and with the optimum on recorded markets."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.output import Format, Output
from orchestrator.cli.session import INSIGHT, Globals, OutputOption, WideOption

if TYPE_CHECKING:
    from orchestrator.arena.group_policies import GroupBacktest


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    example = "Example: tradewind backtest examples/scenarios/small.yaml --html arena.html"
    app.command(rich_help_panel=INSIGHT, epilog=example)(backtest)


def backtest(
    ctx: typer.Context,
    scenario: Annotated[
        Path | None, typer.Argument(metavar="SCENARIO", help="A scenario file (YAML).", show_default=False)
    ] = None,
    paper: Annotated[
        Path | None,
        typer.Option(help="Reproduce the core paper's tables from the data in this folder.", show_default=False),
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option(help="Compare policies for collections of jobs on this trace of jobs (CSV).", show_default=False),
    ] = None,
    throughputs: Annotated[
        Path | None,
        typer.Option(
            help="With --jobs: how fast each type of job runs on each kind of GPU (CSV).",
            show_default="throughputs.csv beside the trace",
        ),
    ] = None,
    cluster: Annotated[
        str,
        typer.Option(
            help="With --jobs: GPUs by kind, in the order they are filled, and the price of one in USD per hour."
        ),
    ] = "v100=8@0.74,p100=16@0.43,k80=24@0.135",
    policy: Annotated[
        str, typer.Option(help="With --jobs: the policies to compare, separated by commas.", show_default="all")
    ] = "",
    html: Annotated[
        Path | None,
        typer.Option(help="Write a self-contained HTML page with distributions and timelines.", show_default=False),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the result for the dashboard.")] = False,
    processes: Annotated[int, typer.Option(min=1, help="Number of runs to play in parallel.")] = 1,
    wide: WideOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Compare policies with each other and with the clairvoyant optimum on recorded markets.

    Every policy plays the same windows. The table shows the cost over the optimum, paired differences, where each
    dollar was saved, failures and missed deadlines. Exit code 8 if a policy failed.

    With --jobs, it compares policies for collections of jobs that share a cluster: completion times, cost and missed
    deadlines.
    """
    from orchestrator.arena.paper_tables import paper_tables
    from orchestrator.arena.results import summarise
    from orchestrator.arena.runner import run
    from orchestrator.arena.scenario import load_scenario
    from orchestrator.errors import PartialFailure, UsageError
    from orchestrator.formats.whole_file import write_whole

    out = Output(output, wide=wide)
    if sum(each is not None for each in (scenario, paper, jobs)) != 1:
        hint = "see examples/scenarios"
        raise UsageError("name a scenario, or a folder with --paper, or a trace of jobs with --jobs", hint=hint)
    _require_use(ctx, jobs=jobs is not None, scenario=scenario is not None)
    if jobs is not None:
        out.show(_of_jobs(out, jobs, throughputs, cluster, policy))
        return
    if paper is not None:
        out.show(paper_tables(paper))
        return
    assert scenario is not None
    plan = load_scenario(scenario)
    if html is not None and not html.absolute().parent.is_dir():
        raise UsageError(f"{html} cannot be written: the folder {html.parent} does not exist", hint="create it first")
    if html is not None:
        with _writing(html):
            is_folder = html.is_dir()
        if is_folder:
            raise UsageError(f"{html} is a folder", hint="name a file, such as arena.html")
    with out.progress() as tick:
        played = run(plan, processes=processes, progress=lambda done, whole: tick(plan.name, done, whole))
    view = summarise(plan, played)
    if html is not None:
        from orchestrator.arena.page import page

        with _writing(html):
            write_whole(html, page(view, played))
        out.note(f"wrote {html}")
    if keep:
        from orchestrator.config import load_config
        from orchestrator.reports.backtests import keep as keep_it

        options = ctx.find_object(Globals) or Globals()
        kept = load_config({} if options.state_dir is None else {"state_dir": str(options.state_dir)})
        with _writing(kept.state_dir):
            file = keep_it(kept.state_dir, view)
        out.note(f"kept {file}")
    out.show(view)
    if view.failures:
        raise PartialFailure(f"{len(view.failures)} runs failed: {view.failures[0]}")


def _require_use(ctx: typer.Context, *, jobs: bool, scenario: bool) -> None:
    """Raises UsageError for an option that would be ignored."""
    from orchestrator.errors import UsageError

    of_jobs, of_scenarios = ("throughputs", "cluster", "policy"), ("html", "keep", "processes")
    for names, used, of in ((of_jobs, jobs, "with --jobs"), (of_scenarios, scenario, "for a scenario")):
        for name in names:
            source = ctx.get_parameter_source(name)
            if not used and source is not None and source.name != "DEFAULT":
                raise UsageError(f"--{name} is an option only {of}", hint=f"omit --{name}")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Raises UsageError if a file or folder cannot be written."""
    from orchestrator.errors import UsageError

    try:
        yield
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint="choose another path") from error


def _of_jobs(out: Output, trace: Path, throughputs: Path | None, cluster: str, policy: str) -> "GroupBacktest":
    from orchestrator.arena.group_policies import Done, backtest, cluster_of, named, room_for
    from orchestrator.arena.job_traces import read_jobs

    policies, gpus = named(policy), cluster_of(cluster)
    table = throughputs or trace.parent / "throughputs.csv"
    read = read_jobs(trace, table, list(gpus), room=room_for(policies, gpus))
    with out.progress() as tick:

        def done(name: str) -> Done:
            return lambda ended, whole: tick(name, ended, whole)

        return backtest(read, gpus, policies, done)
