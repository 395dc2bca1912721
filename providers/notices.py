"""Notices: finds out on a machine how its provider gives notice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from providers.notice import Notice


def notices(where: str) -> Callable[[], Notice | None]:
    """A function that returns the notice given to this machine, or None, without waiting; it may raise ProviderError.

    `where` is what providers put into TRADEWIND_METADATA: the name of a cloud, or the path of a file of `local`.
    """
    if where == "aws":
        from providers.aws.metadata import SpotNotices

        return SpotNotices().started()
    if where == "gcp":
        from providers.gcp.metadata import PreemptionNotices

        return PreemptionNotices().started()
    if where == "azure":
        from providers.azure.metadata import ScheduledEvents

        return ScheduledEvents().started()
    from providers.local.metadata import read_notice

    return partial(read_notice, Path(where))
