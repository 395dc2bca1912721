"""Checks of this machine and this Python: versions, extras, import conflicts, folders, disk."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path

from orchestrator.config import SETTINGS, Config
from orchestrator.errors import did_you_mean
from orchestrator.services.control_plane.version import installed_version
from orchestrator.services.secrets.file import kept_secrets, require_place_of_key
from orchestrator.services.views import Check
from trainers.spec import CHECKPOINT_VARIABLE, CONTROL_VARIABLE, OUTPUT_VARIABLE, SPEC_VARIABLE

DISTRIBUTION = "tradewind"
TOP_LEVELS = ("orchestrator", "providers", "trainers")
GIB = 1 << 30
LITTLE_DISK_BYTES = 5 * GIB
NO_DISK_BYTES = 1 * GIB
_OTHER_VARIABLES = {
    *("TRADEWIND_DEBUG", CHECKPOINT_VARIABLE, CONTROL_VARIABLE, OUTPUT_VARIABLE, SPEC_VARIABLE),
    *("TRADEWIND_INSTANCE_DIR", "TRADEWIND_INSTANCE_ID", "TRADEWIND_INSTANCE_LIMIT", "TRADEWIND_METADATA"),
    *("TRADEWIND_BOOT", "TRADEWIND_BOOT_FD", "TRADEWIND_ADDRESS"),
    *("TRADEWIND_ACCESS_FD", "TRADEWIND_ACCESS_URI", "TRADEWIND_ACCESS_TOKEN"),
    "TRADEWIND_SHARED",  # the folder with the prices of the benchmarks
}
"""Environment variables other than settings that Tradewind reads or sets, in a shell, on a machine or for the program
of a job. (The test of this set searches the documents and all packages.)"""
EXTRA_MODULES = {
    "aws": ("boto3",),
    "gcp": ("google.cloud.compute", "requests"),
    "azure": ("azure.mgmt.compute", "azure.identity", "azure.storage.filedatalake"),
    "ray": ("ray", "nacl"),
    "storage": ("obstore",),
    "train": ("torch", "xxhash"),
    "streams": ("torchdata",),
    "lightning": ("lightning",),
    "huggingface": ("accelerate", "transformers"),
    "export": ("safetensors",),
    "postgres": ("psycopg",),
    "analysis": ("pyarrow",),
    "secrets": ("cryptography",),
    "web": ("fastapi", "uvicorn"),
}
"""The modules of each extra's packages."""


def python() -> Check:
    """The versions of Python, Tradewind and the platform."""
    found = f"{platform.python_version()}, tradewind {installed_version()}, {platform.system()} {platform.machine()}"
    return Check("python", "ok", found)


def package(name: str, extra: str) -> Check:
    """A package that is needed to run jobs on this machine, but not to plan."""
    try:
        return Check(name, "ok", version(name))
    except PackageNotFoundError:
        return Check(
            name, "warn", "not installed: jobs cannot run on this machine", f"pip install 'tradewind[{extra}]'"
        )


def extras(config: Config) -> Check:
    """The installed extras. The dashboard of the control plane needs one of them."""
    present = sorted(extra for extra, modules in EXTRA_MODULES.items() if all(map(_importable, modules)))
    found = ", ".join(present) if present else "none"
    if config.web.port is not None and "web" not in present:
        said = f"{found}; web.port is set, but the dashboard is not served without the extra web"
        return Check("extras", "warn", said, "pip install 'tradewind[web]'")
    return Check("extras", "ok", found)


def collisions() -> Check:
    """Tradewind's import names must not also belong to another distribution."""
    owners = packages_distributions()
    foreign = {name: sorted(set(owners.get(name, ())) - {DISTRIBUTION}) for name in TOP_LEVELS if name in owners}
    clashes = [f"{name} is also in {', '.join(others)}" for name, others in foreign.items() if others]
    if clashes:
        others = " ".join(sorted({other for found in foreign.values() for other in found}))
        fix = f"pip uninstall {others}; pip install --force-reinstall --no-deps tradewind"
        return Check("imports", "fail", "; ".join(clashes), fix)
    return Check("imports", "ok", f"no other package provides {', '.join(TOP_LEVELS)}")


def state_folder(config: Config) -> Check:
    """Whether the state folder is writable; it is not created."""
    folder = config.state_dir
    nearest = folder
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    origin = config.origins.get("state_dir", "default")
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        fix = "set state_dir in tradewind.toml, or TRADEWIND_STATE_DIR, to a writable folder"
        return Check("state folder", "fail", f"{folder} cannot be written ({origin})", fix)
    made = "" if folder.exists() else ", new"
    return Check("state folder", "ok", f"{folder} ({origin}{made})")


def variables(environ: Mapping[str, str] = os.environ) -> Check:
    """Environment variables that look like settings but are not. A name close to that of a setting stops every
    command."""
    known = [setting.variable for setting in SETTINGS.values()]
    others = [
        name
        for name in sorted(environ.keys() - known - _OTHER_VARIABLES)
        if name.startswith("TRADEWIND_") and not name.startswith("TRADEWIND_PROVIDERS_") and environ[name]
    ]
    if not others:
        return Check("variables", "ok", "all TRADEWIND_ variables that are set are known")
    no_settings = "is not a setting" if len(others) == 1 else "are not settings"
    near = did_you_mean(others[0].removeprefix("TRADEWIND_"), known, lambda each: each.removeprefix("TRADEWIND_"))
    listed = "list the settings: tradewind config show"
    return Check("variables", "warn", f"{', '.join(others)}: {no_settings}", f"{near} or {listed}" if near else listed)


def disk(config: Config) -> Check:
    """Free disk space for the state folder."""
    nearest = config.state_dir
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    free = shutil.disk_usage(nearest).free
    found = f"{free / GIB:.1f} GiB free at {nearest}"
    fix = f"free some space, or move state_dir; checkpoints are in {Path(config.state_dir, 'checkpoints')}"
    if free < NO_DISK_BYTES:
        return Check("disk", "fail", found, fix)
    return Check("disk", "warn", found, fix) if free < LITTLE_DISK_BYTES else Check("disk", "ok", found)


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def secrets(config: Config) -> Check:
    """Whether the control plane can read its stored secrets. Raises the same errors as `up`."""
    key_file = config.secrets.key_file
    if key_file is None:
        return Check("secrets", "ok", "kept only in the control plane's memory; give them again after a restart")
    require_place_of_key(config, key_file)
    if not key_file.exists():
        return Check("secrets", "ok", f"will be kept in a file; its key {key_file} will be created with it")
    kept_secrets(config)
    return Check("secrets", "ok", f"in a file, encrypted with the key {key_file}")
