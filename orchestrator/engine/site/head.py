"""The head of this host's site: a process of its own, so that it outlives the control plane.

    python -m orchestrator.engine.site.head FOLDER TEMP_DIR

Starts Ray's control store and a raylet without CPUs (no run is placed on the head), writes head.json and waits for
SIGTERM or the death of one of the two. On END_IF_UNUSED it ends unless a node is joined: only Ray itself knows all its
nodes, so whoever asks because nothing seems to run cannot end a run by mistake. It ends its whole session, and then
removes head.json. A site has one head: a second one exits at once with the code TAKEN.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from orchestrator.config.private import PRIVATE_UMASK
from orchestrator.engine.site.environment import END_IF_UNUSED, Head, SiteFiles, end_session, ray_environment
from providers.clock import boot_id
from providers.procfs import process_start

ENDED = 0
TAKEN = 3
NODES_TIMEOUT_S = 5.0


def main(folder: str, temp_dir: str) -> int:
    """Run the head until it is to end (returns ENDED) or a process of it dies (1); TAKEN if there is another
    head."""
    os.umask(PRIVATE_UMASK)
    files = SiteFiles(Path(folder), Path(temp_dir))
    files.prepare()
    if files.claim_head() is None:
        return TAKEN
    os.environ.update(ray_environment(files))

    import ray._private.node
    import ray._private.parameter

    params = ray._private.parameter.RayParams(
        num_cpus=0,
        num_gpus=0,
        object_store_memory=80 << 20,
        min_worker_port=0,
        max_worker_port=0,
        gcs_server_port=0,
        include_dashboard=False,
        include_log_monitor=False,
        no_monitor=True,
        temp_dir=str(files.temp_dir),
        node_ip_address="127.0.0.1",
        dashboard_agent_listen_port=0,
    )

    class Node(ray._private.node.Node):  # type: ignore[misc]
        def start_api_server(self, *, include_dashboard: bool | None, raise_on_failure: bool) -> None:
            """Do nothing: without a dashboard it would only report usage, at the cost of a second and 90 MB."""

    node = Node(params, head=True, shutdown_at_exit=False, spawn_reaper=False)

    asked = ended = False

    def ask(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    def end(_signal: int, _frame: FrameType | None) -> None:
        nonlocal ended
        ended = True

    signal.signal(END_IF_UNUSED, ask)
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start = process_start(os.getpid())
    assert start is not None
    files.write_head(Head(gcs_address=node.gcs_address, pid=os.getpid(), pid_start=start, boot_id=boot_id()))
    while not ended and not node.dead_processes():
        time.sleep(0.2)
        if asked:
            asked, ended = False, ended or not _has_nodes(node.gcs_address)
    node.kill_all_processes(check_alive=False, allow_graceful=False)
    if not ended:
        return 1
    end_session(os.getsid(0))  # Ray leaves its agents to notice by themselves
    files.head_path.unlink(missing_ok=True)
    return ENDED


def _has_nodes(gcs_address: str) -> bool:
    """Whether a node is joined besides the head, or may be because Ray does not say."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]
    from ray.core.generated.gcs_pb2 import GcsNodeInfo

    try:
        found = GcsClient(address=gcs_address).get_all_node_info(
            timeout=NODES_TIMEOUT_S, state_filter=GcsNodeInfo.GcsNodeState.ALIVE
        )
    except Exception as error:  # any RPC failure means the same: not known
        sys.stderr.write(f"does not end: Ray does not list its nodes: {error}\n")
        return True
    return any(not info.is_head_node for info in found.values())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
