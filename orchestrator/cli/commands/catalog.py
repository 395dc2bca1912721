"""`catalog show`, `catalog verify`, `catalog update`: the offline catalogue of offers and prices."""

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
    catalog.command(epilog="Example: tradewind catalog update --from https://example.org/catalog/manifest.json")(update)
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
    from orchestrator.services.catalog.contents import refuse

    with session(ctx, output) as (client, out):
        verdict = client.verify_catalog(file)
        out.show(verdict)
        refuse(verdict.findings)


def update(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Option("--from", metavar="URL|FILE", help="The manifest of a published catalogue, or its folder."),
    ],
    sha256: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="Refuse a manifest with another SHA-256.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also one that is older, or has far fewer offers.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Install a newer catalogue without waiting for a release; the one before is kept.

    Every file must be what the manifest says, and the whole must pass `catalog verify`; else nothing changes. It counts
    for all commands of this user from then on, until a newer one comes with Tradewind.
    """
    with session(ctx, output) as (client, out):
        out.show(client.update_catalog(source, sha256=sha256, force=force))
