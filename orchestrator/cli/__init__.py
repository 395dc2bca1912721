"""The command line."""

__all__ = ["main"]


def main() -> None:
    """The `tradewind` command: runs it and exits with a code of docs/exit-codes.md."""
    from orchestrator.cli.app import app

    app(prog_name="tradewind")
