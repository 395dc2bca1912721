"""Never calls attach(): counts in a file of its own checkpoint folder."""

import os
import sys
from pathlib import Path


def main(fail):
    saved = Path(os.environ["TRADEWIND_CHECKPOINT_DIR"], "step")
    if saved.exists():
        sys.stdout.write(f"continues at step {saved.read_text()}\n")
    saved.write_text("3")
    if fail:
        raise RuntimeError("the machine is lost")
