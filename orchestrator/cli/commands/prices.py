"""`prices ...`: the age and history of prices, and moving them into and out of the store."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.help import Commands
from orchestrator.cli.output import Format
from orchestrator.cli.session import MARKET, CursorOption, OutputOption, WideOption, session

prices = Commands(
    no_args_is_help=True, help="Collect, check, accept, import and export prices, and show their history."
)


class HistoryFormat(StrEnum):
    """Values of `--format`."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


GpuOption = Annotated[str | None, typer.Option(help="Only offers with this GPU.", show_default=False)]
ProviderOption = Annotated[str | None, typer.Option(help="Only offers of this provider.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    prices.command(epilog="Example: tradewind prices status")(status)
    prices.command(epilog="Example: tradewind prices history --gpu H100 --spot --since 30d")(history)
    prices.command(epilog="Example: tradewind prices watch --gpu H100")(watch)
    prices.command(epilog="Example: tradewind prices collect --once --cloud aws --cloud azure")(collect)
    prices.command(epilog="Example: tradewind prices accept verda/FIN-01//8H100.80S/on_demand")(accept)
    prices.command("import", epilog="Example: tradewind prices import archive/ extra.csv")(import_)
    prices.command(epilog="Example: tradewind prices export prices.parquet --gpu H100")(export)
    prices.command(epilog="Example: tradewind prices archive --keep-days 400")(archive)
    app.add_typer(prices, name="prices", rich_help_panel=MARKET)


def status(ctx: typer.Context, wide: WideOption = False, output: OutputOption = Format.TABLE) -> None:
    """Show when prices were last collected from each source and region, the result, and which prices are flagged."""
    with session(ctx, output, wide=wide) as (client, out):
        out.show(client.prices.status())


def history(
    ctx: typer.Context,
    offer: Annotated[str | None, typer.Argument(metavar="OFFER", help="An offer's id.", show_default=False)] = None,
    gpu: GpuOption = None,
    provider: ProviderOption = None,
    region: Annotated[str | None, typer.Option(help="Only offers in this region.", show_default=False)] = None,
    spot: Annotated[
        bool | None, typer.Option("--spot/--on-demand", help="Only one capacity type.", show_default=False)
    ] = None,
    since: Annotated[str, typer.Option(help="Start: 30d or 12h ago, or a time such as 2026-11-21.")] = "30d",
    limit: Annotated[
        int, typer.Option(min=1, max=100, help="Show at most this many offers, the cheapest per GPU first.")
    ] = 6,
    cursor: CursorOption = None,
    wide: WideOption = False,
    output: Annotated[
        HistoryFormat, typer.Option("--output", help="Format of the result on stdout.")
    ] = HistoryFormat.TABLE,
) -> None:
    """Draw the price history in USD per GPU-hour; as CSV or JSON, list every change exactly."""
    with session(ctx, Format.JSON if output is HistoryFormat.JSON else Format.TABLE, wide=wide) as (client, out):
        view = client.prices.history(
            offer,
            gpu=gpu,
            provider=provider,
            region=region,
            spot=spot,
            since=since,
            limit=limit,
            cursor=cursor,
        )
        if output is HistoryFormat.CSV:
            from orchestrator.services.prices.history import history_csv

            out.data(history_csv(view))
        else:
            out.show(view)


def watch(ctx: typer.Context, gpu: GpuOption = None, output: OutputOption = Format.TABLE) -> None:
    """Print every price change and every failed collection, until Ctrl-C.

    Reads only the store: a control plane or `prices collect` must run to collect changes.
    """
    with session(ctx, output) as (client, out):
        for change in client.prices.watch(gpu=gpu):
            out.show(change, stream=True)


def collect(
    ctx: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Poll everything once, then exit.")] = False,
    cloud: Annotated[
        list[str] | None,
        typer.Option(
            help="aws, gcp or azure; may be repeated.  [default: all that are enabled and configured]",
            show_default=False,
        ),
    ] = None,
    feed: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE or NAME=URL of a table of prices; may be repeated.", show_default=False),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Collect prices into the store until Ctrl-C, each region at its own interval; with --once, only once.

    A failure in one region is recorded and does not affect the others. Exit code 8 if something failed.
    """
    from orchestrator.errors import PartialFailure, UsageError

    feeds = []
    for each in feed or []:
        name, equals, at = each.partition("=")
        if not (name and equals and at):
            raise UsageError(f"--feed {each} is not NAME=FILE or NAME=URL", hint="for example --feed verda=prices.csv")
        feeds.append((name, at))
    with session(ctx, output) as (client, out):
        from orchestrator.cli.render import render

        configured = client.config.prices
        if not (once or cloud or feeds or configured.clouds or configured.sources.options):
            once = True
            out.note("collecting once; the control plane does so regularly")
        with out.progress() as tick:
            done = 0

            def reported(poll) -> None:  # type: ignore[no-untyped-def]
                nonlocal done
                done += 1
                tick(f"{poll.source} {poll.region}", done, None)
                if not once:
                    out.note(render(poll, out.screen(sys.stderr)))

            view = client.prices.collect(clouds=cloud or [], feeds=feeds, once=once, reported=reported)
        out.show(view)
        if view.failed:
            raise PartialFailure(
                f"{view.failed} of {len(view.polls)} collections failed", hint="tradewind prices status"
            )


def accept(
    ctx: typer.Context,
    offer: Annotated[str, typer.Argument(metavar="OFFER", help="The id of an offer whose price is flagged.")],
    output: OutputOption = Format.TABLE,
) -> None:
    """Accept a flagged price, so that jobs may use the offer. This is recorded as an event.

    `tradewind prices status` lists flagged prices. A price is also accepted if a second source reports about the same
    price.
    """
    with session(ctx, output) as (client, out):
        out.show(client.prices.accept(offer))


def import_(
    ctx: typer.Context,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Tables (.csv, .csv.gz, .parquet) or folders.")],
    provider: Annotated[
        str, typer.Option(help="Provider of the prices, for tables without this column.", show_default=False)
    ] = "",
    at: Annotated[
        str, typer.Option(help="Time of the prices, for tables without this column.", show_default=False)
    ] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Import recorded prices: an export, the archive, or other tables.

    Importing a file twice changes nothing. Offers that come only from an import are never rented. Exit code 8 if some
    rows are invalid; the valid rows are imported.
    """
    from orchestrator.errors import PartialFailure

    with session(ctx, output) as (client, out):
        with out.progress() as tick:
            view = client.prices.import_tables(paths, provider=provider, at=at, progress=tick)
        out.show(view)
        if view.bad_rows:
            raise PartialFailure(
                f"{view.bad_rows} rows are invalid and were skipped", hint="correct them and import the file again"
            )


def export(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The file to write: .csv, .csv.gz or .parquet.")],
    gpu: GpuOption = None,
    provider: ProviderOption = None,
    since: Annotated[str, typer.Option(help="Start: 30d ago, or a time such as 2026-11-21.", show_default=False)] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Export every price change to a file, for `prices import` or as a price feed."""
    with session(ctx, output) as (client, out):
        out.show(client.prices.export(path, gpu=gpu, provider=provider, since=since))


def archive(
    ctx: typer.Context,
    keep_days: Annotated[int, typer.Option(help="Remove prices older than this many days from the store.")] = 400,
    output: OutputOption = Format.TABLE,
) -> None:
    """Archive complete months as Parquet files in the state folder, then remove old prices from the store.

    Queries about the remaining period give the same answers as before. `prices import` restores a month.
    """
    with session(ctx, output) as (client, out):
        out.show(client.prices.archive(keep_days=keep_days))
