"""Configuration: every setting with its value and origin. A leaf: it knows nothing of jobs, markets or stores."""

from orchestrator.config.load import load_config
from orchestrator.config.settings import (
    SETTINGS,
    Config,
    Policy,
    Prices,
    PriceSources,
    Providers,
    Rails,
    Secrets,
    Setting,
    Site,
)
from orchestrator.config.show import ShownSetting, shown_settings

__all__ = [
    "SETTINGS",
    "Config",
    "Policy",
    "PriceSources",
    "Prices",
    "Providers",
    "Rails",
    "Secrets",
    "Setting",
    "ShownSetting",
    "Site",
    "load_config",
    "shown_settings",
]
