"""Machines that the user owns, reached through SSH: nothing is installed on them, and no account is needed."""

from providers.static.hosts import Host
from providers.static.provider import StaticProvider

__all__ = ["Host", "StaticProvider"]
