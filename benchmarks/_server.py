"""A dashboard of a generated fleet as a separate process, with the priority of `tradewind dashboard`, until its input
ends.

    python -m benchmarks._server STORE_FOLDER

Prints its address and the paths of its pages as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from orchestrator.client import Client
from orchestrator.services.caller import Caller
from orchestrator.web.demo.opening import NOW_MS, generated
from orchestrator.web.serve import give_way, serving
from orchestrator.web.site import Site
from tests.web.inspection import paths

MINUTE_MS = 60_000


def main(home: Path) -> None:
    give_way()  # as `tradewind dashboard` and the control plane's dashboard do
    with generated(home, NOW_MS + 10 * MINUTE_MS) as made:
        client = Client.over(made, Caller("benchmark"))
        with serving(Site(client)) as address:
            print(json.dumps({"address": address, "paths": paths(client)}), flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
