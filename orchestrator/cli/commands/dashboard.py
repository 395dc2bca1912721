"""`dashboard`: the pages in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.output import Format, Output
from orchestrator.cli.session import INSIGHT, session
from orchestrator.errors import MissingExtraError, UsageError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    app.command(rich_help_panel=INSIGHT, epilog="Example: tradewind dashboard --demo")(dashboard)


def dashboard(
    ctx: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 8420,
    host: Annotated[
        str, typer.Option(help="The address to listen on. Others than loopback need the printed token to read.")
    ] = "127.0.0.1",
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Show a generated fleet of 1,000 jobs over three months (simulated).")
    ] = False,
) -> None:
    """Open the dashboard: costs, savings, jobs, the market and why jobs moved, in the browser.

    It only reads, and answers to this machine only.
    """
    try:
        from orchestrator.web.demo.opening import demo_installation
        from orchestrator.web.serve import serve
        from orchestrator.web.site import Site
    except ImportError as error:
        raise MissingExtraError(error.name or "fastapi", "web") from error
    if host not in LOOPBACK:
        raise UsageError(
            f"{host} is not an address of this machine alone",
            hint="listen on 127.0.0.1, and reach it through SSH: ssh -L 8420:127.0.0.1:8420 HOST",
        )
    out = Output(Format.TABLE)

    def tell(address: str) -> None:
        out.note(f"the dashboard is at {address} (Ctrl-C ends it)")

    if demo:
        from orchestrator.client import Client

        with demo_installation(_demo_folder(), progress=lambda what: out.note(f"generating the fleet: {what}")) as made:
            client = Client.over(made, Client(state_dir=made.state_dir).caller)
            serve(Site(client, demo=True), host, port, opens=not no_open, tell=tell)
        return
    with session(ctx) as (client, _):
        serve(Site(client), host, port, opens=not no_open, tell=tell)


def _demo_folder() -> Path:
    """Where the generated fleet is kept, so that it is generated once."""
    from platformdirs import user_cache_path

    return user_cache_path("tradewind") / "demo-1"
