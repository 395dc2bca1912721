"""Generates the pages and pictures of docs/ that are made from the code: `python -m scripts.gen_docs`.

`--check` only reports stale files.

To add a page, add a line to PAGES: its path and the function that returns its text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts.page_cli import cli_page
from scripts.page_configuration import configuration_page
from scripts.page_exit_codes import exit_codes_page
from scripts.page_job_file import job_file_page
from scripts.page_sdk import sdk_page
from scripts.picture_demo import demo_picture
from scripts.picture_migration import migration_picture

ROOT = Path(__file__).resolve().parent.parent
PAGES: Sequence[tuple[str, Callable[[], str]]] = (
    ("docs/job-file.md", job_file_page),
    ("docs/configuration.md", configuration_page),
    ("docs/cli.md", cli_page),
    ("docs/exit-codes.md", exit_codes_page),
    ("docs/sdk.md", sdk_page),
    ("docs/demo.svg", demo_picture),
    ("docs/migration.svg", migration_picture),
)


def main(arguments: Sequence[str]) -> int:
    stale = 0
    for name, page in PAGES:
        path, text = ROOT / name, page()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if "--check" in arguments:
            print(f"{name} is stale: run python -m scripts.gen_docs", file=sys.stderr)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}", file=sys.stderr)
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
