"""`dashboard`: serves the web pages."""

import secrets
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
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 selects a free port.")] = 8420,
    host: Annotated[
        str, typer.Option(help="The address to listen on. On any other than loopback, reading needs the printed token.")
    ] = "127.0.0.1",
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    allow_actions: Annotated[
        bool,
        typer.Option(
            "--allow-actions", help="Let anyone with the printed token pause, resume and cancel jobs, and apply plans."
        ),
    ] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Show a generated fleet of 1,000 jobs over three months (simulated).")
    ] = False,
) -> None:
    """Open the dashboard: costs, savings, jobs, the market and why jobs moved, in the browser.

    By default it is read-only and reachable from this machine only. --allow-actions and --host change that; it then
    prints a token to enter in the browser.
    """
    try:
        from orchestrator.web.demo.opening import demo_installation
        from orchestrator.web.serve import serve
        from orchestrator.web.site import Site
    except ImportError as error:
        raise MissingExtraError(error.name or "fastapi", "web") from error
    if demo and (allow_actions or host not in LOOPBACK):
        raise UsageError(
            "--demo does not work with --allow-actions or with an address other than loopback", hint="omit --demo"
        )
    out = Output(Format.TABLE)
    guarded = host not in LOOPBACK
    token = secrets.token_urlsafe(24) if allow_actions or guarded else ""
    if guarded:
        out.warn(
            f"{host} may be reachable from other machines, and HTTP is not encrypted",
            "put a proxy with TLS in front, or listen on 127.0.0.1 and use: ssh -L 8420:127.0.0.1:8420 HOST",
        )
    if token:
        out.note(f"token, shown once: {token}")

    def tell(address: str) -> None:
        out.note(f"the dashboard is at {address} (Ctrl-C stops it)")

    if demo:
        from orchestrator.client import Client

        with demo_installation(_demo_folder(), progress=lambda what: out.note(f"generating the fleet: {what}")) as made:
            client = Client.over(made, Client(state_dir=made.state_dir).caller)
            serve(Site(client, demo=True), host, port, opens=not no_open, tell=tell)
        return
    with session(ctx) as (client, _):
        site = Site(client, token=token, guarded=guarded, acts=allow_actions)
        serve(site, host, port, opens=not no_open, tell=tell)


def _demo_folder() -> Path:
    """The folder that keeps the generated fleet, so that it is generated only once."""
    from platformdirs import user_cache_path

    return user_cache_path("tradewind") / "demo-2"
