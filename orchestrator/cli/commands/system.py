"""`up`, `down`, `daemon`, `doctor`, `reap`, `config`, `version`: Tradewind itself."""

from typing import Annotated

import typer

from orchestrator.cli.output import Format, Output
from orchestrator.cli.session import SYSTEM, OutputOption, session

daemon = typer.Typer(no_args_is_help=True, help="The control plane in the foreground.")
config = typer.Typer(no_args_is_help=True, help="Settings, and where each comes from.")


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=SYSTEM, epilog="Example: tradewind up")(up)
    app.command(rich_help_panel=SYSTEM, epilog="Example: tradewind down")(down)
    app.command(rich_help_panel=SYSTEM, epilog="Example: tradewind doctor --output json")(doctor)
    app.command(rich_help_panel=SYSTEM, epilog="Example: tradewind reap local-0c2f5a11be90")(reap)
    app.command(rich_help_panel=SYSTEM, epilog="Example: tradewind version")(version)
    daemon.command("run", epilog="Example: tradewind daemon run --once")(daemon_run)
    config.command("show", epilog="Example: tradewind config show --origins")(config_show)
    app.add_typer(daemon, name="daemon", rich_help_panel=SYSTEM)
    app.add_typer(config, name="config", rich_help_panel=SYSTEM)


def up(ctx: typer.Context, output: OutputOption = Format.TABLE) -> None:
    """Start this host's site and the control plane in the background.

    Does nothing where they run.
    """
    with session(ctx, output) as (client, out):
        out.show(client.up(progress=out.note))


def down(
    ctx: typer.Context,
    force: Annotated[
        bool, typer.Option("--force", help="Do not wait for checkpoints; jobs keep their last ones.")
    ] = False,
    keep_jobs: Annotated[bool, typer.Option("--keep-jobs", help="End only the control plane; jobs train on.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Pause all jobs with a checkpoint and stop everything on this host.

    Ends the control plane, every local instance and the site, and bills what was used.
    """
    with session(ctx, output) as (client, out):
        out.show(client.down(progress=out.note, force=force, keep_jobs=keep_jobs))


def doctor(
    ctx: typer.Context,
    cloud: Annotated[
        list[str] | None,
        typer.Option(
            help="Ask aws, gcp or azure instead: who am I, what may I read, which policy line is missing?",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Check everything that Tradewind needs, each with its remedy.

    Exit code 8 if something fails.
    """
    from orchestrator.errors import PartialFailure

    with session(ctx, output) as (client, out):
        diagnosis = client.doctor(cloud or ())
        out.show(diagnosis)
        if diagnosis.failed:
            raise PartialFailure("something fails", hint="each line that fails names its remedy")


def reap(
    ctx: typer.Context,
    instance: Annotated[str, typer.Argument(metavar="INSTANCE", help="Its id, as `doctor` names it.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """End a machine of this installation that its store did not rent.

    Another copy of the store may have rented it and need it.
    """
    with session(ctx, output) as (client, out):
        if not yes and not out.confirm(f"End the machine {instance}?"):
            out.note("nothing was ended")
            raise typer.Exit(0)
        out.show(client.reap(instance))


def version(output: OutputOption = Format.TABLE) -> None:
    """Print the versions of Tradewind, Python and the platform."""
    import platform

    from orchestrator.services.control_plane.version import installed_version
    from orchestrator.services.views import Version

    Output(output).show(Version(installed_version(), platform.python_version(), platform.platform()))


def daemon_run(
    ctx: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Do what is due, then end.")] = False,
) -> None:
    """Run the control plane: collect prices, decide, move jobs, bill.

    Decides daily on the market clock, and after each price event or loss. A second one on the same store stands by.
    """
    with session(ctx) as (client, _out):
        from orchestrator import daemon as control_plane

        raise typer.Exit(control_plane.run(client.config, once=once))


def config_show(
    ctx: typer.Context,
    origins: Annotated[bool, typer.Option("--origins", help="Also where each value comes from.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Print every setting as it is in force."""
    with session(ctx, output) as (client, out):
        if output is Format.JSON or origins:
            out.show(client.settings())
            return
        for setting in client.settings().settings:
            out.data(f"{setting.key} = {setting.value}")
