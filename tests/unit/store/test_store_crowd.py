"""Many processes at once on one store: each gets its turn, also where a server has too few connections for them."""

from __future__ import annotations

import subprocess
import sys

from orchestrator.store import Store

PROCESSES, WRITES = 32, 3  # of two connections each, where the server has 57

CROWD = """
import os, sys
from orchestrator.errors import StoreError
from orchestrator.store import Store
from providers.clock import SystemClock

url, processes, writes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
start, go = os.pipe()
mine, results = os.pipe()

def work(number):
    os.close(go)
    os.read(start, 1)  # ends when everybody is there
    store = Store.open(url, SystemClock())
    for turn in range(writes):
        with store.read() as tx:
            tx.task_done_ms("count")
        with store.write() as tx:
            tx.set_task_done("count", (tx.task_done_ms("count") or 0) + 1)

def child(number):
    try:
        work(number)
    except StoreError as error:
        os.write(results, f"{error}\\n".encode())
    finally:
        os._exit(0)

for number in range(processes):
    if os.fork() == 0:
        child(number)
os.close(go)
os.close(results)
while said := os.read(mine, 65536):
    sys.stdout.write(said.decode())
"""


def test_a_crowd_of_processes_that_write_at_once_all_get_their_turn(store: Store, url: str) -> None:
    command = [sys.executable, "-c", CROWD, url, str(PROCESSES), str(WRITES)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    with store.read() as tx:
        assert tx.task_done_ms("count") == PROCESSES * WRITES
