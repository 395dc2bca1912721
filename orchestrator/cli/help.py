"""Help texts: paragraphs that fit the width of the terminal, and switches without a type."""

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from orchestrator.cli.suggestions import log_of_control_plane, with_suggestion


def usage(argument: Any) -> str:
    """An argument in a usage line: `FILE`, `[FILE]` if it is optional, `FILE...` or `[FILE]...` if it may be
    repeated."""
    name = argument.metavar or argument.name.upper()
    several = "..." if argument.nargs != 1 else ""
    return (name if argument.required else f"[{name}]") + several


class _Readable:
    """Changes the `--help` of a command or a group."""

    help: str | None

    def get_params(self, ctx: Any) -> Any:
        """The parameters; a switch takes no value, so it shows no type."""
        found = super().get_params(ctx)  # type: ignore[misc]
        for each in found:
            if getattr(each, "is_flag", False) and each.metavar is None:
                each.metavar = ""
        return found

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments. The error for an invalid value says what is expected."""
        try:
            found: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        except Exception as error:  # typer's usage errors are in a private module
            wrong = getattr(error.__cause__, "errors", None)
            if hasattr(error, "message") and wrong is not None:
                from orchestrator.formats.mistakes import in_words

                error.message = in_words(wrong()[0])
            if hasattr(error, "message") and hasattr(error, "param_type") and not error.message:  # it is missing
                error.message = log_of_control_plane(ctx)
            raise
        return found

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words of the usage line, with arguments as in the manual."""
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        written = {piece: usage(each) for each in arguments for piece in each.get_usage_pieces(ctx)}
        return [written.get(piece, piece) for piece in super().collect_usage_pieces(ctx)]  # type: ignore[misc]

    def format_help(self, ctx: Any, formatter: Any) -> Any:
        """Wraps paragraphs at the width of the terminal, not where the source does."""
        self.help = "\n\n".join(" ".join(each.split()) for each in (self.help or "").split("\n\n"))
        return super().format_help(ctx, formatter)  # type: ignore[misc]


class Command(_Readable, TyperCommand):
    """A command with readable help."""


class Group(_Readable, TyperGroup):
    """A group of commands with readable help."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command. The error for an unknown command suggests others."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:  # typer's usage errors are in a private module
            if hasattr(error, "message") and args[0] not in self.commands:
                found = with_suggestion(error.message, args[0], self.commands, root=ctx.parent is None)
                error.message = f"{found} {log_of_control_plane(ctx)}".rstrip()
            raise


class Commands(typer.Typer):
    """A group of commands whose help is readable."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"cls": Group, **options})

    def command(self, name: str | None = None, **options: Any) -> Any:
        """A decorator that registers a command with readable help."""
        return super().command(name, **{"cls": Command, **options})
