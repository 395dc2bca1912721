"""docs/cli.md: every command with its arguments, options and example, from the program itself."""

from __future__ import annotations

from typing import Any

from typer.main import get_command

from orchestrator.cli.app import app

HEAD = """# Command line

<!-- Made by `python -m scripts.gen_docs` from orchestrator/cli. -->

Results go to stdout, everything else to stderr. Colour is used only on a terminal and never with `NO_COLOR`. Name a job
by its id, the beginning of its id, or its name. `tradewind --install-completion` completes commands, options and jobs.

Tables fit the terminal, from 70 columns up: less important columns are left out where it is narrow, and words and
numbers are never broken. `--wide` shows all columns, ids included. `plan` and `submit` start with a short summary;
`--why` shows all figures and reasons. In a pipe, `COLUMNS` sets the width; without it, lines are as long as needed.

`--output json` writes exactly one JSON document to stdout and nothing to stderr, so `2>&1 | jq` works; `logs`, `watch`,
`prices watch` and `events --follow` write one document per line. A result has a versioned schema
(`"schema": "tradewind/<kind>/v1"`); money is integer nano-USD, instants are epoch milliseconds of market time. If the
command fails, the document has an `error`; if nothing else is in it, its schema is `tradewind/error/v1`. What failed
without changing the exit code is in `command_warnings`. The exit codes are in [exit-codes.md](exit-codes.md).
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
