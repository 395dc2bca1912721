"""A deterministic cloud in memory with injectable faults: the reference implementation of the Provider contract."""

from providers.fake.cloud import Behaviour, Bill, FakeCloud, default_catalog
from providers.fake.faults import Fault, Faults
from providers.fake.provider import FakeProvider

__all__ = ["Behaviour", "Bill", "FakeCloud", "FakeProvider", "Fault", "Faults", "default_catalog"]
