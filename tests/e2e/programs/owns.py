"""A script that knows nothing of Tradewind but its folders: it counts to 400, and saves the count at each 100."""

import os
import sys
import time
from pathlib import Path

END, EVERY = 400, 100
hurry = Path(sys.argv[2])
saved = Path(os.environ["TRADEWIND_CHECKPOINT_DIR"], "count")
count = int(saved.read_text()) if saved.exists() else 0
sys.stdout.write(f"begins at {count}\n")
sys.stdout.flush()
while count < END:
    count += EVERY
    saved.with_suffix(".new").write_text(str(count))
    saved.with_suffix(".new").replace(saved)
    while not hurry.exists():
        time.sleep(0.1)
Path(os.environ["TRADEWIND_OUTPUT_DIR"], "counted.txt").write_text(f"{count}\n")
