"""Finds the schema for cloud-init's files. It is part of the Debian package, which is unpacked and not installed.

If cloud-init were installed, it would configure this machine at the next boot.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

VARIABLE = "CLOUD_INIT_SCHEMA"
PACKAGE = "cloud-init"
REMEDY = f"set {VARIABLE} to the path of its schema-cloud-config-v1.json; without it, its test is skipped"
_INSIDE = "usr/lib/python3/dist-packages/cloudinit/config/schemas/schema-cloud-config-v1.json"
_UNPACKED = Path(sys.prefix) / "share" / PACKAGE
_BRIEF = [f"-oAcquire::{option}" for option in ("Retries=0", "http::Timeout=10", "https::Timeout=10")]


def find() -> Path | None:
    """The path of the schema; None if it is missing."""
    places = (Path(os.environ.get(VARIABLE, "")), Path("/") / _INSIDE, _UNPACKED / _INSIDE)
    return next((place for place in places if place.is_file()), None)


def unpack() -> None:
    """Download Debian's package and unpack it next to this Python. Raises CalledProcessError and OSError."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "-qq", *_BRIEF, "download", PACKAGE], cwd=folder, check=True, capture_output=True)
        (package,) = Path(folder).glob("*.deb")
        subprocess.run(["dpkg-deb", "--extract", str(package), str(_UNPACKED)], check=True, capture_output=True)
