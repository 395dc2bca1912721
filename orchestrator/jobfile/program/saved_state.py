"""Whether a job's program certainly starts over in each run, because nothing in its source could read saved state.

The program is parsed and never run. For most programs this is not certain, so they cause no warning. It is certain if
the program has a loop, all its modules are in the working folder or in KNOWN, and no name in it suggests that it reads
a file, looks for one, or runs other code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from orchestrator.jobfile.program.entrypoint import module_in, parsed
from orchestrator.model import TrainSpec

MOST_MODULES = 200
KNOWN = frozenset(
    {
        *("__future__", "abc", "argparse", "bisect", "collections", "contextlib", "copy", "dataclasses", "datetime"),
        *("decimal", "enum", "fractions", "functools", "gc", "heapq", "itertools", "json", "logging", "math"),
        *("numbers", "os", "pathlib", "platform", "pprint", "queue", "random", "re", "signal"),
        *("statistics", "string", "sys", "textwrap", "threading", "time", "traceback", "types", "typing", "uuid"),
        *("warnings", "einops", "matplotlib", "numpy", "torch", "torchvision", "tqdm"),
    }
)
"""Modules that read saved state only by functions whose names say so. Libraries that train (Lightning, transformers)
are not among them, as they find checkpoints by themselves; nor is `trainers`."""
_READS = frozenset(
    {
        *("checkpoint", "checkpointer", "checkpointing", "checkpoints", "ckpt", "ckpts", "continue", "importer"),
        *("load", "loaded", "loading", "loads", "open", "read", "reader"),
        *("readinto", "readline", "readlines", "readlink"),
        *("recover", "restart", "restore", "restored", "resume", "resumed", "resuming", "snapshot", "snapshots"),
        *("fromfile", "fromregex", "genfromtxt", "imread", "loadtxt", "memmap", "mmap", "pickle", "unpickle"),
        *("access", "exists", "getctime", "getmtime", "getsize", "glob", "iglob", "isdir", "isfile", "islink"),
        *("iterdir", "lexists", "listdir", "lstat", "rglob", "scandir", "stat", "tell", "walk"),
        *("eval", "exec", "execl", "execv", "execve", "execvp", "expandvars", "fork", "getattr", "globals", "import"),
        *("popen", "spawnl", "spawnv", "system", "tradewind", "vars"),
    }
)
_READS_WHOLE = frozenset(
    {"DataSource", "__dict__", "from_file", "is_dir", "is_file", "is_symlink", "modules", "meta_path"}
)
_IN_TEXT = frozenset({"checkpoint", "checkpoints", "ckpt", "restore", "resume", "tradewind"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def starts_over(train: TrainSpec) -> bool:
    """Whether each run of the program certainly begins at its first step. False: it may continue, or it is unknown."""
    if train.setup is not None or "PYTHONPATH" in train.env:
        return False
    path = _program(train)
    if path is None:
        return False
    found: dict[Path, ast.Module] = {}
    try:
        return _certain(path, _package(train), train.workdir, found) and any(map(_loops, found.values()))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _program(train: TrainSpec) -> Path | None:
    if train.entry is not None:
        return module_in(train.workdir, train.entry.partition(":")[0])
    return None if train.script is None else Path(train.workdir, train.script)


def _package(train: TrainSpec) -> tuple[str, ...]:
    """The name of the module, in parts, whose last one is not of its package; a script belongs to none."""
    return tuple((train.entry or "").partition(":")[0].split("."))


def _certain(path: Path, name: tuple[str, ...], workdir: str, found: dict[Path, ast.Module]) -> bool:
    """Whether a module, and all that it imports, reads nothing; adds them to `found`."""
    if path in found:
        return True
    if path.suffix != ".py" or len(found) == MOST_MODULES:
        return False
    tree = found[path] = parsed(path)
    if _reads(tree):
        return False
    package = name if path.name == "__init__.py" else name[:-1]
    return all(_certain_import(each, named, workdir, found) for each, named in _imported(tree, package))


def _certain_import(module: str, may_be_a_name: bool, workdir: str, found: dict[Path, ast.Module]) -> bool:
    """The same for an imported module and the packages around it. The last part `may_be_a_name` in the module before
    it."""
    parts = module.split(".")
    if module_in(workdir, parts[0]) is None and (parts[0] in KNOWN or not Path(workdir, parts[0]).is_dir()):
        return parts[0] in KNOWN
    for end in range(1, len(parts) + 1):
        inner = module_in(workdir, ".".join(parts[:end]))
        if inner is None and not Path(workdir, *parts[:end]).is_dir():
            return may_be_a_name and end == len(parts)
        if inner is not None and not _certain(inner, tuple(parts[:end]), workdir, found):
            return False
    return True


def _imported(tree: ast.Module, package: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    """(the modules that a module imports, whether the last part may be a name in the module before it)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            start = ".".join([*base, *([node.module] if node.module else [])])
            if node.module:
                yield start, False
            yield from ((f"{start}.{alias.name}" if start else alias.name, True) for alias in node.names)


def _loops(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.For | ast.AsyncFor | ast.While) for node in ast.walk(tree))


def _reads(tree: ast.Module) -> bool:
    """Whether a name or a text in the source may mean that saved state is read. Docstrings do not count, nor does
    `open` to write."""
    harmless = {id(call.func) for call in ast.walk(tree) if isinstance(call, ast.Call) and _only_writes(call)}
    harmless |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in harmless:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if _IN_TEXT.intersection(_words(node.value)):
                return True
        elif isinstance(node, ast.Attribute):
            is_path = node.attr == "path" and isinstance(node.value, ast.Name) and node.value.id == "sys"
            if is_path or _means_reading(node.attr):
                return True
        elif isinstance(node, ast.Name):
            if _means_reading(node.id):
                return True
        elif isinstance(node, ast.alias) and any(map(_means_reading, (*node.name.split("."), node.asname or ""))):
            return True
    return False


def _only_writes(call: ast.Call) -> bool:
    """Whether a call is `open(path, "w")` or `path.open("w")`, or the same with another mode that only writes."""
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    place = 0 if isinstance(call.func, ast.Attribute) else 1
    given = [each.value for each in call.keywords if each.arg == "mode"] or call.args[place : place + 1]
    return name == "open" and any(
        isinstance(mode, ast.Constant) and mode.value in ("w", "wt", "wb", "a", "at", "ab") for mode in given
    )


def _means_reading(name: str) -> bool:
    return name in _READS_WHOLE or bool(_READS.intersection(_words(name)))


def _words(text: str) -> Iterator[str]:
    return (word.lower() for word in _WORD.findall(text))
