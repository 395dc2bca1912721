"""`offers`: what can be rented, and for how much."""

from typing import Annotated

import typer

from orchestrator.cli.output import Format
from orchestrator.cli.session import MARKET, OutputOption, session


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=MARKET, epilog="Example: tradewind offers --gpu SIM-L --spot")(offers)


def offers(
    ctx: typer.Context,
    gpu: Annotated[str | None, typer.Option(help="Only with this GPU.", show_default=False)] = None,
    provider: Annotated[str | None, typer.Option(help="Only of this provider.", show_default=False)] = None,
    spot: Annotated[
        bool | None,
        typer.Option("--spot/--on-demand", help="Only one capacity type.", show_default=False),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List what can be rented now, cheapest first."""
    with session(ctx, output) as (client, out):
        out.show(client.offers(gpu=gpu, provider=provider, spot=spot))
