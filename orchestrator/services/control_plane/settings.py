"""The current settings."""

from __future__ import annotations

from orchestrator.config import Config, shown_settings
from orchestrator.services.views import SettingList


def settings(config: Config) -> SettingList:
    """All settings with their origins; passwords are hidden."""
    return SettingList(tuple(shown_settings(config)))
