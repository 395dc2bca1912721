"""The outcome of `init`: what `doctor` finds with the new settings, and the cost of a first job."""

from __future__ import annotations

from pathlib import Path

from orchestrator.config import Config
from orchestrator.errors import TradewindError, UsageError
from orchestrator.installation import open_installation
from orchestrator.services.doctor import examine
from orchestrator.services.setup.answers import Answers, read_budget, read_clouds, read_store
from orchestrator.services.setup.file import FILE_NAME, write_settings
from orchestrator.services.setup.first_job import first_job
from orchestrator.services.setup.views import FirstJob, SetUp


def set_up(folder: Path, clouds: str, store: str, max_usd_per_hour: str, *, replace: bool) -> SetUp:
    """Everything that `init` does, with its answers as text. Raises UsageError, SpecError, StoreError."""
    if (folder / FILE_NAME).exists() and not replace:
        raise UsageError(f"{folder / FILE_NAME} already exists", hint="edit it, or replace it")
    names = read_clouds(clouds)
    answers = Answers(names, read_store(store, names), read_budget(max_usd_per_hour))
    return checked(*write_settings(answers, folder))


def checked(path: Path, config: Config) -> SetUp:
    """Check the settings in `path`, which `config` was read from. Calls the clouds; rents nothing."""
    job = _first_job(config)  # first, because it polls prices, which `doctor` then finds
    return SetUp(
        path=str(path),
        clouds=config.providers.enabled,
        store_root=str(config.store_root),
        max_usd_per_hour=config.limits.max_usd_per_hour,
        checks=examine(config).checks,
        first_job=job,
    )


def _first_job(config: Config) -> FirstJob:
    try:
        installation = open_installation(config)
    except TradewindError as error:
        return FirstJob(why_not=str(error))
    try:
        return first_job(installation)
    finally:
        installation.close()
