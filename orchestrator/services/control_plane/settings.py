"""Settings as they are in force."""

from __future__ import annotations

from orchestrator.config import Config, shown_settings
from orchestrator.services.views import SettingList


def settings(config: Config) -> SettingList:
    """Every setting with its origin, passwords hidden."""
    return SettingList(tuple(shown_settings(config)))
