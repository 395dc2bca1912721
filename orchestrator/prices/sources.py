"""The price sources to collect and their options, from the configuration or on request."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.config import Config
from providers.collect.runner import SourceSpec

SOURCES = {
    "aws": ("aws-on-demand", "aws-spot", "aws-risk"),
    "gcp": ("gcp-prices", "gcp-list-history", "gcp-history"),
    "azure": ("azure-prices", "azure-history", "azure-risk"),
}
"""The sources of each cloud; on-demand comes before spot, which is checked against it."""
ONLY_WITH = {"azure-history": "AZURE_SUBSCRIPTION_ID", "azure-risk": "AZURE_SUBSCRIPTION_ID"}
"""Sources that need an account: they are used only if this environment variable is set."""


def collecting(clouds: Sequence[str] = ()) -> str:
    """The command that collects the prices of these clouds now."""
    return " ".join(("tradewind prices collect --once", *(f"--cloud {cloud}" for cloud in clouds)))


def configured_sources(config: Config) -> list[SourceSpec]:
    """The sources from the settings `prices.clouds` and `prices.sources`."""
    options = config.prices.sources.options
    of_clouds = [name for cloud in config.prices.clouds for name in _of(cloud)]
    return [_spec(name, options.get(name, {})) for name in dict.fromkeys([*of_clouds, *options])]


def asked_sources(config: Config, clouds: Sequence[str], feeds: Sequence[tuple[str, str]]) -> list[SourceSpec]:
    """The sources of these clouds, with their configured options, and of these feeds (name, file or URL)."""
    options = config.prices.sources.options
    specs = [_spec(name, options.get(name, {})) for cloud in dict.fromkeys(clouds) for name in _of(cloud)]
    return [*specs, *(SourceSpec(f"feed:{name}", {"at": at}) for name, at in feeds)]


def _of(cloud: str) -> list[str]:
    return [name for name in SOURCES[cloud] if name not in ONLY_WITH or os.environ.get(ONLY_WITH[name])]


def _spec(name: str, options: Mapping[str, Any]) -> SourceSpec:
    every_s = options.get("every_s")
    return SourceSpec(name, {key: value for key, value in options.items() if key != "every_s"}, every_s)
