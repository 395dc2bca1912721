"""Loads a job's function and checks its arguments without calling it: the child process of a check before renting.

    python -m trainers.process.entry_check SPEC.json VERDICT.json BYTES

Loading runs the top level of the job's modules, which may do anything, so the memory of this process is limited to
BYTES, and the caller ends it after a timeout. The verdict is {"permanent", "error", "takes"}; the first two are empty
if there is no error. There is no verdict if the program ended the process. "takes" maps each parameter to its
annotation as Python source; the caller decides which values fit.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import resource
import sys
import types
from pathlib import Path

from trainers.runner import loaded, reported, would_repeat
from trainers.spec import TrainerSpec

_BUILTIN = frozenset({"int", "float", "str", "bool", "list", "tuple", "dict"})


def main(arguments: list[str]) -> int:
    """Check the spec and write the verdict. Returns 0; raises OSError if the verdict cannot be written."""
    spec, verdict, limit_bytes = TrainerSpec.load(Path(arguments[0])), Path(arguments[1]).resolve(), int(arguments[2])
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    os.environ.update(spec.env)
    os.chdir(spec.workdir)
    sys.path.insert(0, str(Path(spec.workdir).resolve()))
    permanent, error, takes = False, "", {}
    try:
        function, _ = loaded(spec)
        takes = parameter_types(function)
    except BaseException as raised:  # anything the job's code raises, including SystemExit
        trace = raised.__traceback__
        permanent, error = would_repeat(raised), reported(raised.with_traceback(trace and trace.tb_next))
    verdict.write_text(json.dumps({"permanent": permanent, "error": error, "takes": takes}))
    return 0


def parameter_types(function: object) -> dict[str, str]:
    """The annotation of each parameter. Empty for callables that may convert their arguments first: decorated
    functions, and classes with a metaclass or their own `__new__`.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if type(function) is type and "__new__" not in vars(function):
        function = vars(function).get("__init__")
    if not isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__"):
        return {}
    if not _BUILTIN.isdisjoint(function.__globals__):  # the module redefines `list`
        return {}
    return {
        each.name: _written(each.annotation) + (" | None" if each.default is None else "")
        for each in inspect.signature(function).parameters.values()
        if each.annotation is not each.empty
    }


def _written(annotation: object) -> str:
    """The annotation as in the source, if the module keeps its annotations as text."""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # do not wait for threads and exit handlers of the job's modules
