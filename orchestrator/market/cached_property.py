"""functools.cached_property without its lock.

Python before 3.12 takes that lock on first access, which takes longer than computing many columns of a small market.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:
        """Makes a method without arguments an attribute: it is called on first access, and the object keeps the
        result."""

        def __init__(self, of):
            self.of, self.name, self.__doc__ = of, of.__name__, of.__doc__

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.of(instance)
            return value


__all__ = ["cached_property"]
