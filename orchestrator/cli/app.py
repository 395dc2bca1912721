"""The program: its command groups, its global options, and how errors are reported.

It imports nothing heavy: each command imports the SDK when it is called, so `tradewind --help` stays fast.
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.cli.commands import (
    backtest,
    catalog,
    checkpoints,
    control,
    convert,
    dashboard,
    init,
    insight,
    jobs,
    market,
    plans,
    prices,
    profile,
    store,
    system,
)
from orchestrator.cli.help import Commands, Group
from orchestrator.cli.invocation import DEBUG_VARIABLE, Invocation, begin, current, tell
from orchestrator.cli.session import Globals
from orchestrator.cli.stdout import ReaderGoneError, watched_stdout
from orchestrator.errors import OutputError, PartialFailure, TradewindError

CTRL_C = 130
READER_GONE = 141


class TradewindGroup(Group):
    """The top-level group. It turns every error into one message, a hint and an exit code: on stderr, or in the
    document of `--output json`."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Parse the arguments, run the command and exit. Errors become one message and an exit code."""
        typed = list(sys.argv[1:] if args is None else args)
        invocation = begin(typed, self.commands)
        call = partial(super().main, typed, prog_name, complete_var, windows_expand_args=windows_expand_args, **extra)
        try:
            with watched_stdout():
                code = _code_of(call, invocation) if standalone_mode else call(standalone_mode=False)
                invocation.end()
        except Exception as error:
            code = _exit_code(error, invocation)
            with suppress(OutputError, ReaderGoneError), watched_stdout():
                invocation.end()
        if not standalone_mode:
            return code
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Ctrl-C ends it with exit code 130."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if not current().json:
                tell("\ninterrupted")
                sys.exit(CTRL_C)
            sys.exit(current().fail(InterruptedError("interrupted by Ctrl-C"), CTRL_C))


def _code_of(call: Callable[..., Any], invocation: Invocation) -> int:
    """Run a command and return its exit code. An error is reported as text or in the JSON document."""
    try:
        if not invocation.json:
            call()
        return int(call(standalone_mode=False) or 0)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except (OutputError, ReaderGoneError):
        raise
    except Exception as error:
        return _exit_code(error, invocation)


def _exit_code(error: Exception, invocation: Invocation) -> int:
    """Report `error` and return the exit code of the command that it ended."""
    if isinstance(error, PartialFailure):  # the outcome of the request, even if the job was stored
        return invocation.fail(error, error.exit_code)
    if isinstance(error, ReaderGoneError):  # the reader has all it wanted: no message
        return 0 if invocation.stored else READER_GONE
    if invocation.only_a_warning(error):
        return 0
    has_code = isinstance(error, TradewindError) or hasattr(error, "format_message")  # an error of the option parser
    return invocation.fail(error, error.exit_code if has_code else 1)  # type: ignore[attr-defined]


app = Commands(
    name="tradewind",
    cls=TradewindGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: tradewind init, then tradewind submit JOB.yaml",
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
        Path | None, typer.Option(help="State folder to use instead of the configured one.", show_default=False)
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help=f"Show tracebacks (same as {DEBUG_VARIABLE}=1).")] = False,
) -> None:
    """Train machine-learning models at the lowest price on the GPU market, and move them when prices change."""
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"
    ctx.obj = Globals(state_dir=state_dir)


GROUPS = (
    init,
    plans,
    convert,
    profile,
    jobs,
    checkpoints,
    control,
    insight,
    dashboard,
    backtest,
    market,
    prices,
    catalog,
    system,
    store,
)
for group in GROUPS:
    group.register(app)
