"""OwnedHosts: the value of `providers.static.hosts`; providers.static checks its content."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.config.values import BadSetting, FieldErrors

if TYPE_CHECKING:
    from providers.static.hosts import Host


@dataclass(frozen=True, slots=True)
class OwnedHosts:
    """Machines that the user owns. JSON when shown and in the environment; in a file, a table of tables."""

    hosts: tuple[Host, ...] = ()

    def below(self, base_dir: Path) -> OwnedHosts:
        """A copy in which relative paths of keys are absolute, resolved from `base_dir`."""
        from providers.static.hosts import below

        return OwnedHosts(below(self.hosts, base_dir))

    def __str__(self) -> str:
        if not self.hosts:
            return "{}"
        from providers.static.hosts import as_tables

        return json.dumps(as_tables(self.hosts))


def read_owned_hosts(value: object) -> OwnedHosts:
    """Parse the value of the setting. Raises ValueError, FieldErrors."""
    if isinstance(value, OwnedHosts):
        return value
    from providers.static.hosts import HostsError, read_hosts

    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise BadSetting('must be JSON such as {"desk1": {"address": "desk1.lan", "vcpus": 16, ...}}') from None
    try:
        return OwnedHosts(read_hosts(value))
    except HostsError as error:
        raise FieldErrors(error.problems) from None
