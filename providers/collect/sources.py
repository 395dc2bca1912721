"""The price sources by name; each is imported only when it is used.

A name may have a label after a colon to use one kind several times: `feed:verda`, `feed:our-contract`.
"""

from __future__ import annotations

import difflib
import importlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from providers.collect.facts import PriceSource
from providers.errors import NotFoundError, SetupError


@dataclass(frozen=True, slots=True)
class SourceKind:
    """`cadence_s` is the usual interval between two polls of a region in seconds. `extra` is the pip extra it needs, if
    any.

    `options` are those of the source in the configuration, each with an example.
    `history`: "none", "too" if the first poll also returns past prices, or "only" if the source returns nothing else;
    it then does not know which offers exist now.
    """

    path: str
    cadence_s: float
    options: Mapping[str, object]
    extra: str = ""
    history: Literal["none", "too", "only"] = "none"


_WAITS = {"connect_s": 5, "read_s": 30, "attempts": 3}
_FETCH = {"read_s": 30, "attempts": 3}
_CALLS = {"call_s": 30, "attempts": 3}
_AWS = {"regions": ["us-east-1"], "instance_types": ["g5.xlarge"], **_WAITS}
_COMPUTE = {"regions": ["us-central1"], "project": "my-project-1234", "compute": "https://compute.example.org"}
_BILLING = {**_COMPUTE, "billing": "https://billing.example.org", **_CALLS}
_MACHINES = {"machine_types": ["g2-standard-8"]}
_DAYS = {"backfill_days": 90}
_RISK = {
    "url": "https://example.org/advisor.json",
    "scores": [["g5.xlarge", "g5.2xlarge", "g6.xlarge"]],
    "score_regions": ["us-east-1"],
    **_WAITS,
}
_RETAIL = {
    "regions": ["eastus"],
    "subscription": True,
    "url": "https://prices.example.org",
    "currency": "EUR",
    "usd_per_unit": "1.08",
    **_FETCH,
}
_FEED = {"at": "prices.csv", "usd_per_unit": {"EUR": "1.08"}, **_FETCH}

KINDS = {
    "aws-on-demand": SourceKind(
        "providers.aws.prices.on_demand:OnDemandPrices",
        6 * 3600,
        {**_AWS, "account": False, "files": "https://pricing.example.org"},
        "aws",
    ),
    "aws-spot": SourceKind("providers.aws.prices.spot:SpotPrices", 720, {**_AWS, **_DAYS}, "aws", "too"),
    "aws-risk": SourceKind("providers.aws.prices.risk:Interruptions", 6 * 3600, _RISK, "aws"),
    "gcp-prices": SourceKind("providers.gcp.prices.list_prices:ListPrices", 3600, {**_BILLING, **_MACHINES}, "gcp"),
    "gcp-list-history": SourceKind(
        "providers.gcp.prices.list_history:ListHistory", 24 * 3600, {**_BILLING, **_DAYS}, "gcp", "only"
    ),
    "gcp-history": SourceKind(
        "providers.gcp.prices.history:CapacityHistory",
        6 * 3600,
        {**_COMPUTE, **_MACHINES, "call_s": 30},
        "gcp",
        "only",
    ),
    "azure-prices": SourceKind("providers.azure.prices.retail:RetailPrices", 3600, _RETAIL, "azure"),
    "azure-history": SourceKind("providers.azure.prices.history:SpotHistory", 24 * 3600, _CALLS, "azure", "only"),
    "azure-risk": SourceKind("providers.azure.prices.risk:Evictions", 6 * 3600, _CALLS, "azure"),
    "feed": SourceKind("providers.feed.source:Feed", 300, _FEED),
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


def wrong_options(name: str, options: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Unknown options of a source and values of a wrong type: the option, what is wrong, and the remedy. Raises
    NotFoundError for an unknown source."""
    known = source_kind(name).options
    for option, value in options.items():
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            yield option, "unknown option", f'did you mean "{near[0]}"?' if near else f"one of {', '.join(known)}"
        elif expected := _unlike(value, known[option]):
            yield option, f"must be {expected}", _like(option, known[option])


def _like(option: str, example: object) -> str:
    """`write it like regions = ["eastus"]`, as in a TOML file."""
    written = f"{option} = {_toml(example)}"
    return f"write it like {written}" if '"' in written else f'write it like "{written}"'


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_toml(each)}' for key, each in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)


def _unlike(value: object, example: object) -> str:
    """What a value must be, by the example; empty if it is that."""
    if isinstance(example, bool):
        return "" if isinstance(value, bool) else "true or false"
    if isinstance(example, int):
        right = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
        return "" if right else "a number, at least 0"
    if isinstance(example, list):
        right = isinstance(value, list | tuple) and not any(_unlike(each, example[0]) for each in value)
        return "" if right else "a list of lists of text" if isinstance(example[0], list) else "a list of text"
    if isinstance(example, Mapping):
        right = isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values())
        return "" if right else "a table of text"
    return "" if isinstance(value, str) and value else "text and not empty"


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
