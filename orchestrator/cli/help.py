"""Help texts: paragraphs that flow with the terminal, and switches without a type."""

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from orchestrator.cli.meant import meant


class _Readable:
    """Of a command or a group: what its `--help` shows."""

    help: str | None

    def get_params(self, ctx: Any) -> Any:
        """Its parameters; a switch takes no value, so there is no type to show."""
        found = super().get_params(ctx)  # type: ignore[misc]
        for each in found:
            if getattr(each, "is_flag", False) and each.metavar is None:
                each.metavar = ""
        return found

    def format_help(self, ctx: Any, formatter: Any) -> Any:
        """Its lines end where the terminal does, not where the source's do."""
        self.help = "\n\n".join(" ".join(each.split()) for each in (self.help or "").split("\n\n"))
        return super().format_help(ctx, formatter)  # type: ignore[misc]


class Command(_Readable, TyperCommand):
    """A command with readable help."""


class Group(_Readable, TyperGroup):
    """A group of commands with readable help."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command that was typed. The error for an unknown one suggests others."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:  # typer has its usage errors in a private module
            if hasattr(error, "message") and args[0] not in self.commands:
                error.message = meant(error.message, args[0], self.commands, root=ctx.parent is None)
            raise


class Commands(typer.Typer):
    """A group of commands whose help is readable."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"cls": Group, **options})

    def command(self, name: str | None = None, **options: Any) -> Any:
        """A decorator that registers a command with readable help."""
        return super().command(name, **{"cls": Command, **options})
