"""`ledger correct`: corrects what was booked, by new entries."""

from typing import Annotated

import typer

from orchestrator.cli.help import Commands
from orchestrator.cli.output import Format
from orchestrator.cli.session import SYSTEM, OptionalJobArgument, OutputOption, WideOption, session

ledger = Commands(no_args_is_help=True, help="Correct what was booked for machines.")


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    ledger.command(epilog="Example: tradewind ledger correct --dry-run")(correct)
    app.add_typer(ledger, name="ledger", rich_help_panel=SYSTEM)


def correct(
    ctx: typer.Context,
    job: OptionalJobArgument = None,
    reason: Annotated[str, typer.Option(help="Reason, kept with the correction.", show_default=False)] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be booked.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wide: WideOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Book the difference where machines were not booked at their price times their time.

    Existing entries stay: corrections are new entries that name what they correct, listed by `report --csv`, and an
    event records the reason and who gave it. `store check` says when this is needed.
    """
    from providers.money import format_usd

    with session(ctx, output, wide=wide) as (client, out):
        if reason and not dry_run and not yes:
            wanted = client.ledger.correct(reason, job, dry_run=True)
            if wanted.runs:
                question = f"Correct the entries of {len(wanted.runs)} runs by {format_usd(wanted.change_nano_usd, 6)}?"
                if not out.confirm(question):
                    out.note("nothing was booked")
                    raise typer.Exit(0)
        out.show(client.ledger.correct(reason, job, dry_run=dry_run))
