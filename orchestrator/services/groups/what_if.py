"""What if: quotas as they might be, such as `quota.aws.us-east-1.p5=16`."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.errors import UsageError, did_you_mean
from orchestrator.market import Market, QuotaName, rooms_raised

FORM = "quota.CLOUD.SCOPE.NAME=LIMIT, such as quota.aws.us-east-1.p5=16"


def supposed(market: Market, assumptions: Iterable[str]) -> Market:
    """The market with these limits. NAME is a quota's name, spaces written as `_`, or an instance family that it
    covers; all quotas that fit are changed. Raises UsageError for a form, a number or a quota that is not valid."""
    for assumption in assumptions:
        key, equals, text = assumption.partition("=")
        if not equals or not text.isdecimal():
            raise UsageError(f"{assumption!r} is not a valid assumption", hint=f"write {FORM}")
        parts = key.split(".", 3)
        if len(parts) < 4 or parts[0] != "quota":
            raise UsageError(f"{key!r} is not a quota", hint=f"write {FORM}")
        known = quotas(market)
        meant = [name for name in known if _fits(name, parts[1], parts[2], parts[3])]
        if not meant:
            keys = [key_of(name) for name in known]
            hint = did_you_mean(key, keys) or (f"known: {', '.join(keys[:6])}" if keys else "no quota is known here")
            raise UsageError(f"there is no quota {key}", hint=hint)
        for name in meant:
            more = int(text) - max(name[1].limit, 0)
            market = market.with_fields(rooms=rooms_raised(market.rooms, name, more))
    return market


def quotas(market: Market) -> list[QuotaName]:
    """The quotas that limit offers of the market."""
    return sorted({room.name for of_row in market.rooms.values() for room in of_row}, key=repr)


def key_of(name: QuotaName) -> str:
    """How an assumption names a quota."""
    return f"quota.{name[0]}.{name[1].scope}.{_word(name[1].name)}"


def _fits(name: QuotaName, cloud: str, scope: str, word: str) -> bool:
    provider, quota = name
    if provider != cloud or quota.scope != scope:
        return False
    families = () if quota.covers is None else quota.covers.instance_types
    named = any(each == word or each.startswith((f"{word}.", f"{word}-")) for each in families)
    return named or _word(quota.name).casefold() == _word(word).casefold()


def _word(text: str) -> str:
    return text.replace(" ", "_")
