"""Freed: queries the remaining quota once a machine has ended.

Quotas are normally queried together with prices, about every 30 s. So that a job waiting for the last machine does not
wait that long, the provider is queried for its quotas once more as soon as it confirms that a machine is gone.
"""

from __future__ import annotations

from orchestrator.engine.context import Context
from providers.base import LimitsByQuota, Provider
from providers.errors import ProviderError

AT_MOST_EVERY_S = 1.0
"""Wall seconds between two queries, even if many machines end one after the other."""


def machine_ended(ctx: Context, provider: str) -> None:
    """Note that a machine is gone, so that its provider is queried."""
    ctx.pacing[_ended(provider)] = ctx.installation.clock.monotonic_s()


def ask_what_is_left(ctx: Context, provider: Provider) -> bool:
    """Query a provider for its quotas if a machine there has ended since the last query, and store the answer when it
    arrives. A failed query is not repeated: quotas are queried together with prices anyway. Returns whether they
    changed. Raises NotLeaderError."""
    if not (isinstance(provider, LimitsByQuota) and provider.quotas_limit_plans):
        return False
    key, ended_s = f"quotas:{provider.name}", ctx.pacing.get(_ended(provider.name))
    answer = ctx.answer(key)
    if answer is None and ended_s is not None and ctx.may_ask(key, (provider.name, ""), AT_MOST_EVERY_S):
        answer = ctx.begin(key, (provider.name, ""), provider.quotas)
    if answer is None:
        return False
    if ended_s is not None and answer.asked_s >= ended_s:
        del ctx.pacing[_ended(provider.name)]
    try:
        quotas = answer.result()
    except ProviderError:
        return False
    with ctx.write() as tx:
        return tx.set_quotas(provider.name, list(quotas), answer.asked_ms)


def _ended(provider: str) -> str:
    """The key for the monotonic time when the latest machine was found to be gone."""
    return f"ended:{provider}"
