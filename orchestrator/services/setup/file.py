"""The settings file that `tradewind init` writes: the answers, and the other settings that each cloud needs."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from orchestrator.config import SETTINGS, Config, Setting, load_config
from orchestrator.errors import StoreError
from orchestrator.formats.whole_file import write_whole
from orchestrator.services.setup.answers import LOCAL, Answers

FILE_NAME = "tradewind.toml"
_ENVIRONMENT: Mapping[str, tuple[str, bool]] = {
    "providers.aws.regions": ("AWS_REGION", True),
    "providers.gcp.project": ("GOOGLE_CLOUD_PROJECT", False),
    "providers.azure.subscription": ("AZURE_SUBSCRIPTION_ID", False),
}
"""Settings whose values the clouds' tools take from environment variables; True: as a list with one value."""


def write_settings(answers: Answers, folder: Path, environ: Mapping[str, str] = os.environ) -> tuple[Path, Config]:
    """Write the file, replacing an existing one, and read it back together with all other sources of settings.

    Nothing is written unless the result is valid. Raises SpecError, StoreError.
    """
    path, text = folder / FILE_NAME, settings_text(answers, environ)
    try:
        with tempfile.TemporaryDirectory() as trial:
            Path(trial, FILE_NAME).write_text(text)
            load_config(cwd=Path(trial))
        write_whole(path, text)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "free some space" if full else "run tradewind init in a folder of your own"
        raise StoreError(f"{path} cannot be written: {error.strerror}", hint=hint) from error
    return path, load_config(cwd=folder)


def overridden(config: Config) -> list[str]:
    """The answered settings that an environment variable overrides."""
    names = ("providers.enabled", "store_root", "limits.max_usd_per_hour")
    return [name for name in names if config.origins[name].startswith("env ")]


def settings_text(answers: Answers, environ: Mapping[str, str] = os.environ) -> str:
    """The text of the file."""
    lines = ["# Written by `tradewind init`. Every setting: docs/configuration.md."]
    if answers.state_dir is not None:
        lines.append(f"state_dir = {json.dumps(str(answers.state_dir.absolute()))}")
    if answers.store is not None:
        lines.append(f"store_root = {json.dumps(answers.store)}")
    lines += ["", "[providers]", f"enabled = {json.dumps(list(answers.clouds))}"]
    for cloud in answers.clouds:
        lines += _cloud(cloud, environ)
    lines += ["", "[limits]", f"max_usd_per_hour = {answers.max_usd_per_hour:g}   # of all machines together"]
    return "\n".join(lines) + "\n"


def _cloud(cloud: str, environ: Mapping[str, str]) -> Iterator[str]:
    """The required settings of a cloud: values from the environment, or examples to start from."""
    if cloud == LOCAL:
        return
    yield from ("", f"[providers.{cloud}]   # docs/{cloud}.md; only what is listed here is rented")
    for setting in SETTINGS.values():
        section, _, key = setting.name.rpartition(".")
        if section == f"providers.{cloud}" and (value := _value(setting, environ)):
            yield f"{key} = {value}"


def _value(setting: Setting, environ: Mapping[str, str]) -> str:
    variable, several = _ENVIRONMENT.get(setting.name, ("", False))
    if given := environ.get(variable):
        return json.dumps([given] if several else given)
    return setting.example if is_required(setting) else ""


def is_required(setting: Setting) -> bool:
    """Whether an enabled cloud requires the setting."""
    return setting.default_text.startswith("none: required")
