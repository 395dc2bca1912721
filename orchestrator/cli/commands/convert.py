"""`convert`: a task file of SkyPilot or dstack becomes a job file."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from orchestrator.cli.output import Format
from orchestrator.cli.session import PLANNING, OutputOption, session


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command(rich_help_panel=PLANNING, epilog="Example: tradewind convert task.yaml -o job.yaml")(convert)


def convert(
    ctx: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Task file of SkyPilot or dstack (YAML).", show_default=False)
    ],
    save: Annotated[
        Path | None,
        typer.Option("-o", "--save", help="Write the job file to this path.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Turn a task file of SkyPilot or dstack into a job file.

    Everything that was left out, changed, or needs your decision is listed on stderr with its line. If the commands do
    not say which Python program to run, the job file has a marked place to fill in. Runs nothing and copies no secrets.
    """
    with session(ctx, output) as (client, out):
        view = client.job_files.convert(file, save, force=force)
        if output is Format.JSON or save is None:
            out.show(view)
        for note in view.notes:
            out.note(str(note))
        for problem in view.problems:
            if not problem.unsupported:  # a note already says so
                out.note(f"before you submit: {problem}")
        if save is None:
            out.note(f"converted from {view.tool}; to save it: tradewind convert {quote(str(file))} -o job.yaml")
        else:
            out.note(f"converted from {view.tool} into {save}; check it: tradewind plan {quote(str(save))}")
