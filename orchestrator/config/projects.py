"""Projects: the value of `projects`, with the limits, weight and priority of each project."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from orchestrator.config.values import BadSetting, FieldErrors, Read, number, typed, whole
from orchestrator.errors import did_you_mean
from providers.money import usd

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # as in a job file
_PRIORITIES = 1000


def _dollars(value: object) -> float:
    amount = number(above=0)(value)
    assert isinstance(amount, float)
    if not 1 <= usd(amount) < 2**63:
        raise ValueError("must be an amount of US dollars, at least $0.000000001 and less than $9 billion")
    return amount


_READERS: Mapping[str, Read] = {
    "weight": number(above=0),
    "max_instances": whole(0),
    "max_usd_per_hour": _dollars,
    "budget": _dollars,
    "priority": whole(-_PRIORITIES, _PRIORITIES),
}


_EXAMPLES = {"weight": "2", "max_instances": "8", "max_usd_per_hour": "12", "budget": "400", "priority": "1"}


@dataclass(frozen=True, slots=True)
class Project:
    """The limits of all jobs of one project together, in US dollars; None: no limit. `weight` is the project's share of
    the time of shared machines, relative to other projects. Jobs with a higher `priority` are placed first."""

    weight: float = 1.0
    max_instances: int | None = None
    max_usd_per_hour: float | None = None
    budget: float | None = None
    priority: int = 0


DEFAULT = Project()


@dataclass(frozen=True, slots=True)
class Projects:
    """Projects by name. JSON when shown and in the environment; in a file, a table of tables."""

    tables: Mapping[str, Project] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, name: str) -> Project:
        """The project of this name. A project without a table has no limits, weight 1 and priority 0."""
        return self.tables.get(name, DEFAULT)

    @property
    def highest_priority(self) -> int:
        """The highest priority that a job may have."""
        return max((each.priority for each in self.tables.values()), default=0)

    def __str__(self) -> str:
        return json.dumps(
            {
                name: {key: value for key, value in dataclasses.asdict(each).items() if value is not None}
                for name, each in self.tables.items()
            }
        )


def read_projects(value: object) -> Projects:
    """Parse the value of the setting. Raises ValueError, FieldErrors."""
    if isinstance(value, Projects):
        return value
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise BadSetting('must be JSON such as {"vision": {"weight": 2}}') from None
    if not isinstance(value, Mapping):
        raise BadSetting("must be a table for each project, such as [projects.vision]")
    problems: list[tuple[str, str, str]] = []
    tables = {str(name): _project(str(name), table, problems) for name, table in value.items()}
    if problems:
        raise FieldErrors(problems)
    return Projects(MappingProxyType(tables))


def _project(name: str, table: object, problems: list[tuple[str, str, str]]) -> Project:
    if not _NAME.fullmatch(name):
        problems.append((name, "is not a valid project name", "use the name that job files give as `project`"))
    if not isinstance(table, Mapping):
        place = "NAME" if name in _READERS else name
        problems.append((name, "must be a table of settings", f"write them below [projects.{place}]"))
        return DEFAULT
    values = {}
    for key, given in table.items():
        if key not in _READERS:
            known = did_you_mean(key, _READERS) or f"the settings are {', '.join(_READERS)}"
            problems.append((f"{name}.{key}", "unknown setting", known))
            continue
        try:
            values[key] = typed(_READERS[key], given)
        except ValueError as error:
            remedy = "" if isinstance(error, BadSetting) else f'write it like "{key} = {_EXAMPLES[key]}"'
            problems.append((f"{name}.{key}", str(error), remedy))
    return Project(**values)  # type: ignore[arg-type]  # as its readers return them
