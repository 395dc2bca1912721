"""Load: settings from all sources: flag > environment > ./tradewind.toml > the user's own file > default.

It creates no folder or file.
"""

from __future__ import annotations

import dataclasses
import os
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from orchestrator.config.owned_hosts import OwnedHosts
from orchestrator.config.settings import (
    CLOCK_FACTOR,
    MAX_TEMP_DIR_BYTES,
    SETTINGS,
    Config,
    PriceSources,
    section_of,
)
from orchestrator.config.store_url import STORE_FILE, url_of_file
from orchestrator.config.toml import TomlFile, read_toml
from orchestrator.config.values import BadSetting, FieldErrors, Setting, typed
from orchestrator.errors import Problem, SpecError, did_you_mean, one_edit_apart
from providers.traits import traits_of

FILE_NAME = "tradewind.toml"
DEFAULT = "default"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Given:
    """A value given for the setting `name`, not yet parsed. `source`, `line` and `column` are for messages."""

    name: str
    value: object
    base_dir: Path
    origin: str
    source: str
    line: int = 0
    column: int = 0
    file: TomlFile | None = None

    def problem(self, message: str, hint: str = "") -> Problem:
        return Problem(self.source, self.line, self.column, self.name, message, hint)

    def problems(self, error: ValueError) -> Iterator[Problem]:
        """The problems of the value, or of fields below it, each with its position."""
        if not isinstance(error, FieldErrors):
            yield self.problem(str(error), error.hint if isinstance(error, BadSetting) else self._example())
            return
        for below, message, hint in error.problems:
            name = f"{self.name}.{below}" if below else self.name
            line, column = (0, 0) if self.file is None else self.file.position(name)
            yield Problem(self.source, line, column, name, message, hint)

    def _example(self) -> str:
        """An example of the setting, as it is written in this source."""
        setting = SETTINGS[self.name]
        if self.file is None:
            return f"such as {setting.example_text}"
        written = f"{self.name.rpartition('.')[2]} = {setting.example}"
        return f"write it like {written}" if '"' in written else f'write it like "{written}"'


