"""`explain`, `report`: why, and what it cost."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.output import Format
from orchestrator.cli.session import INSIGHT, OptionalJobArgument, OutputOption, session


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=INSIGHT, epilog="Example: tradewind explain gpt")(explain)
    app.command(rich_help_panel=INSIGHT, epilog="Example: tradewind report --html report.html")(report)


def explain(
    ctx: typer.Context,
    what: Annotated[
        str,
        typer.Argument(metavar="JOB|PLAN|MIGRATION|RUN", help="Its id, or a job's name.", autocompletion=complete.jobs),
    ],
    output: OutputOption = Format.TABLE,
) -> None:
    """Say why: what was chosen, and the one reason against each other offer.

    With the figures and their ages as of then, what would change the decision, and how it came about.
    """
    with session(ctx, output) as (client, out):
        out.show(client.explain(what))


def report(
    ctx: typer.Context,
    job: OptionalJobArgument = None,
    html: Annotated[
        Path | None, typer.Option(help="Write one self-contained page with charts.", show_default=False)
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Every ledger entry, as CSV on stdout.")] = False,
    savings_csv: Annotated[
        bool, typer.Option("--savings-csv", help="What each job paid, saved and would have cost, as CSV on stdout.")
    ] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Say what each job cost, and what it would have cost otherwise.

    paid + saved = what it would have cost, in every row. A job's comparison is made once, when it has ended and its
    machines are booked to their end; until then it is provisional. Totals are the exact sums of the ledger's entries,
    which `--csv` shows.
    """
    with session(ctx, output) as (client, out):
        view = client.report(job)
        if html is not None:
            client.write_html(view, html)
            out.note(f"wrote {html}")
            return
        if csv:
            from orchestrator.reports.entries_csv import entries_csv

            out.data(entries_csv(view.entries).rstrip("\n"))
            return
        if savings_csv:
            from orchestrator.reports.savings_csv import savings_csv as as_csv

            out.data(as_csv(view.jobs).rstrip("\n"))
            return
        out.show(view)
