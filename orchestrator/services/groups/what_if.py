"""What-if plans: assumed quotas, such as `quota.aws.us-east-1.p5=384`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from fnmatch import fnmatchcase

from orchestrator.errors import UsageError, did_you_mean, echoed
from orchestrator.market import Market, QuotaName, rooms_raised

MOST_DIGITS = 9
FORM = "quota.CLOUD.SCOPE.NAME=LIMIT, such as quota.aws.us-east-1.p5=384"


def supposed(market: Market, assumptions: Iterable[str]) -> Market:
    """The market with these limits. NAME is the name of a quota, or an instance family that it covers; SCOPE and NAME
    may have `_` for spaces. All matching quotas are changed. Raises UsageError if the form, the number or the quota is
    not valid."""
    for assumption in assumptions:
        key, equals, text = assumption.partition("=")
        if not equals:
            raise UsageError(f"{echoed(assumption)} is not a valid assumption", hint=f"write {FORM}")
        if not text.isdecimal() or len(text) > MOST_DIGITS:
            allowed = f"a whole number from 0 to {10**MOST_DIGITS - 1:,}"
            raise UsageError(f"{echoed(assumption)}: the limit of a quota must be {allowed}", hint=f"write {FORM}")
        known = quotas(market)
        if not key.startswith("quota.") or key.count(".") < 3:
            listed = _listed([key_of(name) for name in known])
            raise UsageError(f"{echoed(key)} is not a quota", hint=f"write {FORM}{f'; {listed}' if listed else ''}")
        meant = [name for name in known if _is_named(name, key)] or [name for name in known if _covers(name, key)]
        if not meant:
            raise UsageError(f"there is no quota {key}", hint=_known(key, [key_of(name) for name in known]))
        for name in meant:
            more = int(text) - max(name[1].limit, 0)
            market = market.with_fields(rooms=rooms_raised(market.rooms, name, more))
    return market


def quotas(market: Market) -> list[QuotaName]:
    """The quotas that limit offers of the market."""
    return sorted({room.name for of_row in market.rooms.values() for room in of_row}, key=repr)


def key_of(name: QuotaName) -> str:
    """The name of a quota in an assumption."""
    return f"{_scope(name)}{_word(name[1].name)}"


def option(name: QuotaName, limit: int) -> str:
    """The option that assumes this limit, quoted for a shell."""
    return f"--what-if {shlex.quote(f'{key_of(name)}={limit}')}"


def _known(key: str, keys: list[str]) -> str:
    """Similar names, or the quotas that exist."""
    near = did_you_mean(key, keys)
    cloud = key.split(".")[1]
    if not near and not any(each.startswith(f"quota.{cloud}.") for each in keys):
        near = f"no quotas of {cloud} are known: enable it first (providers.enabled)"
    return "; ".join(each for each in (near, _listed(keys)) if each)


def _listed(keys: list[str]) -> str:
    some = ", ".join(map(shlex.quote, keys[:6])) + (", ..." if len(keys) > 6 else "")
    return f"the quotas here: {some}" if keys else ""


def _is_named(name: QuotaName, key: str) -> bool:
    return _word(key).startswith(_scope(name)) and _word(key).casefold() == key_of(name).casefold()


def _covers(name: QuotaName, key: str) -> bool:
    """Whether the key names a family of instance types, such as `p5` or `n1`, that the quota covers."""
    scope, covers = _scope(name), name[1].covers
    if not _word(key).startswith(scope) or covers is None:
        return False
    family = _word(key).removeprefix(scope)
    return any(
        each == family
        or each.startswith((f"{family}.", f"{family}-"))
        or any(fnmatchcase(f"{family}{size}", each) for size in (".large", "-1"))
        for each in covers.instance_types
    )


def _scope(name: QuotaName) -> str:
    """The beginning of a quota's key. The scope may have dots, as it can be the address of a host."""
    return f"quota.{name[0]}.{_word(name[1].scope)}."


def _word(text: str) -> str:
    return text.replace(" ", "_")
