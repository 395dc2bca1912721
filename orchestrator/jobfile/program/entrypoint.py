"""Checks whether a job's code exists. It is parsed but never imported, so that checking a job file runs nothing."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

from orchestrator.errors import did_you_mean

ENTRY_PATTERN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_LOADED_BY_NONE = frozenset(
    {
        *("antigravity", "cgitb", "idlelib", "mailbox", "mailcap", "msilib", "nis", "nntplib", "ossaudiodev", "poplib"),
        *("pyclbr", "sched", "smtpd", "spwd", "sunau", "tabnanny", "telnetlib", "test", "this", "trace", "turtle"),
        *("turtledemo", "uu", "winsound", "xdrlib", "zipapp"),
    }
)
"""Standard modules that neither other standard modules nor torch, Ray, NumPy and Tradewind load: a job's modules may
have these names. (The test of this set searches all of these packages.)"""
_OWNERS = {
    **dict.fromkeys(sys.stdlib_module_names - _LOADED_BY_NONE, "Python"),
    **{"trainers": "Tradewind", "torch": "PyTorch", "numpy": "NumPy", "ray": "Ray"},
}
"""Modules that are loaded before the job's code, or by what it uses, and their owners. If two modules have the same
name, the first one found is loaded for all."""
_PROGRAM = re.compile(r"(?:\./)?((?:[\w-]+/)*[\w-]+)\.py", re.ASCII)


def entry_hint(text: str) -> str:
    """What to write instead of an entry that is not of the form module:function."""
    word, _, function = text.strip().partition(":")
    if (program := _PROGRAM.fullmatch(word)) and function.isidentifier():
        return f'write "entry: {_module(program[1])}:{function}"'
    if program:
        return f'write "script: {word}", or name a function in it: "entry: {_module(program[1])}:main"'
    module, dot, function = text.strip().rpartition(".")
    if dot and ENTRY_PATTERN.fullmatch(f"{module}:{function}"):
        return f'write "entry: {module}:{function}"'
    if command := script_of_command(text):
        return f'write "script: {command}", and its arguments in train.args'
    return 'write the module, a colon and the function, such as "entry: train:main"'


def script_of_command(text: str) -> str:
    """`train.py` of `python train.py --lr 3e-4`; empty if it is not such a command."""
    words = text.split()
    return next((word for word in words if _PROGRAM.fullmatch(word)), "") if len(words) > 1 else ""


def _module(path: str) -> str:
    return path.replace("/", ".").replace("-", "_")


def entry_problem(entry: str, workdir: str) -> tuple[str, str] | None:
    """(message, hint) if `module:function` is not found below `workdir` or in installed modules.

    `entry` has that form. None: it was found, or its module is compiled and cannot be read.
    """
    module, _, function = entry.partition(":")
    path = module_in(workdir, module)
    if path is not None and (owner := _OWNERS.get(first := module.partition(".")[0])):
        return f'"{first}" is also a module of {owner}, and only one of the two can be loaded: {path}', "rename yours"
    path = path or _installed_module(module)
    if path is None:
        if module.endswith(".py"):
            return f'"{module}" is a file, not a module', entry_hint(entry)
        near = did_you_mean(module, _modules_of(workdir))
        file = Path(workdir, *module.split(".")).with_suffix(".py")
        return f'there is no module "{module}"', near or f"create {file}, or set train.workdir to its folder"
    if path.suffix != ".py":
        return None
    try:
        tree = parsed(path)
    except SyntaxError as error:
        return f"{path}:{error.lineno or 1}: {error.msg}", "correct the file"
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return f"{path} cannot be read as Python: {error}", "correct the file"
    names = set(_bound_names(tree.body))
    if function in names or "*" in names or "__getattr__" in names:
        return None
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    known = f"it defines {', '.join(functions)}" if functions else f"define it: def {function}(): ..."
    modules = set(_bound_names(node for node in ast.walk(tree) if isinstance(node, ast.Import)))
    return f'{path} defines no "{function}"', did_you_mean(function, names - modules) or known


def has_module(entry: str, workdir: str) -> bool:
    """Whether the module of `entry` is below `workdir` or is installed on this machine."""
    module = entry.partition(":")[0]
    return (module_in(workdir, module) or _installed_module(module)) is not None


def entry_source(entry: str, workdir: str) -> ast.Module | None:
    """The source of the module of `entry`; None if it cannot be read."""
    module = entry.partition(":")[0]
    path = module_in(workdir, module) or _installed_module(module)
    try:
        return None if path is None or path.suffix != ".py" else parsed(path)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def parsed(path: Path) -> ast.Module:
    """The source in a file. Raises SyntaxError, OSError, ValueError, RecursionError, MemoryError."""
    with warnings.catch_warnings():  # of the user's code; Python shows them when it really runs
        warnings.simplefilter("ignore")
        return ast.parse(path.read_bytes())


def script_problem(script: str, workdir: str) -> tuple[str, str] | None:
    """(message, hint) if `script` is not a file below `workdir`."""
    if ENTRY_PATTERN.fullmatch(script):
        return f'"{script}" is a function, not a file', f'write "entry: {script}"'
    root = os.path.abspath(workdir)
    path = os.path.abspath(os.path.join(root, script))
    if os.path.commonpath([root, path]) != root:
        return "the script must be inside train.workdir", f"which is {root}"
    if os.path.isfile(path):
        return None
    if command := script_of_command(script):
        return f"there is no file {path}", f'write "script: {command}", and its arguments in train.args'
    folder = os.path.dirname(path)
    near = did_you_mean(os.path.basename(path), (entry.name for entry in _scan(folder) if os.path.isfile(entry.path)))
    return f"there is no file {path}", near or "create it, or set train.workdir to its folder"


def module_in(folder: str, module: str) -> Path | None:
    """The file of a module below a folder."""
    base = os.path.join(folder, *module.split("."))
    for path in (f"{base}.py", os.path.join(base, "__init__.py")):
        if os.path.isfile(path):
            return Path(path)
    return None


def _installed_module(module: str) -> Path | None:
    """The file of an importable module. importlib would import a and a.b to find a.b.c, so search the folders."""
    first, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(first)
        name = first
        for part in rest:
            if spec is None or spec.submodule_search_locations is None:
                return None
            name = f"{name}.{part}"
            spec = importlib.machinery.PathFinder.find_spec(name, list(spec.submodule_search_locations))
    except (ImportError, ValueError, OSError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


def _modules_of(folder: str) -> list[str]:
    return [entry.name.removesuffix(".py") for entry in _scan(folder) if entry.name.endswith(".py")]


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _bound_names(body: Iterable[ast.stmt]) -> Iterable[str]:
    """Names that a module's top level binds, including its if, try and with blocks."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for block in ("body", "orelse", "finalbody"):
                yield from _bound_names(getattr(node, block, ()))
            for handler in getattr(node, "handlers", ()):
                yield from _bound_names(handler.body)
