"""`checkpoints ls`, `verify`, `prune` and `export`: what a job has saved."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.help import Commands
from orchestrator.cli.output import Format
from orchestrator.cli.session import JOBS, JobArgument, OutputOption, WideOption, session

checkpoints = Commands(no_args_is_help=True, help="List, verify, prune and export what a job has saved.")


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    checkpoints.command("ls", epilog="Example: tradewind checkpoints ls gpt")(listed)
    checkpoints.command(epilog="Example: tradewind checkpoints verify gpt --output json")(verify)
    checkpoints.command(epilog="Example: tradewind checkpoints prune gpt --keep 1 --best 1 --dry-run")(prune)
    checkpoints.command(epilog="Example: tradewind checkpoints export gpt model.safetensors")(export)
    app.add_typer(checkpoints, name="checkpoints", rich_help_panel=JOBS)


def listed(ctx: typer.Context, job: JobArgument, wide: WideOption = False, output: OutputOption = Format.TABLE) -> None:
    """List the checkpoints of a job, the newest first.

    Looks whether all their data exist, without reading them.
    """
    with session(ctx, output, wide=wide) as (client, out):
        out.show(client.checkpoints.list(job))


def verify(ctx: typer.Context, job: JobArgument, wide: WideOption = False, output: OutputOption = Format.TABLE) -> None:
    """Read every byte of a job's checkpoints and compare it with its hash.

    Exit code 8 if something is missing or altered. A run does this by itself before it continues, and then uses an
    older checkpoint.
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
    keep: Annotated[int, typer.Option(min=1, help="How many of the last ones stay.")],
    hourly: Annotated[int, typer.Option(min=0, help="For how many hours the last one of each hour stays.")] = 0,
    best: Annotated[int, typer.Option(min=0, help="How many stay because their loss is the lowest.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Delete old checkpoints of a job that is not running.

    What a checkpoint that stays needs is never deleted. While a job runs, it does this by itself, as `checkpoint.keep`,
    `keep_hourly` and `keep_best` of its job file say.
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
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The file to write: *.safetensors, or for torch.load.")],
    checkpoint: Annotated[
        str | None, typer.Option(help="Its name, as `checkpoints ls` shows it; the newest one.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Write a checkpoint to a file that other programs can read.

    A .safetensors file has the tensors of the model. Any other file has all parts that the program attached (model,
    optimizer, scheduler, scaler, extra), the step and the epoch: `torch.load(PATH)["model"]`. Every byte is verified;
    without --checkpoint, damaged checkpoints are skipped.
    """
    with session(ctx, output) as (client, out):
        out.show(client.checkpoints.export(job, path, checkpoint=checkpoint, replace=force))
