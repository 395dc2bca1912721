"""`secrets give`: hands a job's secrets to the control plane, which forgets them when it ends."""

import typer

from orchestrator.cli.help import Commands
from orchestrator.cli.output import Format
from orchestrator.cli.session import CONTROL, JobArgument, OutputOption, session

secrets = Commands(no_args_is_help=True, help="Give the control plane the secrets of a job.")


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    secrets.command(epilog="Example: WANDB_API_KEY=... tradewind secrets give gpt")(give)
    app.add_typer(secrets, name="secrets", rich_help_panel=CONTROL)


def give(ctx: typer.Context, job: JobArgument, output: OutputOption = Format.TABLE) -> None:
    """Give the control plane the secrets that the job file names, from this environment.

    `submit` does this, too. Needed again after the control plane was restarted, unless secrets.key_file is set: until
    then the job keeps training, but cannot be started anywhere else.
    """
    with session(ctx, output) as (client, out):
        out.show(client.secrets.give(job))
