"""The control plane's threads share their memory pools, so that it needs less memory."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.daemon import MEMORY_POOLS

PROGRAM = """
import ctypes, sys, threading
if sys.argv[2] == "shared":
    from orchestrator.daemon import share_memory_pools
    share_memory_pools()
libc, together, kept = ctypes.CDLL(None), threading.Barrier(8), []
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
def allocate():
    together.wait()
    kept.extend(libc.malloc(100_000) for _ in range(100))
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
report = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, report)
libc.fclose(report)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has pools by thread")
def test_many_threads_allocate_from_few_pools(tmp_path: Path) -> None:
    def pools(how: str) -> int:
        report = tmp_path / how
        subprocess.run([sys.executable, "-c", PROGRAM, str(report), how], check=True)
        return report.read_text().count("<heap nr=")

    assert pools("shared") <= MEMORY_POOLS < pools("by default")
