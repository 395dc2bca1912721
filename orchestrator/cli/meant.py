"""What a word that is no command was meant to be: the commands of other tools, and those of a group."""

from collections.abc import Collection
from types import MappingProxyType

MOST = 8
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
"""Words of SkyPilot, dstack, Docker and other tools, and the commands that do the same."""


def meant(message: str, word: str, commands: Collection[str], *, root: bool) -> str:
    """The `message` about a `word` that is none of the `commands`, with what may have been meant; `root`: they are
    those of the program itself."""
    missing, _, near = message.rstrip("?.").partition(". Did you mean ")
    names = ELSEWHERE.get(word, ()) if root else ()
    if names:
        return f"{missing}. Did you mean {', '.join(map(repr, names))}?"
    if not near and not root and len(commands) <= MOST:
        return f"{missing}. Commands: {', '.join(map(repr, sorted(commands)))}."
    return message
