"""Configuration: every setting with its value and origin. It depends on no other part of the product."""

from orchestrator.config.load import files_read, load_config
from orchestrator.config.projects import Project, Projects
from orchestrator.config.settings import (
    SETTINGS,
    Config,
    Limits,
    Policy,
    Prices,
    PriceSources,
    Providers,
    Secrets,
    Site,
)
from orchestrator.config.show import ShownSetting, shown_settings
from orchestrator.config.values import Setting

__all__ = [
    "SETTINGS",
    "Config",
    "Limits",
    "Policy",
    "PriceSources",
    "Prices",
    "Project",
    "Projects",
    "Providers",
    "Secrets",
    "Setting",
    "ShownSetting",
    "Site",
    "files_read",
    "load_config",
    "shown_settings",
]