def load_config(
    cli_overrides: Mapping[str, object] | None = None,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """The settings in force. `cli_overrides` are by dotted name, as text or as values.

    Relative paths are relative to the file that names them, or to `cwd` (default: the working folder). Raises SpecError
    with the problems of all sources, including values that another source overrides.
    """
    cwd = Path.cwd() if cwd is None else cwd.absolute()
    environ = os.environ if environ is None else environ
    problems: list[Problem] = []
    values: dict[str, object] = {}
    used: dict[str, _Given] = {}
    for given in _all_given(cli_overrides or {}, environ, cwd, problems):
        try:
            value = _read(SETTINGS[given.name], given)
        except ValueError as error:
            problems += given.problems(error)
            continue
        if given.name not in used:
            values[given.name], used[given.name] = value, given
    problems += list(_conflicts(values, used, {problem.field for problem in problems}))
    if problems:
        raise SpecError(problems)
    _derive(values, environ)
    origins = {name: used[name].origin if name in used else DEFAULT for name in SETTINGS}
    return dataclasses.replace(_build(Config, values), origins=MappingProxyType(origins))


def _all_given(
    overrides: Mapping[str, object], environ: Mapping[str, str], cwd: Path, problems: list[Problem]
) -> Iterator[_Given]:
    """Every given value, the source with the highest priority first."""
    for name, value in overrides.items():
        given = _Given(name, value, cwd, "command line", "command line")
        if name in SETTINGS:
            yield given
        else:
            problems.append(given.problem("unknown setting", _near(name)))
    for setting in SETTINGS.values():
        if text := environ.get(setting.variable):
            origin = f"env {setting.variable}"
            yield _Given(setting.name, text, cwd, origin, origin)
    problems += _unknown_variables(environ)
    for path, shown in ((cwd / FILE_NAME, FILE_NAME), _user_file()):
        try:
            file = read_toml(path, shown)
        except SpecError as error:
            problems += error.problems
            continue
        if file is not None:
            yield from _in_tables(file.tables, "", file, path.parent, problems)


def _unknown_variables(environ: Mapping[str, str]) -> Iterator[Problem]:
    """Variables that look like misspelt settings: named like the settings of a section, or one letter off a setting.
    Other variables with our prefix may belong to other software: below `providers`, to other providers."""
    known = [setting.variable for setting in SETTINGS.values()]
    sections = {name.rpartition(".")[0] for name in SETTINGS if "." in name} - {"providers"}
    prefixes = tuple(f"TRADEWIND_{section.upper().replace('.', '_')}_" for section in sections)
    for variable in sorted(environ.keys() - known):
        if not (variable.startswith("TRADEWIND_") and environ[variable]):
            continue
        if variable.startswith(prefixes) or any(one_edit_apart(variable, each) for each in known):
            hint = did_you_mean(variable, known) or "see docs/configuration.md"
            yield Problem(f"env {variable}", 0, 0, "", "no such setting", hint)


def files_read(cwd: Path | None = None) -> tuple[Path, Path]:
    """The files that `load_config` reads if they exist."""
    return (cwd or Path.cwd()) / FILE_NAME, _user_file()[0]


def _user_file() -> tuple[Path, str]:
    from platformdirs import user_config_path

    path = user_config_path("tradewind") / FILE_NAME
    return path, str(path)


def _in_tables(
    tables: Mapping[str, Any], prefix: str, file: TomlFile, base_dir: Path, problems: list[Problem]
) -> Iterator[_Given]:
    for key, value in tables.items():
        name = prefix + key
        line, column = file.position(name)
        given = _Given(name, value, base_dir, f"{file.path}:{line}", file.path, line, column, file)
        is_section = any(setting.startswith(f"{name}.") for setting in SETTINGS)
        if name in SETTINGS:
            yield given
        elif is_section and isinstance(value, dict):
            yield from _in_tables(value, f"{name}.", file, base_dir, problems)
        elif is_section:
            problems.append(given.problem(f"must be a table: write [{name}]"))
        else:
            problems.append(given.problem("unknown setting", _near(name)))


def _near(name: str) -> str:
    same_key = [known for known in SETTINGS if known.rpartition(".")[2] == name.rpartition(".")[2]]
    sections = {known.rpartition(".")[0] for known in SETTINGS if "." in known}
    return did_you_mean(name, [*SETTINGS, *sorted(sections)]) or (
        f'did you mean "{same_key[0]}"?' if same_key else "see docs/configuration.md"
    )


def _read(setting: Setting, given: _Given) -> object:
    value = setting.read(given.value) if given.file is None else typed(setting.read, given.value)
    if isinstance(value, Path):
        return Path(os.path.abspath(given.base_dir / os.path.expanduser(value)))
    return value.below(given.base_dir) if isinstance(value, PriceSources | OwnedHosts) else value


def _derive(values: dict[str, object], environ: Mapping[str, str]) -> None:
    """Set the defaults that depend on other settings."""
    if "state_dir" not in values:
        from platformdirs import user_state_path

        values["state_dir"] = user_state_path("tradewind").absolute()
    state_dir = values["state_dir"]
    values.setdefault("store_root", state_dir)
    values.setdefault("store_url", url_of_file(Path(str(state_dir), STORE_FILE)))
    values.setdefault("providers.local.clock_factor", 1.0 if _real_clouds(values) else CLOCK_FACTOR)
    name = f"tw-{zlib.crc32(os.fsencode(str(state_dir))):08x}"
    temp_dir = Path(environ.get("TMPDIR") or "/tmp", name)
    if not temp_dir.is_absolute() or len(os.fsencode(temp_dir)) > MAX_TEMP_DIR_BYTES:
        temp_dir = Path("/tmp", name)
    values.setdefault("site.temp_dir", temp_dir)


_REQUIRED = {
    "aws": ("regions", "instance_types", "image"),
    "gcp": ("regions", "machine_types", "image"),
    "azure": ("regions", "instance_types", "image"),
}
"""Settings that a provider needs before it can rent machines."""


def _conflicts(values: Mapping[str, object], used: Mapping[str, _Given], wrong: Collection[str]) -> Iterator[Problem]:
    real = _real_clouds(values)
    factor = used.get("providers.local.clock_factor")
    if factor is not None and real and values[factor.name] != 1:
        yield factor.problem(f"must be 1 if a real cloud is enabled ({', '.join(real)})", "remove this setting")
    enabled, owned = used.get("providers.enabled"), values.get("providers.static.hosts")
    has_hosts = isinstance(owned, OwnedHosts) and bool(owned.hosts)
    if enabled is not None and "static" in _enabled(values) and not has_hosts:
        where = "[providers.static.hosts.NAME] (docs/owned-machines.md)"
        yield enabled.problem("static has no hosts", f"declare one in {where}")
    for cloud in _enabled(values) if enabled is not None else ():
        for name in (f"providers.{cloud}.{setting}" for setting in _REQUIRED.get(cloud, ())):
            if enabled is not None and name not in values and name not in wrong:
                remedy = f"set it, such as {SETTINGS[name].example} (docs/{cloud}.md)"
                yield enabled.problem(f"{cloud} needs {name}", remedy)
    temp_dir = used.get("site.temp_dir")
    if temp_dir is not None and len(os.fsencode(str(values[temp_dir.name]))) > MAX_TEMP_DIR_BYTES:
        yield temp_dir.problem(
            f"must be at most {MAX_TEMP_DIR_BYTES} bytes long",
            "it holds sockets, whose paths are limited: use a shorter path",
        )
    suspect_s, lease_s = (values.get(name, SETTINGS[name].default) for name in ("suspect_after_s", "lease_s"))
    if isinstance(suspect_s, float) and isinstance(lease_s, float) and suspect_s >= lease_s:
        if shorter := used.get("suspect_after_s"):
            yield shorter.problem(f"must be less than lease_s, which is {lease_s:g}")
        elif longer := used.get("lease_s"):
            yield longer.problem(f"must be more than suspect_after_s, which is {suspect_s:g}")


def _enabled(values: Mapping[str, object]) -> tuple[str, ...]:
    enabled = values.get("providers.enabled", SETTINGS["providers.enabled"].default)
    return enabled if isinstance(enabled, tuple) else ()


def _real_clouds(values: Mapping[str, object]) -> list[str]:
    return [name for name in _enabled(values) if not traits_of(name).simulated]


def _build(section: type[T], values: Mapping[str, object], prefix: str = "") -> T:
    fields: dict[str, Any] = {}
    for item in dataclasses.fields(section):  # type: ignore[arg-type]  # every section is a dataclass
        name = prefix + item.name
        inner = section_of(item)
        if inner is not None:
            fields[item.name] = _build(inner, values, f"{name}.")
        elif name in values:
            fields[item.name] = values[name]
    return section(**fields)
