"""`offers`: what can be rented, and at what price."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from orchestrator.cli.output import Format
from orchestrator.cli.session import MARKET, CursorOption, OutputOption, WideOption, session

SHOWN = 20  # rows of each kind, in a table


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command(rich_help_panel=MARKET, epilog="Example: tradewind offers --gpu H100:8 --spot --region 'us-*'")(offers)


def offers(
    ctx: typer.Context,
    gpu: Annotated[
        str | None, typer.Option(metavar="GPU[:COUNT]", help="Only offers with this GPU.", show_default=False)
    ] = None,
    gpu_memory: Annotated[
        str | None, typer.Option(metavar="GB..GB", help="Memory of one GPU: 40.. or 40..80.", show_default=False)
    ] = None,
    cloud: Annotated[
        list[str] | None, typer.Option("--cloud", "--provider", help="Only offers of these clouds.", show_default=False)
    ] = None,
    region: Annotated[
        list[str] | None, typer.Option(help="Only offers in these regions; * matches anything.", show_default=False)
    ] = None,
    spot: Annotated[
        bool | None,
        typer.Option("--spot/--on-demand", help="Only one capacity type.", show_default=False),
    ] = None,
    max_price: Annotated[
        float | None, typer.Option(metavar="USD", help="Highest price in dollars per hour.", show_default=False)
    ] = None,
    vcpu: Annotated[str | None, typer.Option(metavar="N..N", help="CPUs: 8.. or 8..32.", show_default=False)] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="GB..GB", help="Main memory: 64.. or 64..256.", show_default=False)
    ] = None,
    group_by: Annotated[
        Literal["gpu", "region", "cloud"] | None,
        typer.Option(help="One line per group, with its cheapest offer.", show_default=False),
    ] = None,
    for_job: Annotated[
        Path | None,
        typer.Option("--for", metavar="FILE", help="Rank offers as a plan for this job does.", show_default=False),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Show this many enabled offers, and this many others.  [default: {SHOWN} in a table]",
            show_default=False,
        ),
    ] = None,
    cursor: CursorOption = None,
    wide: WideOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """List what can be rented, cheapest first.

    Shows the offers of enabled providers at their newest prices, then the catalogue's offers of all other clouds, with
    the age of each price. Needs no account.
    """
    if limit is None and output is Format.TABLE:
        limit = SHOWN
    with session(ctx, output, wide=wide, file=for_job) as (client, out):
        view = client.offers.list(
            gpu=gpu,
            gpu_memory=gpu_memory,
            cloud=cloud or (),
            region=region or (),
            spot=spot,
            max_price=max_price,
            vcpu=vcpu,
            memory=memory,
            work=for_job,
            group_by=group_by,
            limit=limit,
            cursor=cursor,
        )
        out.show(view)
