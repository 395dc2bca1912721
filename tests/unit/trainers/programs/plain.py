"""A script that writes down what it was given."""

import json
import os
import sys
from pathlib import Path

import torch

sys.stdout.write("printed by the script\n")
os.write(2, b"written to descriptor 2\n")
seen = {
    "argv": sys.argv,
    "env": dict(os.environ),
    "threads": torch.get_num_threads(),
    "deterministic": torch.are_deterministic_algorithms_enabled(),
}
Path(os.environ["TRADEWIND_OUTPUT_DIR"], "seen.json").write_text(json.dumps(seen))
