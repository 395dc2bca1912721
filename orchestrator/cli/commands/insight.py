"""`explain`, `report`, `costs`: why Tradewind decided what it did, and what that cost."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.output import Format
from orchestrator.cli.session import INSIGHT, OptionalJobArgument, OutputOption, WideOption, session
from orchestrator.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command(rich_help_panel=INSIGHT, epilog="Example: tradewind explain gpt")(explain)
    app.command(rich_help_panel=INSIGHT, epilog="Example: tradewind report --html report.html")(report)
    app.command(rich_help_panel=INSIGHT, epilog="Example: tradewind costs --by project --month 2026-11")(costs)


def explain(
    ctx: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            metavar="JOB|PLAN|MIGRATION|RUN", help="An id, or the name of a job.", autocompletion=complete.jobs
        ),
    ],
    wide: WideOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Explain a decision: the chosen offer, and the reason against each other offer.

    Shows figures and prices as of the decision, what led to it, and what would have changed it.
    """
    with session(ctx, output, wide=wide) as (client, out):
        out.show(client.jobs.explain(what))


def report(
    ctx: typer.Context,
    job: OptionalJobArgument = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a self-contained HTML page with charts.", show_default=False)
    ] = None,
    month: Annotated[
        str | None,
        typer.Option(metavar="YYYY-MM", help="Only the jobs that ended in this month (UTC).", show_default=False),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print every ledger entry as CSV.")] = False,
    savings_csv: Annotated[
        bool, typer.Option("--savings-csv", help="Print what each job paid, saved and would have cost, as CSV.")
    ] = False,
    wide: WideOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Report what each job cost, and what it would have cost without Tradewind.

    In every row, paid + saved = what it would have cost. A job's comparison is final once the job has ended and all its
    machine time is booked; until then it is provisional. Totals are the exact sums of the ledger's entries, which
    `--csv` lists. The table rounds amounts; `--wide` shows them exactly.
    """
    with session(ctx, output, wide=wide) as (client, out):
        if (csv or savings_csv) and output is Format.JSON:
            raise UsageError("--csv and --output json exclude each other", hint="omit one of them")
        if csv and savings_csv:
            raise UsageError("--csv and --savings-csv exclude each other", hint="omit one of them")
        if csv:
            client.reports.write_entries(sys.stdout, job, month=month)
            return
        view = client.reports.get(job, month=month)
        if html is not None:
            client.reports.write_html(view, html)
            out.note(f"wrote {html}")
            if output is Format.JSON:
                out.show(view)
            return
        if savings_csv:
            from orchestrator.reports.savings_csv import savings_csv as as_csv

            out.data(as_csv(view.jobs).rstrip("\n"))
            return
        out.show(view)


def costs(
    ctx: typer.Context,
    by: Annotated[
        str,
        typer.Option(metavar="GROUP", help="project, owner, kind, job, cloud, offer, basis, day or month."),
    ] = "project",
    month: Annotated[
        str | None,
        typer.Option(metavar="YYYY-MM", help="This month (UTC).  [default: the current one]", show_default=False),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Start: 30d ago, or a date such as 2026-11-21.  [default: 30 days before --until]",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End, written like --since.  [default: now]", show_default=False),
    ] = None,
    project: Annotated[str | None, typer.Option(help="Only this project.", show_default=False)] = None,
    owner: Annotated[str | None, typer.Option(help="Only jobs of this owner.", show_default=False)] = None,
    kind: Annotated[
        str | None, typer.Option(help="Only costs of this kind, such as compute or egress.", show_default=False)
    ] = None,
    cloud: Annotated[str | None, typer.Option(help="Only machines of this cloud.", show_default=False)] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print all groups as CSV, with exact amounts.")] = False,
    wide: WideOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show what was spent, by group, compared with the previous period.

    Totals are the exact sums of the ledger's entries. A change is split into its causes: more or fewer machine hours,
    and a higher or lower price per hour. Additional hours are valued at the previous price, and at the current price
    for a new group; the causes of the total are the sums over all groups. Days and months are not compared. A ledger
    entry that spans midnight (UTC) or an end of the period is divided there in proportion to time.
    """
    from typing import cast

    from orchestrator.reports.costs import CostGroup, costs_csv
    from orchestrator.store import CostFilter

    with session(ctx, output, wide=wide) as (client, out):
        if csv and output is Format.JSON:
            raise UsageError("--csv and --output json exclude each other", hint="omit one of them")
        only = CostFilter(project=project, owner=owner, kind=kind, provider=cloud)
        view = client.reports.costs(cast(CostGroup, by), month=month, since=since, until=until, only=only, every=csv)
        if csv:
            out.data(costs_csv(view).rstrip("\n"))
            return
        out.show(view)
