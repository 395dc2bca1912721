"""A script that knows nothing of Tradewind but the folder for its outputs; and two secrets."""

import base64
import hashlib
import os
import sys
from pathlib import Path

outputs = Path(os.environ["TRADEWIND_OUTPUT_DIR"])
sys.stdout.write(f"arguments: {' '.join(sys.argv[1:])}\n")
(outputs / "result.txt").write_text("done by a script\n")
for name in ("E2E_SECRET", "E2E_UNSET"):
    (outputs / name).write_text(hashlib.sha256(os.environ[name].encode()).hexdigest())
secret = os.environ["E2E_SECRET"]
sys.stdout.write(
    f"in the log: {secret} {base64.b64encode(b'me:' + secret.encode()).decode()} {secret.encode().hex()}\n"
)
