"""Finds the programs that tests use to simulate other machines: sshd and ip."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

VARIABLE = "SSHD"
PACKAGE = "openssh-server iproute2"
REMEDY = f"sudo apt-get install --no-install-recommends {PACKAGE}, or set {VARIABLE} to the path of sshd"


def find() -> Path | None:
    """The path of sshd; None if it or `ip` is missing."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    sshd = shutil.which(os.environ.get(VARIABLE) or "sshd", path=path)
    return Path(sshd) if sshd and shutil.which("ip", path=path) else None
