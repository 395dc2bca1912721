"""Same hashes: in all processes of a job, a text has the same hash, so that a set of texts has the same order.

Python draws the key of its hashes anew for each process. A program that numbers the members of a set (a vocabulary,
`list(set(text))`) would number them differently after each resume. Must not know: which process it is.
"""

from __future__ import annotations

import os
import sys

_VARIABLE = "PYTHONHASHSEED"


def require() -> None:
    """Let this process begin anew, with all that it was given, unless it has those hashes; at most once.

    The key is fixed when Python starts, so nothing else can change it. Processes that it starts have them, too.
    """
    if os.environ.get(_VARIABLE) != "0":
        os.execve(sys.executable, sys.orig_argv, {**os.environ, _VARIABLE: "0"})
