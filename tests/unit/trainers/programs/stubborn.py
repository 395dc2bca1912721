"""Never calls attach(), and never ends by itself; what happens to it, it does to itself."""

import os
import signal
import sys
import threading
from pathlib import Path

from trainers.checkpoint import store
from trainers.control import ControlDirectory, Notice
from trainers.process import unmanaged

unmanaged.POLL_S = unmanaged.GRACE_S = 0.05


def main(what: str, on_term: str = "default") -> None:
    control = ControlDirectory(os.environ["TRADEWIND_CONTROL_DIR"])
    output = Path(os.environ["TRADEWIND_OUTPUT_DIR"])

    def save(_signal: int, _frame: object) -> None:
        (output / "saved").write_text("mine")
        if on_term == "leave":
            sys.exit(0)

    if on_term != "default":
        signal.signal(signal.SIGTERM, save)
    if what == "stop":
        control.request_stop()
    elif what == "notice":
        control.put_notice(Notice("preemption", 1.0))
    elif what == "far notice":
        control.put_notice(Notice("preemption", 1e9))
    elif what == "lease":
        control.put_lease(0.0)
    elif what == "fence":
        checkpoints = Path(os.environ["TRADEWIND_CHECKPOINT_DIR"])
        store.write_fence(checkpoints.parent, checkpoints.name, 9, None)
    threading.Event().wait(0.5 if what == "far notice" else 60.0)
