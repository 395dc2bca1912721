"""`catalog show`, `catalog verify`, `catalog update`: the offline catalogue of offers and prices."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.help import Commands
from orchestrator.cli.output import Format
from orchestrator.cli.session import MARKET, OutputOption, WideOption, session

catalog = Commands(no_args_is_help=True, help="The offline catalogue of offers and list prices.")

FileOption = Annotated[
    Path | None,
    typer.Option("--file", help="A CSV file of your own offers and prices (docs/catalog.md).", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    catalog.command(epilog="Example: tradewind catalog show")(show)
    catalog.command(epilog="Example: tradewind catalog verify --file my.csv")(verify)
    catalog.command(epilog="Example: tradewind catalog update --from https://example.org/catalog/manifest.json")(update)
    app.add_typer(catalog, name="catalog", rich_help_panel=MARKET)


def show(
    ctx: typer.Context, file: FileOption = None, wide: WideOption = False, output: OutputOption = Format.TABLE
) -> None:
    """Show the contents of the catalogue: offers by cloud, and the age, source and licence of each.

    With --file, include the rows of that file, which take precedence over the catalogue's.
    """
    with session(ctx, output, wide=wide) as (client, out):
        out.show(client.catalog.show(file))


def verify(ctx: typer.Context, file: FileOption = None, output: OutputOption = Format.TABLE) -> None:
    """Check the catalogue, or a file of your own, for impossible prices, contradictions and missing sources.

    Each finding names file, line, field and remedy. Exit code 3 if there are any.
    """
    from orchestrator.services.catalog.contents import refuse

    with session(ctx, output) as (client, out):
        verdict = client.catalog.verify(file)
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
    force: Annotated[bool, typer.Option("--force", help="Install it even if it is older or much smaller.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Install a newer catalogue without waiting for a release; the previous one is kept.

    Every file must match the manifest, and the catalogue must pass `catalog verify`; otherwise nothing changes. All
    commands of this user then use it, until a Tradewind release includes a newer one.
    """
    with session(ctx, output) as (client, out):
        out.show(client.catalog.update(source, sha256=sha256, force=force))
