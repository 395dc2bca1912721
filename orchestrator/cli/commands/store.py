"""`store backup`, `restore`, `adopt`, `check`, `prune` and `ledger correct`: the database behind everything, what
ended jobs have left in the store of objects, and entries that were booked wrongly."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.help import Commands
from orchestrator.cli.output import Format
from orchestrator.cli.session import SYSTEM, OptionalJobArgument, OutputOption, WideOption, session

store = Commands(no_args_is_help=True, help="Back up, restore, check and tidy the store.")
ledger = Commands(no_args_is_help=True, help="Correct what was booked for machines.")


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    store.command(epilog="Example: tradewind store backup monday.db")(backup)
    store.command(epilog="Example: tradewind store restore monday.db")(restore)
    store.command(epilog="Example: tradewind store adopt --yes")(adopt)
    store.command(epilog="Example: tradewind store check --output json")(check)
    store.command(epilog="Example: tradewind store prune --older-than 30d --dry-run")(prune)
    app.add_typer(store, name="store", rich_help_panel=SYSTEM)
    ledger.command(epilog="Example: tradewind ledger correct --dry-run")(correct)
    app.add_typer(ledger, name="ledger", rich_help_panel=SYSTEM)


def backup(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The file to write; it must not exist.")],
    output: OutputOption = Format.TABLE,
) -> None:
    """Write a consistent copy of the store to a file, while everything keeps running.

    The copy is an SQLite file, even of a store in Postgres, and can be restored into either. It has no checkpoints.
    """
    with session(ctx, output) as (client, out):
        out.show(client.store.backup(path))


def restore(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file written by `store backup` or by an upgrade.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Replace the store with a backup; the old store is kept beside it.

    Refused while anything uses the store: stop it first with `tradewind down --keep-jobs`. Everything since the
    backup is lost; `tradewind doctor` lists machines that were rented since, and they end by themselves.
    """
    with session(ctx, output) as (client, out):
        if not yes and path.is_file() and not out.confirm(f"Replace the store with {path}?"):
            out.note("nothing was changed")
            raise typer.Exit(0)
        out.show(client.store.restore(path))


def adopt(
    ctx: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Make this copy of a store the one in use.

    Only one copy of a store may control the installation's machines. After this it is this one; the control plane of
    any other copy stops by itself.
    """
    with session(ctx, output) as (client, out):
        if not yes and not out.confirm("Use this copy of the store for all machines of the installation?"):
            out.note("nothing was changed")
            raise typer.Exit(0)
        out.show(client.store.adopt())


def check(ctx: typer.Context, output: OutputOption = Format.TABLE) -> None:
    """Check the store: damage, schema, history, references, the ledger's sums, stuck work.

    Changes nothing. Exit code 8 if something fails.
    """
    from orchestrator.errors import PartialFailure

    with session(ctx, output) as (client, out):
        diagnosis = client.store.check()
        out.show(diagnosis)
        if diagnosis.failed:
            raise PartialFailure("the store has problems", hint="each failed line says how to fix it")


def prune(
    ctx: typer.Context,
    older_than: Annotated[str, typer.Option(help="Only of jobs that ended longer ago: a duration such as 30d.")],
    outputs: Annotated[bool, typer.Option("--outputs", help="Delete their outputs, too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wide: WideOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Delete the code and logs that `store_root` holds of jobs that ended long ago.

    These are jobs that ran on machines of other hosts. Outputs stay unless you ask for them to be deleted; checkpoints,
    and all that belongs to jobs that have not ended, always stay. Versions of Tradewind's own code that no machine was
    rented with for so long (at least 2 days) are deleted as well.
    """
    with session(ctx, output, wide=wide) as (client, out):
        if not dry_run and not yes:
            found = client.store.prune(older_than, outputs=outputs, dry_run=True)
            if found.jobs or found.runtimes:
                out.review(found)
                if not out.confirm(f"Delete {found.freed_bytes / 1e6:,.1f} MB?"):
                    out.note("nothing was deleted")
                    raise typer.Exit(0)
        out.show(client.store.prune(older_than, outputs=outputs, dry_run=dry_run))


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
