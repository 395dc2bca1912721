"""`init` asks three questions and writes tradewind.toml."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from orchestrator.cli.output import Format, Output
from orchestrator.cli.session import SYSTEM, Globals, OutputOption

T = TypeVar("T")
ATTEMPTS = 3


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    app.command(rich_help_panel=SYSTEM, epilog="Example: tradewind init")(init)


def init(
    ctx: typer.Context,
    clouds: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Clouds that jobs may use, such as aws,gcp; or local.", show_default=False),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="BUCKET",
            help="Where orders for machines and checkpoints are kept: s3://bucket/prefix, gs://... or az://...",
            show_default=False,
        ),
    ] = None,
    max_usd_per_hour: Annotated[
        str | None,
        typer.Option(
            metavar="USD",
            help="The most that all machines together may cost, in US dollars per hour.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask, and replace an existing tradewind.toml.")
    ] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Set up Tradewind here: ask three questions, write tradewind.toml, check it, and estimate the cost of a first job.

    Options answer the questions; with --yes or without a terminal, other questions get their default answers. Rents
    nothing. Exit code 8 if a check fails.
    """
    from orchestrator.errors import PartialFailure, UsageError
    from orchestrator.services.setup import answers as texts
    from orchestrator.services.setup.file import FILE_NAME, overridden, write_settings

    out, folder = Output(output), Path.cwd()
    asks = out.can_ask and not yes
    if max_usd_per_hour is not None:
        texts.read_budget(max_usd_per_hour)  # reject a wrong option before the first question
    if (folder / FILE_NAME).exists() and not yes:
        if not out.can_ask:
            raise UsageError(f"{FILE_NAME} already exists here", hint="add --yes to replace it, or edit it yourself")
        if not out.confirm(f"{FILE_NAME} already exists here. Replace it?"):
            out.note("nothing was written")
            raise typer.Exit(0)
    if found := texts.with_credentials():
        out.note(f"credentials found for {', '.join(found)}")
    known = ", ".join(texts.choices())
    chosen = _answer(out, asks, clouds, f"Which clouds may jobs use? ({known})", texts.LOCAL, texts.read_clouds)
    where = "Which bucket holds orders and checkpoints? (s3://, gs:// or az://NAME/PREFIX)"
    if chosen == (texts.LOCAL,):
        where = "Where are orders and checkpoints kept? (a folder; empty: state_dir)"
    root = _answer(out, asks, store, where, "", lambda text: texts.read_store(text, chosen))
    most = _answer(
        out,
        asks,
        max_usd_per_hour,
        "What may all machines together cost, in US dollars per hour?",
        texts.BUDGET_USD_PER_HOUR,
        texts.read_budget,
    )
    options = ctx.find_object(Globals) or Globals()
    path, config = write_settings(texts.Answers(chosen, root, most, options.state_dir), folder)
    out.note(f"wrote {path}\n")
    for name in overridden(config):
        out.warn(f"{config.origins[name]} has priority over {name} in {path.name}")
    from orchestrator.services.setup.outcome import checked  # slow to import (1 s), so after the questions

    view = checked(path, config)
    out.show(view)
    if view.failed:
        raise PartialFailure("a check failed", hint="fix what each failed line names, then run: tradewind doctor")


def _answer(out: Output, asks: bool, given: str | None, question: str, default: str, read: Callable[[str], T]) -> T:
    """The value of the option, else the user's answer, else the default. Raises UsageError."""
    from orchestrator.errors import UsageError

    if given is not None or not asks:
        return read(default if given is None else given)
    for attempt in range(ATTEMPTS):
        try:
            return read(out.ask(question, default))
        except UsageError as error:
            if attempt == ATTEMPTS - 1:
                raise
            out.note(f"{error}\nhint: {error.hint}")
    raise AssertionError("unreachable")
