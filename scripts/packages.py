"""Installs the programs that the tests need and pip cannot install: `python -m scripts.packages`.

As root on Debian, it installs missing programs, except programs that a variable names. Otherwise it says what to do and
fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from scripts import browser, cloud_init, compiler, machines, postgres

NEEDED = {
    "the page tests need a browser": browser,
    "the store's tests need a Postgres server": postgres,
    "the tests of wrong clocks need a C compiler": compiler,
    "the tests of machines that people own need an SSH server": machines,
}


def install(packages: list[str]) -> None:
    """Install these Debian packages. Raises CalledProcessError."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        command = ["apt-get", "-qq", *arguments]
        subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)


def unpack_cloud_init() -> None:
    """Get the schema of cloud-init, if possible: only one test needs it."""
    try:
        cloud_init.unpack()
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"cloud-init's schema is missing ({error}): {cloud_init.REMEDY}", file=sys.stderr)


def main() -> int:
    """Install missing programs. The exit code is 1 if some are still missing."""
    absent = [each.PACKAGE for each in NEEDED.values() if each.find() is None and not os.environ.get(each.VARIABLE)]
    if absent and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing Debian's {' and '.join(absent)} for the tests", file=sys.stderr)
        install([name for names in absent for name in names.split()])
    if cloud_init.find() is None:
        unpack_cloud_init()
    missing = {why: each.REMEDY for why, each in NEEDED.items() if each.find() is None}
    for why, remedy in missing.items():
        print(f"{why}: {remedy}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
