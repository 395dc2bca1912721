"""Same hashes: in all processes of a job a text has the same hash, so that a set of texts has the same order.

Python draws a new key of its hashes for each process. A program that numbers the members of a set (a vocabulary,
`list(set(text))`) would number them differently after each resume.
"""

from __future__ import annotations

import os
import sys

from trainers.errors import TrainerError

_VARIABLE = "PYTHONHASHSEED"


def require() -> None:
    """Replace this process by one with those hashes and the same command line, unless it has them: at most once.

    The key is fixed when Python starts, so nothing else can change it. Processes that it starts inherit it. For the
    main program alone: all that it did before is lost. Raises TrainerError where Python ignores the key.
    """
    if not sys.flags.hash_randomization:
        return
    if sys.flags.ignore_environment or os.environ.get(_VARIABLE) == "0":
        raise TrainerError(
            f"this Python does not obey {_VARIABLE}=0, so that texts would have other hashes after each resume",
            hint="start Python without -E, -I and -R",
        )
    os.execve(sys.executable, sys.orig_argv, {**os.environ, _VARIABLE: "0"})
