"""`profile`: what a step of a job does, and how fast and how dear it would be on each GPU."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.output import Format
from orchestrator.cli.session import PLANNING, OutputOption, session


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=PLANNING, epilog="Example: tradewind profile examples/gpt.yaml")(profile)


def profile(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Job file (YAML).", show_default=False)],
    timeout: Annotated[float, typer.Option(min=1, help="Give up after so many seconds.")] = 900,
    output: OutputOption = Format.TABLE,
) -> None:
    """Run a few steps of a job here and predict its speed, cost per step and memory on each GPU.

    Nothing that it trains is kept; plans of the job use what was counted.
    """
    with session(ctx, output) as (client, out):
        out.show(client.profile(file, timeout_s=timeout))
