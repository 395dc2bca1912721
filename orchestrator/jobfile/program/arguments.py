"""Checks whether `train.args` fit the job's function, as far as its source shows it. Nothing is imported or run.

If the source does not show it (a decorator, a class without its own `__init__`, a name that is imported or bound twice,
an annotation that is not a plain Python type), there is no error here: the function itself will raise one.
"""

from __future__ import annotations

import ast
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from orchestrator.errors import did_you_mean

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_LENGTHS = ("steps", "epochs")  # the job passes them if the function takes them (trainers.runner)
_PLAIN: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
    "list": (list,),
    "List": (list,),
    "Sequence": (list,),
    "tuple": (list,),
    "Tuple": (list,),
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
    """A mistake in the argument `name` (None: in all of them), and the remedy."""

    name: str | None
    message: str
    hint: str


def misfits(tree: ast.Module, entry: str, train: Mapping[str, object]) -> Iterator[Misfit]:
    """Arguments in `train` (the job file's section, plain values) that the function of `entry` in `tree` cannot
    take."""
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
            remedy = (
                f"add {name} to train.args"
                if name in by_name
                else "arguments are passed by name: make it a keyword parameter"
            )
            yield Misfit(None, f'{entry} needs "{name}"', remedy)
    shadowed = set(_bound(tree.body))
    for name, parameter in by_name.items():
        if name not in args or (args[name] is None and name in may_be_null):
            continue
        if wanted := _refused(parameter.annotation, args[name], shadowed):
            yield Misfit(name, f"is {reprlib.repr(args[name])}, but {entry} takes {wanted}", "correct the value")


def settled(tree: ast.Module, entry: str) -> bool:
    """Whether the source shows what the function of `entry` takes; if not, only importing it does."""
    return _function(tree, entry.partition(":")[2]) is not None


def _function(tree: ast.Module, name: str) -> _Function | None:
    """The only definition of that name; for a class, its `__init__`. None if the source does not show it."""
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
    """(parameters that can be passed by name; names of required parameters, perhaps not by name; names of parameters
    with the default None)."""
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
    """The names that the top level binds, once for each binding."""
    for statement in body:
        for node in ast.walk(statement) if not isinstance(statement, _Function | ast.ClassDef) else [statement]:
            if isinstance(node, _Function | ast.ClassDef):
                yield node.name
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                yield node.id
            elif isinstance(node, ast.alias):
                yield (node.asname or node.name).split(".")[0]


def misfit(annotation: str, value: object) -> str:
    """The type that an annotation (Python source) asks for instead of `value`; empty if it allows it or is unclear."""
    return _refused(ast.Constant(annotation), value, set())


def _refused(annotation: ast.expr | None, value: object, shadowed: set[str]) -> str:
    try:
        return "" if _takes(annotation, value, shadowed) else _spoken(annotation, shadowed)
    except RecursionError:  # a union of a thousand types
        return ""


def _takes(annotation: ast.expr | None, value: object, shadowed: set[str]) -> bool:
    """Whether an annotation allows a value. An annotation that is not a plain type may allow any value."""
    match annotation:
        case ast.Constant(value=None):
            return value is None
        case ast.Constant(value=str(text)):
            return _takes(_parsed(text), value, shadowed)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _takes(left, value, shadowed) or _takes(right, value, shadowed)
        case ast.Subscript(slice=inner):
            elements = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return _takes_subscripted(_outer(annotation, shadowed), elements, value, shadowed)
        case ast.Name() | ast.Attribute():
            kinds = _PLAIN.get(_outer(annotation, shadowed))
            return kinds is None or isinstance(value, kinds)
        case _:
            return True


def _takes_subscripted(name: str, inner: Sequence[ast.expr], value: object, shadowed: set[str]) -> bool:
    if not inner:  # tuple[()]
        return True
    if name == "Optional":
        return value is None or _takes(inner[0], value, shadowed)
    if name == "Union":
        return any(_takes(each, value, shadowed) for each in inner)
    if name == "Annotated":
        return _takes(inner[0], value, shadowed)
    if name == "Literal":
        said = [each.value for each in inner if isinstance(each, ast.Constant)]
        return len(said) < len(inner) or any(type(each) is type(value) and each == value for each in said)
    kinds = _PLAIN.get(name) if name not in _SCALARS else None
    if kinds is None:
        return True
    if kinds == (dict,):
        return isinstance(value, dict) and all(_takes(inner[-1], each, shadowed) for each in value.values())
    if not isinstance(value, list):
        return False
    if name in ("tuple", "Tuple") and not (isinstance(inner[-1], ast.Constant) and inner[-1].value is ...):
        return len(inner) == len(value) and all(map(partial(_takes, shadowed=shadowed), inner, value))
    return all(_takes(inner[0], each, shadowed) for each in value)


def _outer(annotation: ast.expr, shadowed: set[str]) -> str:
    """The name of a type without its subscript; empty if the name is bound to something else."""
    match annotation:
        case ast.Subscript(value=value):
            return _outer(value, shadowed)
        case ast.Name(id=name):
            return "" if name in shadowed and name in _BUILTIN else name
        case ast.Attribute(attr=name):  # typing.List, collections.abc.Sequence
            return "" if name in _BUILTIN else name
        case _:
            return ""


def _spoken(annotation: ast.expr | None, shadowed: set[str]) -> str:
    """The type that an annotation asks for, in words."""
    match annotation:
        case ast.Constant(value=str(text)):
            return _spoken(_parsed(text), shadowed)
        case ast.BinOp(left=left, right=right):
            return _either([left, right], shadowed)
        case ast.Subscript(slice=inner):
            elements, name = inner.elts if isinstance(inner, ast.Tuple) else [inner], _outer(annotation, shadowed)
            if name == "Optional":
                return _either([elements[0], ast.Constant(None)], shadowed)
            if name == "Union":
                return _either(elements, shadowed)
            if name == "Annotated":
                return _spoken(elements[0], shadowed)
            if name == "Literal":
                return " or ".join(map(ast.unparse, elements))
            return f"{_SPOKEN[_PLAIN[name][0]]} ({ast.unparse(annotation)})"
        case ast.Name() | ast.Attribute():
            return _SPOKEN[_PLAIN[_outer(annotation, shadowed)][-1]]  # for a float, which also allows an int: the last
        case _:
            return _SPOKEN[type(None)]


def _either(annotations: Iterable[ast.expr], shadowed: set[str]) -> str:
    return " or ".join(dict.fromkeys(_spoken(each, shadowed) for each in annotations))


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


_SCALARS = ("int", "float", "str", "bool", "None")
_BUILTIN = (*_SCALARS, "list", "tuple", "dict")
