"""`catalog show`, `catalog verify`: the offline catalogue of offers and prices."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.output import Format
from orchestrator.cli.session import MARKET, OutputOption, session

catalog = typer.Typer(no_args_is_help=True, help="The offline catalogue of offers and list prices.")

FileOption = Annotated[
    Path | None,
    typer.Option("--file", help="A CSV file of your own offers and prices (docs/catalog.md).", show_default=False),
]


def register(app: typer.Typer) -> None:
    catalog.command(epilog="Example: tradewind catalog show")(show)
    catalog.command(epilog="Example: tradewind catalog verify --file my.csv")(verify)
    app.add_typer(catalog, name="catalog", rich_help_panel=MARKET)


def show(ctx: typer.Context, file: FileOption = None, output: OutputOption = Format.TABLE) -> None:
    """Show what the catalogue holds: offers by cloud, their sources and licences, and how old each is.

    With --file it also counts the rows of that file, which win over equal ones of the catalogue.
    """
    with session(ctx, output) as (client, out):
        out.show(client.catalog(file))


def verify(ctx: typer.Context, file: FileOption = None, output: OutputOption = Format.TABLE) -> None:
    """Check the catalogue, or a file of your own: phantom and absurd prices, contradictions, missing sources.

    Each finding names file, line, field and remedy. Exit code 3 if there is one.
    """
    from orchestrator.services.catalog import refuse

    with session(ctx, output) as (client, out):
        verdict = client.verify_catalog(file)
        out.show(verdict)
        refuse(verdict.findings)
