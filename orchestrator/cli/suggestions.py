"""Suggestions for an unknown command: the equivalent of another tool's command, or the commands of the group."""

from collections.abc import Collection
from types import MappingProxyType

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
