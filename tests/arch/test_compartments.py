"""What a tick does for one job, run, migration, command or provider goes through a compartment (engine.compartment)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from orchestrator.engine.compartment import Compartment

ENGINE = Path(__file__).parents[2] / "orchestrator" / "engine"
MANY = ("ctx.work.", "providers.values()", "in live", "in asked", "in in_need", "_regions(ctx")
SHUT_OFF = ("contained(", "contained_writes(")
OF_ONE_JOB = {  # called for one job, inside its compartment
    "stopping._end_now",
    "quarantine._void",
}
TELLS_ONLY = {
    "observe._unavailable",  # one event, of the site: it is down for everybody
    "control._look",  # puts into quarantine
}
NO_TICK = {"shut_down.shut_down", "claims.check"}  # `up`, `down` and `doctor`, which a person watches


def functions() -> dict[str, ast.FunctionDef]:
    return {
        f"{path.stem}.{node.name}": node
        for path in sorted(ENGINE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }


def loops() -> Iterator[tuple[str, ast.For]]:
    """Each loop over what a tick has to look after, with the function that it is in."""
    for name, function in functions().items():
        for node in ast.walk(function):
            if isinstance(node, ast.For):
                over = ast.unparse(node.target) + " in " + ast.unparse(node.iter)
                if any(many in over for many in MANY):
                    yield name, node


def shuts_off(body: ast.AST, module: str, depth: int = 2) -> bool:
    """Whether it, or what it calls of its own module, goes through a compartment."""
    if any(shut in ast.unparse(body) for shut in SHUT_OFF):
        return True
    known = functions()
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in ast.walk(body)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    }
    ours = [known[f"{module}.{name}"] for name in called if f"{module}.{name}" in known]
    return depth > 0 and any(shuts_off(each, module, depth - 1) for each in ours)


def test_no_loop_over_jobs_runs_migrations_orders_or_providers_lets_one_harm_the_others() -> None:
    found = list(loops())
    assert len(found) >= 10
    exempt = OF_ONE_JOB | TELLS_ONLY | NO_TICK
    open_ones = [
        f"{name}:{loop.lineno}"
        for name, loop in found
        if name not in exempt and does_something(loop) and not shuts_off(loop, name.partition(".")[0])
    ]
    assert open_ones == []
    assert {name for name, _ in found} >= exempt, "an exemption that is not needed"


def does_something(loop: ast.For) -> bool:
    """Whether the loop calls anything but what puts facts together in memory."""
    harmless = ("append", "items", "setdefault", "get", "partition", "region_of", "add")
    calls = [node.func for node in ast.walk(loop) if isinstance(node, ast.Call) and node not in ast.walk(loop.iter)]
    return any(ast.unparse(call).rpartition(".")[2] not in harmless for call in calls)


def test_every_compartment_is_entered_somewhere() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in ENGINE.rglob("*.py") if path.stem != "compartment")
    assert [each.name for each in Compartment if f"Compartment.{each.name}" not in text] == []
