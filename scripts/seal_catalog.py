"""Writes the manifest of the catalogue in providers/catalog/data: its date, and the size and SHA-256 of every file.

    python -m scripts.seal_catalog 2026-11-22

This is the last step of every change to these files. Publishing them publishes the catalogue: it can be installed from
any copy of the folder.
"""

from __future__ import annotations

import sys

from providers.catalog.files import DATA, day_ms
from providers.catalog.manifest import NAME, sealed


def main() -> None:
    if len(sys.argv) != 2 or day_ms(sys.argv[1]) is None:
        raise SystemExit("usage: python -m scripts.seal_catalog YYYY-MM-DD")
    (DATA / NAME).write_text(sealed(DATA, sys.argv[1]))


if __name__ == "__main__":
    main()
