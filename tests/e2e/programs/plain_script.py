"""A script that knows nothing of Tradewind: it trains, keeps what it needs in the folder that it is given, and ends."""

import os
import sys
from pathlib import Path

sys.stdout.write(f"arguments: {' '.join(sys.argv[1:])}\n")
Path(os.environ["TRADEWIND_OUTPUT_DIR"], "result.txt").write_text("done by a script\n")
