"""Never calls attach(): counts in a file of its own checkpoint folder."""

import os
import sys
import time
from pathlib import Path

from trainers.control import ControlDirectory
from trainers.process import unmanaged
from trainers.process.run_context import present_context

unmanaged.POLL_S = 0.05


def main(fail):
    saved = Path(os.environ["TRADEWIND_CHECKPOINT_DIR"], "step")
    if saved.exists():
        sys.stdout.write(f"continues at step {saved.read_text()}\n")
    saved.write_text("3")
    if fail:
        raise RuntimeError("the machine is lost")


def paused():
    """Knows nothing of a request to stop, which comes when it has saved for the first time."""
    Path(os.environ["TRADEWIND_CHECKPOINT_DIR"], "step").write_text("3")
    present_context().own.store()  # the look that is taken every 10 s
    ControlDirectory(os.environ["TRADEWIND_CONTROL_DIR"]).request_stop()
    time.sleep(600)
