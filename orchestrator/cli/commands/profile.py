"""`profile`, `throughputs`: measurements of a job's speed before it runs."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.output import Format
from orchestrator.cli.session import PLANNING, OutputOption, WideOption, session


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command(rich_help_panel=PLANNING, epilog="Example: tradewind profile examples/gpt.yaml")(profile)
    app.command(rich_help_panel=PLANNING, epilog="Example: tradewind throughputs rates.csv")(throughputs)


def profile(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Job file (YAML).", show_default=False)],
    timeout: Annotated[float, typer.Option(min=1, help="Give up after this many seconds.")] = 900,
    wide: WideOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Run a few steps of a job here and predict its speed, cost per step and memory on each GPU.

    Plans for the job use the profile; the training itself is discarded.
    """
    with session(ctx, output, wide=wide, file=file) as (client, out):
        out.show(client.speed.profile(file, timeout_s=timeout))


def throughputs(
    ctx: typer.Context,
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="CSV, or Gavel's CSV or JSON.", show_default=False)],
    output: OutputOption = Format.TABLE,
) -> None:
    """Import measured speeds, for plans of jobs with the same name and for the ratios between GPUs."""
    with session(ctx, output) as (client, out):
        out.show(client.speed.import_table(table))
