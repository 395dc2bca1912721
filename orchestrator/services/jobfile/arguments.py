"""Whether `train.args` fit the function that the job names, as far as its source says so. Nothing is imported or run.

What the source does not settle (a decorator, a class without an `__init__` of its own, a name that is imported or bound
twice, an annotation that is none of Python's plain types) is let pass: the function itself tells. Must not know: YAML,
other fields of the job.
"""

from __future__ import annotations

import ast
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from orchestrator.errors import did_you_mean

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_LENGTHS = ("steps", "epochs")  # given by the job itself where the function takes them (trainers.runner)
_PLAIN: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
    "list": (list,),
    "List": (list,),
    "Sequence": (list,),
    "tuple": (list,),
    "dict": (dict,),
    "Dict": (dict,),
    "Mapping": (dict,),
    "None": (type(None),),
}
_SPOKEN: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a mapping",
    type(None): "null",
}


@dataclass(frozen=True, slots=True)
class Misfit:
    """What is wrong with the argument `name` (None: with all of them), and the remedy."""

    name: str | None
    message: str
    hint: str


def misfits(tree: ast.Module, entry: str, train: Mapping[str, object]) -> Iterator[Misfit]:
    """What in `train` (the section of the job file, as plain values) the function of `entry` in `tree` cannot take."""
    function = _function(tree, entry.partition(":")[2])
    args = train.get("args", {})
    if function is None or not isinstance(args, dict):
        return
    by_name, needed, may_be_null = _parameters(function)
    given = {*args, *(name for name in _LENGTHS if train.get(name) is not None)}
    takes = f"it takes {', '.join(by_name)}" if by_name else "it takes no arguments"
    for name in args if function.args.kwarg is None else ():
        if name not in by_name:
            yield Misfit(str(name), f"{entry} has no such argument", did_you_mean(str(name), by_name) or takes)
    for name in needed:
        if name not in given:
            remedy = f"add {name} to train.args" if name in by_name else "arguments are given by name: take it by name"
            yield Misfit(None, f'{entry} needs "{name}"', remedy)
    shadowed = set(_bound(tree.body))
    for name, parameter in by_name.items():
        if name not in args or (args[name] is None and name in may_be_null):
            continue
        if wanted := _refused(parameter.annotation, args[name], shadowed):
            yield Misfit(name, f"is {reprlib.repr(args[name])}, but {entry} takes {wanted}", "correct the value")


def settled(tree: ast.Module, entry: str) -> bool:
    """Whether the source says what the function of `entry` takes; if not, only to import it tells."""
    return _function(tree, entry.partition(":")[2]) is not None


def _function(tree: ast.Module, name: str) -> _Function | None:
    """The one definition of that name; of a class its `__init__`. None where the source does not settle it."""
    if list(_bound(tree.body)).count(name) != 1:
        return None
    found = next((node for node in tree.body if getattr(node, "name", None) == name), None)
    if isinstance(found, ast.ClassDef) and not (found.decorator_list or found.keywords):
        inner = [node for node in found.body if isinstance(node, _Function)]
        found = next((node for node in inner if node.name == "__init__"), None)
        if any(node.name == "__new__" for node in inner):
            return None
    return found if isinstance(found, _Function) and not found.decorator_list else None


def _parameters(function: _Function) -> tuple[dict[str, ast.arg], list[str], set[str]]:
    """(what can be given by name, the names of what must be given, perhaps not by name, and of what is null unless it
    is given)."""
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    own = 1 if function.name == "__init__" else 0  # self
    by_name = {each.arg: each for each in [*positional[max(own, len(spec.posonlyargs)) :], *spec.kwonlyargs]}
    needed = [each.arg for each in positional[own : len(positional) - len(spec.defaults)]]
    needed += [each.arg for each, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if default is None]
    last = positional[len(positional) - len(spec.defaults) :]
    defaults = [*zip(last, spec.defaults, strict=True), *zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    nulls = {each.arg for each, default in defaults if isinstance(default, ast.Constant) and default.value is None}
    return by_name, needed, nulls


def _bound(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Every name that the top level binds, as often as it does."""
    for statement in body:
        for node in ast.walk(statement) if not isinstance(statement, _Function | ast.ClassDef) else [statement]:
            if isinstance(node, _Function | ast.ClassDef):
                yield node.name
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                yield node.id
            elif isinstance(node, ast.alias):
                yield (node.asname or node.name).split(".")[0]


def _refused(annotation: ast.expr | None, value: object, shadowed: set[str]) -> str:
    """What the annotation asks for instead of `value`; empty if it takes that, or does not say."""
    try:
        kinds = _kinds(annotation, shadowed)
    except RecursionError:  # a union of a thousand types
        return ""
    if kinds is None or isinstance(value, kinds):
        return ""
    return " or ".join(dict.fromkeys(_SPOKEN[kind] for kind in kinds if not (kind is int and float in kinds)))


def _kinds(annotation: ast.expr | None, shadowed: set[str]) -> tuple[type, ...] | None:
    """The plain types that an annotation allows; None when it may allow others."""
    match annotation:
        case ast.Constant(value=None):
            return (type(None),)
        case ast.Constant(value=str(text)):
            try:
                return _kinds(ast.parse(text, mode="eval").body, shadowed)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
        case ast.Name(id=name):
            return None if name in shadowed and name in _BUILTIN else _PLAIN.get(name)
        case ast.Attribute(attr=name):  # typing.List, collections.abc.Sequence
            return _PLAIN.get(name) if name not in _BUILTIN else None
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _either([left, right], shadowed)
        case ast.Subscript(value=outer, slice=inner):
            name = outer.id if isinstance(outer, ast.Name) else outer.attr if isinstance(outer, ast.Attribute) else ""
            if name == "Optional":
                return _either([inner, ast.Constant(None)], shadowed)
            if name == "Union":
                return _either(inner.elts if isinstance(inner, ast.Tuple) else [inner], shadowed)
            return _kinds(outer, shadowed) if name in _PLAIN and name not in _SCALARS else None
        case _:
            return None


def _either(annotations: Iterable[ast.expr], shadowed: set[str]) -> tuple[type, ...] | None:
    found = [_kinds(each, shadowed) for each in annotations]
    return None if None in found else tuple(kind for kinds in found if kinds is not None for kind in kinds)


_SCALARS = ("int", "float", "str", "bool", "None")
_BUILTIN = (*_SCALARS, "list", "tuple", "dict")
