"""One machine of a run, as far as Ray: RANK NODES TEMP_DIR TOKEN [HEAD]. Says what happens, one line each."""

import os
import sys
import time
from pathlib import Path

from orchestrator.nodes.cluster import Cluster
from orchestrator.nodes.seating import Seat


def say(*words: object) -> None:
    sys.stdout.write(f"{' '.join(map(str, words))}\n")
    sys.stdout.flush()


def main(rank: str, nodes: str, temp_dir: str, token: str, head: str = "") -> None:
    seat = Seat(int(rank), int(nodes), f"127.0.0.{int(rank) + 1}", token, head or None)
    os.environ["TRADEWIND_INSTANCE_DIR"] = temp_dir
    cluster = Cluster(Path(temp_dir), seat)
    cluster.start()
    say("up", cluster.address)
    cluster.gather()
    actor = cluster.actor(f"{temp_dir}/run", with_setup=False)
    asked = actor.report.remote()
    while (said := cluster.answer(asked)) is None:
        time.sleep(0.05)
    say("actor", said["state"], Path(f"{temp_dir}/run/control").is_dir())
    while not cluster.dead():
        time.sleep(0.05)
    say("lost", "after", round(time.monotonic(), 2))


if __name__ == "__main__":
    main(*sys.argv[1:])
