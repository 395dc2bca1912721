"""Permissions that bind root, too."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

_SETRESUID = {"x86_64": 117, "aarch64": 147}  # number of the system call
_NOBODY = 65534


@contextmanager
def without_privilege() -> Iterator[None]:
    """This thread as nobody, if it is root. What is to be entered in this block must be open to all.

    The other threads of the process, which may be those of other tests, stay who they are: so it is the system call
    itself, since os.setresuid changes all of them.
    """
    if os.getuid() != 0:
        yield
        return
    _become(_NOBODY)
    try:
        yield
    finally:
        _become(0)


def _become(user: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = map(ctypes.c_long, (_SETRESUID[platform.machine()], user, user, 0))
    if libc.syscall(*arguments) != 0:
        raise OSError(ctypes.get_errno(), "the user of this thread cannot be changed")
