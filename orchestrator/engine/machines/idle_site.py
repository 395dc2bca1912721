"""Idle site: ends what the site runs only for machines when there has been none for a while.

The site starts when a machine is about to be rented (engine.migration.bring_up). A new control plane waits the whole
time again: it does not know for how long nothing has run.
"""

from __future__ import annotations

from orchestrator.engine.context import Context

NEEDED = "site-needed"
RELEASE_EVERY_S = 5.0


def release_if_idle(ctx: Context) -> bool:
    """Release the site once nothing has needed it for `site.stop_after_idle_s`. Changes nothing in the store."""
    now_s = ctx.installation.clock.monotonic_s()
    if ctx.work.needs_site:
        ctx.pacing[NEEDED] = now_s
    elif (
        now_s - ctx.pacing.setdefault(NEEDED, now_s) >= ctx.installation.config.site.stop_after_idle_s
        and ctx.due("site-released", RELEASE_EVERY_S)  # again: another control plane's site may be left
    ):
        ctx.runtime.release()
    return False
