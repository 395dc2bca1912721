"""metadata.json of a `local` instance: stands in for a cloud's metadata service.

The provider writes it; the node's agent reads it (providers.notices) at the path in TRADEWIND_METADATA.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from providers.errors import NotFoundError, SetupError
from providers.notice import Notice


def read_notice(path: Path) -> Notice | None:
    """The notice given to this machine; None if there is none.

    Raises NotFoundError if the file is gone (with the instance's folder) and SetupError if it is damaged.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(
            f"this machine has no metadata at {path}",
            hint="the instance's folder was removed while it ran; terminate the instance",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from error
    try:
        notice = json.loads(text)["notice"]
        if notice is None:
            return None
        deadline_s = notice["deadline_monotonic_s"]
        return Notice(str(notice["kind"]), None if deadline_s is None else float(deadline_s))
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, repr(error)) from error


def write_notice(path: Path, notice: Notice | None) -> None:
    """Replace the file atomically, unless it already has this content."""
    reported = None if notice is None else {"kind": notice.kind, "deadline_monotonic_s": notice.deadline_monotonic_s}
    text = json.dumps({"notice": reported})
    try:
        if path.read_bytes() == text.encode():
            return
    except FileNotFoundError:
        pass
    replace_file(path, text)


def replace_file(path: Path, text: str) -> None:
    """Write a file so that a reader sees either the complete old or the complete new content."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


def _damaged(path: Path, detail: str) -> SetupError:
    return SetupError(
        f"the metadata of this machine at {path} is damaged: {detail}",
        hint="another program wrote to the instance's folder; terminate the instance so that its job moves",
    )
