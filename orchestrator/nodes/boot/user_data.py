"""User data: the start script of a machine that shares nothing with the control plane.

It finds a Python and runs orchestrator.nodes.boot.program with the configuration. It contains no secret that outlives
the boot: the URLs allow single requests for an hour, and the boot token registers a machine once.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from orchestrator.errors import SiteError
from orchestrator.nodes import sealing
from orchestrator.nodes.boot import program

MOST_BYTES = 16 << 10  # EC2's limit; those of other clouds are higher
NO_PYTHON = (
    "this machine has no Python 3.11 or newer: install one (apt install python3 python3-venv), or use an image that "
    "has one"
)
_SHORTER = {
    "s3": "use credentials with a shorter session token, such as those of an IAM user or a role of this account",
    "gs": "Google's limited tokens vary in length: set machines.role to a service account; or shorten the prefix in "
    "store_root",
    "az": "use the storage account's key (AZURE_STORAGE_ACCOUNT_KEY), with which signatures are shorter; or shorten "
    "the prefix in store_root",
}
"""By store: how to make the signed requests shorter."""
_JSON = {"Content-Type": "application/json"}
_PYTHON = "import sys,importlib.util as u;sys.exit(4 if sys.version_info<(3,11) else 0 if u.find_spec('torch') else 3)"
_SCRIPT = """#!/usr/bin/env bash
# Tradewind: boots a machine that trains a job. See docs/machines.md.
found=
for each in python3 python3.14 python3.13 python3.12 python3.11 /opt/*/bin/python3 /usr/local/bin/python3; do
  "$each" -c "@probe" > /dev/null 2>&1
  case $? in
    0) found=$each; break;;
    3) found=${found:-$each};;
  esac
done
if [ -z "$found" ]; then
  echo "tradewind: "@no_python >&2
  report=@report node=@node headers=(@headers)
  curl -sS -f -m 60 -X PUT "${headers[@@]/#/-H}" --data-binary @@- "$node" <<< "$report" ||
    wget -qO- --max-redirect=0 --method=PUT "${headers[@@]/#/--header=}" --body-data="$report" "$node"
  exit 1
fi
exec "$found" - <<'TRADEWIND'
import base64, json, zlib
exec(compile(zlib.decompress(base64.b85decode("@program")), "tradewind-boot", "exec"))
boot(json.loads(zlib.decompress(base64.b85decode("@config"))))
TRADEWIND
"""


def user_data(config: Mapping[str, object], node_url: str, headers: Mapping[str, str]) -> str:
    """The script. `config` is the configuration of orchestrator.nodes.boot.program; `node_url` receives the report that
    there is no Python, in a request with these headers. Raises SiteError if it is too long."""
    boot_token = str(config["boot_token"])
    proof = sealing.error_proof(boot_token, "none", NO_PYTHON)
    report = json.dumps({"boot": "none", "public_key": "", "proof": proof, "error": NO_PYTHON})
    parts = {
        "@@": "@",
        "@probe": _PYTHON,
        "@no_python": quote(NO_PYTHON),
        "@node": quote(node_url),
        "@headers": " ".join(quote(f"{name}: {value}") for name, value in {**headers, **_JSON}.items()),
        "@report": quote(report),
        "@program": _packed(Path(program.__file__).read_text()),
        "@config": _packed(json.dumps(config)),
    }
    text = re.sub("|".join(sorted(parts, key=len, reverse=True)), lambda found: parts[found[0]], _SCRIPT)
    if len(text.encode()) > MOST_BYTES:
        raise SiteError(
            f"the user data of a machine has {len(text.encode())} bytes; the limit is {MOST_BYTES}",
            hint=_SHORTER.get(str(config["store"]).partition("://")[0], "shorten the prefix in store_root"),
        )
    return text


def _packed(text: str) -> str:
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode()
