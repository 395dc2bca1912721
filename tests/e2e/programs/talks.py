"""Says where its code is, leaves a file in its output folder, and trains."""

import os
import sys
from pathlib import Path

import tiny


def main(hurry: str) -> None:
    sys.stdout.write(f"code in {Path(__file__).parent}\n")
    sys.stdout.flush()
    Path(os.environ["TRADEWIND_OUTPUT_DIR"], "before.txt").write_text("written before training\n")
    tiny.main(hurry)
