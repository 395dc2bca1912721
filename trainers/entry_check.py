"""Loads a job's function and binds its arguments without calling it: the child process of a check before renting.

    python -m trainers.entry_check SPEC.json VERDICT.json BYTES

Loading runs the top level of the job's modules, which may do anything; so the memory of this process is limited to
BYTES, and the caller ends it after a while. The verdict is {"permanent", "error"}, both empty when all is well;
there is none when the program ended the process. Must not know: who asked.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

from trainers.runner import loaded, told, would_repeat
from trainers.spec import TrainerSpec


def main(arguments: list[str]) -> int:
    spec, verdict, limit_bytes = TrainerSpec.load(Path(arguments[0])), Path(arguments[1]).resolve(), int(arguments[2])
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    os.environ.update(spec.env)
    os.chdir(spec.workdir)
    sys.path.insert(0, str(Path(spec.workdir).resolve()))
    permanent, error = False, ""
    try:
        loaded(spec)
    except BaseException as raised:  # whatever the job's code raises, also SystemExit
        trace = raised.__traceback__
        permanent, error = would_repeat(raised), told(raised.with_traceback(trace and trace.tb_next))
    verdict.write_text(json.dumps({"permanent": permanent, "error": error}))
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # threads and exit handlers of the job's modules would take their time
