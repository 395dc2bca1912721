"""Gives all processes of a job the same string hashes, so that sets of strings have the same order.

Python randomizes its hashes per process. A program that numbers the members of a set (a vocabulary, `list(set(text))`)
would number them differently after each resume.
"""

from __future__ import annotations

import os
import sys

from trainers.errors import TrainerError

_VARIABLE = "PYTHONHASHSEED"


def require() -> None:
    """Restart this process with fixed hashes and the same command line, unless it has them; at most once.

    The hash key is fixed when Python starts, so there is no other way. Child processes inherit it. Only for the main
    program: everything that it did before is lost. Raises TrainerError if Python ignores the key.
    """
    if not sys.flags.hash_randomization:
        return
    if sys.flags.ignore_environment or os.environ.get(_VARIABLE) == "0":
        raise TrainerError(
            f"this Python ignores {_VARIABLE}=0, so string hashes would differ after each resume",
            hint="start Python without -E, -I and -R",
        )
    os.execve(sys.executable, sys.orig_argv, {**os.environ, _VARIABLE: "0"})
