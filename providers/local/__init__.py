"""A cloud on this machine: real processes, a simulated market. It needs no account and no network."""

from providers.local.market import LocalMarket
from providers.local.provider import LocalProvider

__all__ = ["LocalMarket", "LocalProvider"]
