"""The program: its groups of commands, its global options, and what an error becomes.

Loads nothing heavy: each command imports the SDK when it is called, so that `tradewind --help` stays quick.
"""

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from orchestrator.cli.commands import (
    backtest,
    catalog,
    control,
    convert,
    insight,
    jobs,
    ledger,
    market,
    plans,
    prices,
    profile,
    secrets,
    store,
    system,
)
from orchestrator.cli.output import tell
from orchestrator.cli.session import Globals
from orchestrator.cli.stdout import ReaderGoneError, watched_stdout
from orchestrator.cli.stored import DEBUG_VARIABLE, nothing_is_stored, only_a_warning, something_is_stored
from orchestrator.errors import PartialFailure, SpecError, TradewindError

CTRL_C = 130
READER_GONE = 141


class TradewindGroup(TyperGroup):
    """Turns every error into one message on stderr, a hint and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        nothing_is_stored()
        try:
            with watched_stdout():
                return super().main(*args, **kwargs)
        except Exception as error:
            sys.exit(_exit_code(error))

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().invoke(*args, **kwargs)
        except KeyboardInterrupt:
            tell("\ninterrupted")
            sys.exit(CTRL_C)


def _exit_code(error: Exception) -> int:
    """Of a command that ends with `error`, which is told."""
    if isinstance(error, PartialFailure):  # how went what was asked for: also after the job was stored
        return _complain(error)
    if isinstance(error, ReaderGoneError):  # it has what it wanted: nothing to say
        return 0 if something_is_stored() else READER_GONE
    if only_a_warning(error):
        return 0
    if isinstance(error, TradewindError):
        return _complain(error)
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)
    tell(f"unexpected error: {type(error).__name__}: {error}")
    tell("hint: run it again with `tradewind --debug ...` and report the traceback that it prints")
    return 1


def _complain(error: TradewindError) -> int:
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)
    prefix = "" if isinstance(error, SpecError) else "error: "
    tell(f"{prefix}{error}")
    if error.hint:
        tell(f"hint: {error.hint}")
    return error.exit_code


app = typer.Typer(
    name="tradewind",
    cls=TradewindGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: tradewind doctor, then tradewind submit JOB.yaml",
)


def _print_version(asked: bool) -> None:
    if asked:
        from orchestrator.services.control_plane.version import installed_version

        sys.stdout.write(f"tradewind {installed_version()}\n")
        raise typer.Exit(0)


@app.callback()
def _globals(
    ctx: typer.Context,
    state_dir: Annotated[
        Path | None, typer.Option(help="The state folder, instead of the configured one.", show_default=False)
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help=f"Show tracebacks (or set {DEBUG_VARIABLE}=1).")] = False,
) -> None:
    """Trains machine-learning models for the least money that the world's GPU markets allow."""
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"
    ctx.obj = Globals(state_dir=state_dir)


GROUPS = (
    plans,
    convert,
    profile,
    jobs,
    control,
    secrets,
    insight,
    backtest,
    market,
    prices,
    catalog,
    system,
    store,
    ledger,
)
for group in GROUPS:
    group.register(app)
