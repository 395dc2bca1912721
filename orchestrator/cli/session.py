"""Shared by the commands: option types, the client and the output.

The modules of commands do not use string annotations (PEP 563): typer evaluates all annotations at every start, and
would have to compile each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.output import Format, Output

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.config import Config

PLANNING = "Planning"
JOBS = "Jobs"
CONTROL = "Control"
INSIGHT = "Insight"
MARKET = "Market"
SYSTEM = "System"

STARTS_ANYWAY = "the control plane may still start: tradewind doctor shows whether it did, tradewind down stops it"
GOES_ON = "only this command ends; the job continues: tradewind status {job}"
"""After Ctrl-C."""

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Job id or name.", autocompletion=complete.jobs)]
OptionalJobArgument = Annotated[
    str | None,
    typer.Argument(metavar="JOB", help="Job id or name.", autocompletion=complete.jobs, show_default=False),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group", help="Only jobs of this group: its name or id.", autocompletion=complete.groups, show_default=False
    ),
]
OutputOption = Annotated[Format, typer.Option("--output", help="Format of the result on stdout.")]
WideOption = Annotated[bool, typer.Option("--wide", help="Show all columns, including ids, even on a narrow terminal.")]
WhyOption = Annotated[bool, typer.Option("--why", help="Show all figures, offers and reasons.")]

CursorOption = Annotated[
    str | None,
    typer.Option(
        metavar="CURSOR",
        help="Continue a listing: `next_cursor` of its previous page. Keep all other options the same.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Globals:
    """Options given before the command."""

    state_dir: Path | None = None


def settings(ctx: typer.Context) -> Config:
    """The settings in force, with the given state folder."""
    from orchestrator.config import load_config

    options = ctx.find_object(Globals) or Globals()
    return load_config({} if options.state_dir is None else {"state_dir": str(options.state_dir)})


@contextmanager
def session(
    ctx: typer.Context,
    output: Format = Format.TABLE,
    *,
    wide: bool = False,
    why: bool = False,
    file: Path | None = None,
    again: str | None = None,
) -> Iterator[tuple[Client, Output]]:
    """The SDK and the output of one command. `file` is the job file that hints name, `again` the command to repeat for
    more results (None: the command as typed)."""
    from orchestrator.client import Client

    with Client(settings(ctx)) as client:
        yield client, Output(output, wide=wide, why=why, file=file, again=again)
