"""`checkpoints ls`, `verify`, `prune` and `export`: the checkpoints of a job."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.help import Commands
from orchestrator.cli.output import Format
from orchestrator.cli.session import JOBS, JobArgument, OutputOption, WideOption, session

checkpoints = Commands(no_args_is_help=True, help="List, verify, prune and export the checkpoints of a job.")


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    checkpoints.command("ls", epilog="Example: tradewind checkpoints ls gpt")(listed)
    checkpoints.command(epilog="Example: tradewind checkpoints verify gpt --output json")(verify)
    checkpoints.command(epilog="Example: tradewind checkpoints prune gpt --keep 1 --best 1 --dry-run")(prune)
    checkpoints.command(epilog="Example: tradewind checkpoints export gpt model.safetensors")(export)
    app.add_typer(checkpoints, name="checkpoints", rich_help_panel=JOBS)


def listed(ctx: typer.Context, job: JobArgument, wide: WideOption = False, output: OutputOption = Format.TABLE) -> None:
    """List the checkpoints of a job, newest first.

    Checks that all their data exist, without reading them.
    """
    with session(ctx, output, wide=wide) as (client, out):
        out.show(client.checkpoints.list(job))


def verify(ctx: typer.Context, job: JobArgument, wide: WideOption = False, output: OutputOption = Format.TABLE) -> None:
    """Read every byte of a job's checkpoints and compare it with its hash.

    Exit code 8 if something is missing or altered. A run also makes this check before it continues, and uses an older
    checkpoint if it fails.
    """
    from orchestrator.errors import PartialFailure

    with session(ctx, output, wide=wide) as (client, out):
        found = client.checkpoints.verify(job)
        out.show(found)
        if found.damaged:
            raise PartialFailure(
                f"{len(found.damaged)} of {len(found.checkpoints)} checkpoints are damaged",
                hint="a run continues from the newest intact one; restore the named files if there is a copy",
            )


def prune(
    ctx: typer.Context,
    job: JobArgument,
    keep: Annotated[int, typer.Option(min=1, help="How many of the newest checkpoints to keep.")],
    hourly: Annotated[
        int, typer.Option(min=0, help="For how many hours to keep the last checkpoint of each hour.")
    ] = 0,
    best: Annotated[int, typer.Option(min=0, help="How many checkpoints with the lowest loss to keep.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Delete old checkpoints of a job that is not running.

    Data that a kept checkpoint needs are never deleted. A running job deletes its old checkpoints itself, as
    `checkpoint.keep`, `keep_hourly` and `keep_best` in its job file say.
    """
    with session(ctx, output) as (client, out):
        if not dry_run and not yes:
            found = client.checkpoints.prune(job, keep=keep, hourly=hourly, best=best, dry_run=True)
            if found.deleted:
                out.review(found)
                if not out.confirm(f"Delete {len(found.deleted)} checkpoints?"):
                    out.note("nothing was deleted")
                    raise typer.Exit(0)
        out.show(client.checkpoints.prune(job, keep=keep, hourly=hourly, best=best, dry_run=dry_run))


def export(
    ctx: typer.Context,
    job: JobArgument,
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The file to write: *.safetensors, or a file for torch.load.")
    ],
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="The checkpoint's name, as shown by `checkpoints ls`.  [default: the newest]", show_default=False
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Write a checkpoint to a file that other programs can read.

    A .safetensors file has the tensors of the model. Any other file has all parts that the program attached (model,
    optimizer, scheduler, scaler, extra), the step and the epoch: `torch.load(PATH)["model"]`. Every byte is verified;
    without --checkpoint, damaged checkpoints are skipped.
    """
    with session(ctx, output) as (client, out):
        out.show(client.checkpoints.export(job, path, checkpoint=checkpoint, replace=force))
