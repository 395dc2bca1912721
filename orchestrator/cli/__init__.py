"""The command line. Must not know how anything is decided or done: every command is one call of orchestrator.Client."""

__all__ = ["main"]


def main() -> None:
    """The `tradewind` command: runs it and exits with a code of docs/exit-codes.md."""
    from orchestrator.cli.app import app

    app(prog_name="tradewind")
