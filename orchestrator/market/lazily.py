"""Lazily: functools.cached_property without its lock, which Python has until 3.12 and which takes longer than many a
column of a small market."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from functools import cached_property as lazily
else:

    class lazily:
        """A method of no arguments that is called at most once per object, which keeps the result as an attribute."""

        def __init__(self, of):
            self.of, self.name, self.__doc__ = of, of.__name__, of.__doc__

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.of(instance)
            return value


__all__ = ["lazily"]
