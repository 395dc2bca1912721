"""docs/cli.md: every command with its arguments, options and example, from the program itself."""

from __future__ import annotations

from typing import Any

from typer.main import get_command

from orchestrator.cli.app import app

HEAD = """# Command line

<!-- Made by `python -m scripts.gen_docs` from orchestrator/cli. -->

Results go to stdout, everything else to stderr. `--output json` gives a result with a versioned schema
(`"schema": "tradewind/<kind>/v1"`); it holds numbers, with the unit in the name: money is integer
nano-USD (`cost_nano_usd`), instants are epoch milliseconds of market time (`at_ms`), durations are seconds. Colour only
on a terminal and never with `NO_COLOR`. Jobs are named by id, by the beginning of one, or by name.
`tradewind --install-completion` completes commands, options and jobs. The exit codes are in
[exit-codes.md](exit-codes.md).
"""


def cli_page() -> str:
    """The page's text."""
    root: Any = get_command(app)
    parts = [HEAD, _options("tradewind [OPTIONS] COMMAND", root, ("--install-completion", "--show-completion"))]
    for name, command in root.commands.items():
        parts += _command(f"tradewind {name}", command)
    return "\n".join(parts).rstrip() + "\n"


def _command(path: str, command: Any) -> list[str]:
    if hasattr(command, "commands"):
        return [text for name, inner in command.commands.items() for text in _command(f"{path} {name}", inner)]
    arguments = [each.metavar or each.name.upper() for each in command.params if each.param_type_name == "argument"]
    usage = " ".join([path, "[OPTIONS]", *arguments])
    parts = [f"## {path}\n", f"{command.help}\n", _options(usage, command)]
    if command.epilog:
        parts.append(f"{command.epilog.replace('Example: ', 'Example: `')}`\n")
    return parts


def _options(usage: str, command: Any, hidden: tuple[str, ...] = ()) -> str:
    rows = []
    for each in command.params:
        if each.param_type_name == "argument":
            rows.append((f"`{each.metavar or each.name.upper()}`", each.help))
        elif each.opts[0] not in hidden:
            names = ", ".join(f"`{option}`" for option in [*each.opts, *each.secondary_opts])
            default = "" if each.default in (None, False) or each.is_flag else f" Default: `{each.default}`."
            rows.append((names, f"{each.help}{default}"))
    table = "".join(f"| {_cell(names)} | {_cell(help_)} |\n" for names, help_ in rows)
    return f"```\n{usage}\n```\n\n| | |\n|---|---|\n{table}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
