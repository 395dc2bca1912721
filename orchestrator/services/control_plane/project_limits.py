"""Project limits that a control plane lost or changed because it was started with another configuration."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.config import files_read
from orchestrator.config.projects import DEFAULT, Project, Projects
from orchestrator.installation import Installation
from orchestrator.services.control_plane.presence import control_plane
from orchestrator.store import KeptLimits, Tx

_LIMITS = ("max_instances", "max_usd_per_hour", "budget")


@dataclass(frozen=True, slots=True)
class Differences:
    """Differences from the limits of the previous control plane: for each project that `lost` its limits a sentence and
    the remedy; for each change a sentence in `changed`."""

    lost: tuple[tuple[str, str], ...]
    changed: tuple[str, ...]


def keep(installation: Installation) -> Differences:
    """Store the limits of the configuration that a control plane starts with. If a project no longer has a table, its
    limits stay recorded as lost while it has jobs that have not ended. Raises StoreError."""
    config = installation.config
    tables, origin = config.projects.tables, config.origins.get("projects", "default")
    with installation.store.write() as tx:
        stored = tx.project_limits()
        before = {each.project: each for each in stored or ()}
        open_jobs = _open_jobs(tx)
        now = {
            name: before[name] if name in before and before[name].limits == limits and not before[name].lost else found
            for name, project in tables.items()
            if (limits := _limits(project))
            for found in [KeptLimits(name, limits, _absolute(origin))]
        }
        gone = [replace(each, lost=True, lost_to=_files()) for name, each in before.items() if name not in tables]
        kept = (*now.values(), *(each for each in gone if open_jobs[each.project]))
        if kept != stored:
            tx.set_project_limits(kept)
    changed = tuple(
        f"projects.{name} has {_words(_limits(tables[name]))}; it had {_words(each.limits)}"
        for name, each in before.items()
        if name in tables and not each.lost and _limits(tables[name]) != each.limits
    )
    return Differences(tuple((_lost(each, open_jobs[each.project]), remedy(each)) for each in gone), changed)


def lost(installation: Installation) -> list[tuple[str, str]]:
    """Projects that have lost their limits and have jobs that have not ended: for each a sentence and the remedy.
    Raises StoreError."""
    with installation.store.read() as tx:
        found = [each for each in tx.project_limits() or () if each.lost]
        open_jobs = _open_jobs(tx) if found else Counter[str]()
    return [(_lost(each, open_jobs[each.project]), remedy(each)) for each in found if open_jobs[each.project]]


def present(installation: Installation, tx: Tx) -> Projects:
    """The projects with the budgets that the control plane uses: if one runs, the budgets that it started with, even if
    the configuration has changed since. Raises StoreError."""
    projects = installation.config.projects
    if not control_plane(installation).running or (kept := tx.project_limits()) is None:
        return projects
    budgets = {each.project: each.value("budget") for each in kept if not each.lost}
    names = {*projects.tables, *budgets}
    return Projects({name: replace(projects.of(name), budget=budgets.get(name)) for name in names})


def remedy(kept: KeptLimits) -> str:
    """How to restore the limits, or to lift them permanently."""
    return (
        f"to restore them, run `tradewind down --keep-jobs`, then `tradewind up` with the settings of {kept.origin}; "
        f"to lift them, write an empty table [projects.{kept.project}]"
    )


def _lost(kept: KeptLimits, open_jobs: int) -> str:
    jobs = {0: "", 1: ", and 1 of its jobs has not ended"}.get(
        open_jobs, f", and {open_jobs} of its jobs have not ended"
    )
    had = f"{_words(kept.limits)}, from {kept.origin}"
    return (
        f"project {kept.project} has lost its limits ({had}){jobs}: "
        f"the control plane's settings are from {kept.lost_to}"
    )


def _open_jobs(tx: Tx) -> Counter[str]:
    return Counter(job.spec.project for job in tx.outlines(ended=False))


def _limits(project: Project) -> tuple[str, ...]:
    return tuple(f"{name} = {value}" for name in _LIMITS if (value := getattr(project, name)) != getattr(DEFAULT, name))


def _words(limits: tuple[str, ...]) -> str:
    return ", ".join(limits) or "no limits"


def _absolute(origin: str) -> str:
    """The origin with the full path of its file."""
    return origin if origin.startswith(("env ", "command line")) else str(Path(origin).absolute())


def _files() -> str:
    """The configuration files that this process reads."""
    found = [str(path) for path in files_read() if path.is_file()]
    return " and ".join(found) or f"no configuration file (there is no {' and no '.join(map(str, files_read()))})"
