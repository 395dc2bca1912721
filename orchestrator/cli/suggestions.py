"""Suggestions for an unknown command: the equivalent of another tool's command, or the commands of the group; and where
the control plane's log is, for commands that may have been typed to see it."""

from collections.abc import Collection
from types import MappingProxyType
from typing import Any

MOST = 8
"""A group with at most this many commands lists all of them."""
ELSEWHERE = MappingProxyType(
    {
        "check": ("doctor",),
        "delete": ("cancel",),
        "describe": ("status",),
        "download": ("fetch",),
        "exec": ("ssh",),
        "gpus": ("offers",),
        "jobs": ("queue",),
        "kill": ("cancel",),
        "launch": ("submit",),
        "list": ("queue",),
        "ls": ("queue",),
        "ps": ("queue",),
        "restart": ("resume", "submit"),
        "retry": ("resume", "submit"),
        "rm": ("cancel",),
        "run": ("submit",),
        "show": ("status",),
        "show-gpus": ("offers",),
        "start": ("submit", "resume", "up"),
        "stop": ("pause", "cancel", "down"),
    }
)
"""Commands of SkyPilot, dstack, Docker and other tools, and the Tradewind commands that do the same."""
LOG_WANTED = ("daemon", "logs")


def with_suggestion(message: str, word: str, commands: Collection[str], *, root: bool) -> str:
    """The error `message` about the unknown command `word`, with suggestions. `commands` are the commands of its group;
    `root` says whether the group is the program itself."""
    missing, _, near = message.rstrip("?.").partition(". Did you mean ")
    names = ELSEWHERE.get(word, ()) if root else ()
    if names:
        return f"{missing}. Did you mean {', '.join(map(repr, names))}?"
    if not near and not root and len(commands) <= MOST:
        return f"{missing}. Commands: {', '.join(map(repr, sorted(commands)))}."
    return message


def log_of_control_plane(ctx: Any) -> str:
    """A sentence that says where the control plane's log is, for a mistake in a command of `daemon` or in `logs`; else
    empty."""
    if ctx.info_name not in LOG_WANTED or ctx.parent is None or ctx.parent.parent is not None:
        return ""
    from orchestrator.cli.session import settings
    from orchestrator.errors import TradewindError
    from orchestrator.services.control_plane.background_log import path_of

    try:
        place = str(path_of(settings(ctx)))
    except TradewindError:  # the settings have a mistake
        place = "control-plane.log in the state folder"
    return f"The control plane's log: {place}"
