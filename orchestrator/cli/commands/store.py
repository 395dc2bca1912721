"""`store backup`, `restore`, `adopt`, `check`, `prune` and `ledger correct`: maintain the database, the leftovers of
ended jobs in the object store, and wrongly booked entries."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.help import Commands
from orchestrator.cli.output import Format
from orchestrator.cli.session import SYSTEM, OptionalJobArgument, OutputOption, WideOption, session

store = Commands(no_args_is_help=True, help="Back up, restore, check and tidy the store.")
ledger = Commands(no_args_is_help=True, help="Correct costs that were booked for machines.")


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
    """Write a consistent copy of the store to a file, without stopping anything.

    The copy is an SQLite file, even if the store is in Postgres, and can be restored into either. It does not include
    checkpoints.
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

    Refused while anything uses the store: first run `tradewind down --keep-jobs`. Everything since the backup is lost,
    except checkpoints. Machines rented after the backup are not in the restored store, and their cost is not booked:
    `tradewind doctor` lists them, `tradewind reap INSTANCE` ends one, and the others end by themselves within
    `limits.max_unattended_s`.
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
    """Make this copy of the store the one in use.

    Only one copy of a store may control the installation's machines. This command makes it this copy; the control
    planes of other copies stop by themselves.
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
    older_than: Annotated[str, typer.Option(help="Only data of jobs that ended longer ago than this, such as 30d.")],
    outputs: Annotated[bool, typer.Option("--outputs", help="Also delete outputs.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wide: WideOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Delete code and logs of jobs that ended long ago from `store_root`.

    Only jobs that ran on other hosts have data there. Outputs are kept unless you add --outputs; checkpoints, and all
    data of jobs that have not ended, are always kept. Versions of Tradewind's own code that no machine used for so long
    (at least 2 days) are deleted as well.
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
    reason: Annotated[
        str, typer.Option(help="The reason, which is stored with the correction.", show_default=False)
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be booked.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wide: WideOption = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Correct the ledger where the cost of a machine is not its price times its time.

    Existing entries are not changed: corrections are new entries that refer to the corrected ones (`report --csv` lists
    them), and an event records the reason and who gave it. `store check` reports when this is needed.
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
