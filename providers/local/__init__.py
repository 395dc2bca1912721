"""A cloud on this machine: real processes, a simulated market. It needs no account and no network.

Must not know: jobs, Ray, other providers.
"""

from providers.local.market import LocalMarket
from providers.local.provider import LocalProvider

__all__ = ["LocalMarket", "LocalProvider"]
