"""The price sources by name; each is imported only when it is used.

A name may have a label after a colon to use one kind several times: `feed:verda`, `feed:our-contract`.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from providers.collect.facts import PriceSource
from providers.errors import NotFoundError, SetupError


@dataclass(frozen=True, slots=True)
class SourceKind:
    """`cadence_s` is the usual interval between two polls of a region in seconds. `extra` is the pip extra it needs, if
    any.

    `history`: "none", "too" if the first poll also returns past prices, or "only" if the source returns nothing else;
    it then does not know which offers exist now.
    """

    path: str
    cadence_s: float
    extra: str = ""
    history: Literal["none", "too", "only"] = "none"


KINDS = {
    "aws-on-demand": SourceKind("providers.aws.prices.on_demand:OnDemandPrices", 6 * 3600, "aws"),
    "aws-spot": SourceKind("providers.aws.prices.spot:SpotPrices", 720, "aws", "too"),
    "aws-risk": SourceKind("providers.aws.prices.risk:Interruptions", 6 * 3600, "aws"),
    "gcp-prices": SourceKind("providers.gcp.prices.list_prices:ListPrices", 3600, "gcp"),
    "gcp-list-history": SourceKind("providers.gcp.prices.list_history:ListHistory", 24 * 3600, "gcp", "only"),
    "gcp-history": SourceKind("providers.gcp.prices.history:CapacityHistory", 6 * 3600, "gcp", "only"),
    "azure-prices": SourceKind("providers.azure.prices.retail:RetailPrices", 3600, "azure"),
    "azure-history": SourceKind("providers.azure.prices.history:SpotHistory", 24 * 3600, "azure", "only"),
    "azure-risk": SourceKind("providers.azure.prices.risk:Evictions", 6 * 3600, "azure"),
    "feed": SourceKind("providers.feed.source:Feed", 300),
}


FRESH_INTERVALS = 4.0
"""A price is old once it has not been confirmed for this many usual intervals of its source."""


def source_kind(name: str) -> SourceKind:
    """The kind of a source. Raises NotFoundError, with the closest name, for an unknown one."""
    kind = name.partition(":")[0]
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise NotFoundError(f"there is no price source named {name!r}", hint=f"{hint}known: {', '.join(KINDS)}")
    return KINDS[kind]


def history_of(name: str) -> Literal["none", "too", "only"]:
    """Whether a source returns past prices; "none" for an unknown one."""
    kind = KINDS.get(name.partition(":")[0])
    return "none" if kind is None else kind.history


def usual_interval_s(name: str) -> float:
    """The usual seconds between two polls of a source; five minutes for an unknown one."""
    kind = KINDS.get(name.partition(":")[0])
    return 300.0 if kind is None else kind.cadence_s


def fresh_s(name: str) -> float:
    """For how many seconds a price of a source counts as current after it was last confirmed."""
    return FRESH_INTERVALS * usual_interval_s(name)


def make_source(name: str, options: Mapping[str, Any]) -> PriceSource:
    """The source, ready to poll; nothing is sent yet.

    Raises NotFoundError for an unknown name, and SetupError for a missing library (the hint has the pip command) or an
    unknown option.
    """
    kind = source_kind(name)
    module, _, attribute = kind.path.partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute)(name=name, **options)
    except ModuleNotFoundError as error:
        remedy = f"pip install 'tradewind[{kind.extra}]'" if kind.extra else f"pip install {error.name}"
        raise SetupError(
            f"the price source {name!r} needs {error.name}, which is not installed", hint=remedy
        ) from error
    except (TypeError, ValueError) as error:
        raise SetupError(
            f"the price source {name!r} cannot be set up: {error}", hint="see docs/collectors.md"
        ) from error
    return cast("PriceSource", made)
