"""`store backup`, `store restore`, `store adopt`, `store check`: the database behind everything."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.output import Format
from orchestrator.cli.session import SYSTEM, OutputOption, session

store = typer.Typer(no_args_is_help=True, help="Back up, restore and check the store.")


def register(app: typer.Typer) -> None:
    store.command(epilog="Example: tradewind store backup monday.db")(backup)
    store.command(epilog="Example: tradewind store restore monday.db")(restore)
    store.command(epilog="Example: tradewind store adopt --yes")(adopt)
    store.command(epilog="Example: tradewind store check --output json")(check)
    app.add_typer(store, name="store", rich_help_panel=SYSTEM)


def backup(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The file to write; it must not exist.")],
    output: OutputOption = Format.TABLE,
) -> None:
    """Write a consistent copy of the store to a file, while everything goes on.

    It is an SQLite store, also of a store in Postgres, and can be restored into either. Checkpoints are not in it.
    """
    with session(ctx, output) as (client, out):
        out.show(client.backup_store(path))


def restore(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file that `store backup` or an upgrade wrote.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Put a backup in the place of the store, which is kept beside it.

    Refused while anything uses the store: end it first with `tradewind down --keep-jobs`. What happened since
    the backup is forgotten; machines that were rented since are named by `tradewind doctor` and end by themselves.
    """
    with session(ctx, output) as (client, out):
        if not yes and path.is_file() and not out.confirm(f"Replace the store by {path}?"):
            out.note("nothing was changed")
            raise typer.Exit(0)
        out.show(client.restore_store(path))


def adopt(
    ctx: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Let this copy of a store replace the one that it was copied from.

    Of all copies of a store only one acts on the installation's machines. After this it is this one; the control plane
    of any other stops by itself.
    """
    with session(ctx, output) as (client, out):
        if not yes and not out.confirm("Let this store take over all machines of its installation?"):
            out.note("nothing was changed")
            raise typer.Exit(0)
        out.show(client.adopt_store())


def check(ctx: typer.Context, output: OutputOption = Format.TABLE) -> None:
    """Check the store: damage, schema, history, references, the ledger's sums, work that nobody takes further.

    Changes and upgrades nothing. Exit code 8 if something fails.
    """
    from orchestrator.errors import PartialFailure

    with session(ctx, output) as (client, out):
        diagnosis = client.check_store()
        out.show(diagnosis)
        if diagnosis.failed:
            raise PartialFailure("the store is not sound", hint="each line that fails names its remedy")
