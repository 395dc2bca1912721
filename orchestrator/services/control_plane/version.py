"""The installed version."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version of the distribution `tradewind`; `unknown` if it is not installed."""
    try:
        return version("tradewind")
    except PackageNotFoundError:
        return "unknown"
