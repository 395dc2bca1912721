"""Ctrl-C at a terminal while `submit` waits for an answer: nothing was submitted, nothing was started."""

from __future__ import annotations

import os
import pty
import select
import time
from pathlib import Path

from tests.e2e.living import MAIN, PROGRAMS, Tradewind

CTRL_C = b"\x03"


def test_ctrl_c_before_the_answer_leaves_nothing_behind(tmp_path: Path) -> None:
    tradewind = Tradewind(tmp_path)
    try:
        job_file = tmp_path / "job.yaml"
        job_file.write_text(
            f"name: hesitant\ntrain: {{entry: 'tiny:raises', steps: 1, workdir: {PROGRAMS}}}\nresources: {{cpu: 1}}\n"
        )
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(MAIN[0], [*MAIN, "submit", str(job_file)], tradewind.environment)
        said = b""
        give_up = time.monotonic() + 60
        while b"Submit this job?" not in said:
            assert select.select([terminal], [], [], max(0.0, give_up - time.monotonic()))[0], said
            said += os.read(terminal, 4096)
        os.write(terminal, CTRL_C)
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        assert os.waitstatus_to_exitcode(status) == 130
        assert tradewind.client.jobs.list(ended=True).jobs == ()
        assert not tradewind.client.control_plane.status().running
        assert tradewind.left_behind() == []
    finally:
        tradewind.close()
