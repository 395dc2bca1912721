"""`up`, `down`, `daemon`, `doctor`, `reap`, `config`, `version`: Tradewind itself."""

from typing import Annotated

import typer

from orchestrator.cli.help import Commands
from orchestrator.cli.output import Format, Output
from orchestrator.cli.session import STARTS_ANYWAY, SYSTEM, OutputOption, session

daemon = Commands(
    no_args_is_help=True,
    help="Run the control plane in the foreground.\n\nIn the background, where `up` and `submit` start it, it writes "
    "its log to control-plane.log in the state folder.",
)
config = Commands(no_args_is_help=True, help="Show settings and where each comes from.")


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command(rich_help_panel=SYSTEM, epilog="Example: tradewind up")(up)
    app.command(rich_help_panel=SYSTEM, epilog="Example: tradewind down")(down)
    app.command(rich_help_panel=SYSTEM, epilog="Example: tradewind doctor --output json")(doctor)
    app.command(rich_help_panel=SYSTEM, epilog="Example: tradewind reap local-0c2f5a11be90")(reap)
    app.command(rich_help_panel=SYSTEM, epilog="Example: tradewind version")(version)
    daemon.command("run", epilog="Example: tradewind daemon run --once")(daemon_run)
    config.command("show", epilog="Example: tradewind config show --origins")(config_show)
    app.add_typer(daemon, name="daemon", rich_help_panel=SYSTEM)
    app.add_typer(config, name="config", rich_help_panel=SYSTEM)


def up(
    ctx: typer.Context,
    cloud: Annotated[
        list[str] | None,
        typer.Option(
            help="Prepare this cloud instead: create networks that block all traffic from outside, and the "
            "bucket of store_root if it belongs to this cloud and does not exist.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Start the control plane in the background; or, with --cloud, prepare a cloud for machines.

    Does nothing if it already runs, or if the cloud is already prepared.
    """
    with session(ctx, output) as (client, out):
        if cloud:
            with out.after_ctrl_c("not everything was created: run the same command again, or tradewind down --cloud"):
                networks = client.networks.set_up(cloud, progress=out.note)
            out.show(networks)
            return
        with out.after_ctrl_c(STARTS_ANYWAY):
            view = client.control_plane.up(progress=out.note, warn=out.warn)
        out.show(view)


def down(
    ctx: typer.Context,
    force: Annotated[
        bool, typer.Option("--force", help="Do not wait for new checkpoints; jobs keep their latest ones.")
    ] = False,
    keep_jobs: Annotated[
        bool, typer.Option("--keep-jobs", help="Stop only the control plane; jobs keep training.")
    ] = False,
    cloud: Annotated[
        list[str] | None,
        typer.Option(
            help="Remove what `up --cloud` created there instead, except buckets that are not empty. Refused while "
            "machines are up there.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Checkpoint and pause all jobs, then stop everything; or, with --cloud, remove what `up --cloud` created.

    Stops the control plane and all machines, and books their costs.
    """
    from orchestrator.errors import UsageError

    if cloud and (force or keep_jobs):
        raise UsageError("--cloud does not stop jobs", hint="first run tradewind down, then tradewind down --cloud")
    with session(ctx, output) as (client, out):
        if cloud:
            with out.after_ctrl_c("not everything was removed: run the same command again"):
                networks = client.networks.tear_down(cloud, progress=out.note)
            out.show(networks)
            return
        left = "not everything has ended: see tradewind queue and tradewind nodes, and run tradewind down again"
        with out.after_ctrl_c(left):
            view = client.control_plane.down(progress=out.note, force=force, keep_jobs=keep_jobs)
        out.show(view)


def doctor(
    ctx: typer.Context,
    cloud: Annotated[
        list[str] | None,
        typer.Option(
            help="Check aws, gcp or azure instead: the account, its permissions, and which are missing.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="CLOUD",
            help="Print the minimal policy for aws (IAM), gcp (custom role) or azure (role definition); works offline.",
            show_default=False,
        ),
    ] = None,
    prices_only: Annotated[
        bool, typer.Option("--prices-only", help="With --policy: only the permissions for reading prices.")
    ] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Check everything that Tradewind needs, and say how to fix what is missing.

    Exit code 8 if a check fails.
    """
    from orchestrator.errors import PartialFailure, UsageError

    if prices_only and policy is None:
        raise UsageError("--prices-only needs --policy", hint="tradewind doctor --policy aws --prices-only")
    with session(ctx, output) as (client, out):
        if policy is not None:
            made = client.system.policy(policy, prices_only=prices_only)
            out.show(made)
            out.note(f"\nto create it, save it as a file and run: {made.apply}")
            return
        diagnosis = client.system.doctor(cloud or ())
        out.show(diagnosis)
        if diagnosis.failed:
            raise PartialFailure("a check failed", hint="each failed line says how to fix it")


def reap(
    ctx: typer.Context,
    instance: Annotated[str, typer.Argument(metavar="INSTANCE", help="Id of the machine, as listed by `doctor`.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Terminate a machine of this installation that its store did not rent.

    Check first: another copy of the store may have rented it and still need it.
    """
    with session(ctx, output) as (client, out):
        if not yes and not out.confirm(f"Terminate the machine {instance}?"):
            out.note("nothing was terminated")
            raise typer.Exit(0)
        out.show(client.system.reap(instance))


def version(output: OutputOption = Format.TABLE) -> None:
    """Print the versions of Tradewind, Python and the platform."""
    import platform

    from orchestrator.services.control_plane.version import installed_version
    from orchestrator.services.views import Version

    Output(output).show(Version(installed_version(), platform.python_version(), platform.platform()))


def daemon_run(
    ctx: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Do everything that is due, then exit.")] = False,
) -> None:
    """Run the control plane: collect prices, decide, move jobs, book costs.

    It decides once per market day, and after each price change or loss of a machine. A second control plane on the same
    store is a standby.
    """
    with session(ctx) as (client, _out):
        from orchestrator import daemon as control_plane

        raise typer.Exit(control_plane.run(client.config, once=once))


def config_show(
    ctx: typer.Context,
    origins: Annotated[bool, typer.Option("--origins", help="Also show where each value comes from.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Print every setting in force."""
    with session(ctx, output) as (client, out):
        if output is Format.JSON or origins:
            out.show(client.system.settings())
            return
        for setting in client.system.settings().settings:
            out.data(f"{setting.key} = {setting.value}")
