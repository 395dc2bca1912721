"""Encodes results as lines of JSON between the collecting child process and its parent.

One line holds one batch or one end of a poll, so what arrived before a child died is complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar

from providers import errors
from providers.collect.facts import Flag, FlaggedFinding, PollResult, Signal
from providers.errors import FormatError, PermissionDeniedError, ProviderError
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

BATCH = 500

_Row = TypeVar("_Row")
_offer_out = attrgetter(*(field.name for field in fields(Offer)))
_CAPACITY_TYPE = [field.name for field in fields(Offer)].index("capacity_type")
_point_out = attrgetter(*(field.name for field in fields(PricePoint)))
_signal_out = attrgetter(*(field.name for field in fields(Signal)))


@dataclass(frozen=True, slots=True)
class Regions:
    """The regions of a source, or the error that prevented listing them."""

    source: str
    names: tuple[str, ...]
    error: ProviderError | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A part of what a poll found."""

    source: str
    region: str
    offers: tuple[Offer, ...] = ()
    points: tuple[PricePoint, ...] = ()
    flagged: tuple[FlaggedFinding, ...] = ()
    signals: tuple[Signal, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a poll: its batches are complete only once this arrives. Times are the child's (epoch ms)."""

    source: str
    region: str
    started_at_ms: int
    ended_at_ms: int
    pages: int
    rows: int
    error: ProviderError | None = None
    skipped: Mapping[str, int] = field(default_factory=dict)


Message = Regions | Batch | Ended


def of_result(source: str, result: PollResult, started_at_ms: int, ended_at_ms: int) -> Iterator[Message]:
    """Split a result into batches and an end. Offers come before the prices that refer to them."""
    yield from (Batch(source, result.region, offers=part) for part in _parts(result.offers))
    yield from (Batch(source, result.region, points=part) for part in _whole_series(result.points))
    yield from (Batch(source, result.region, flagged=part) for part in _parts(result.flagged))
    yield from (Batch(source, result.region, signals=part) for part in _parts(result.signals))
    yield Ended(
        source, result.region, started_at_ms, ended_at_ms, result.pages, result.rows, result.error, result.skipped
    )


def _parts(rows: tuple[_Row, ...]) -> Iterator[tuple[_Row, ...]]:
    return (rows[start : start + BATCH] for start in range(0, len(rows), BATCH))


def _whole_series(points: tuple[PricePoint, ...]) -> Iterator[tuple[PricePoint, ...]]:
    """Batches that keep all points of an offer together; a result holds them in sequence."""
    start = 0
    for index in range(1, len(points) + 1):
        if index == len(points) or (index - start >= BATCH and points[index].offer_id != points[index - 1].offer_id):
            yield points[start:index]
            start = index


def encode(message: Message) -> str:
    """The message as one line, without a line end."""
    match message:
        case Regions(source, names, error):
            body: dict[str, Any] = {"regions": [source, names, _error_out(error)]}
        case Ended(source, region, started, ended, pages, rows, error, skipped):
            body = {"ended": [source, region, started, ended, pages, rows, _error_out(error), dict(skipped)]}
        case Batch():
            body = {
                "batch": [
                    message.source,
                    message.region,
                    [_offer_out(offer) for offer in message.offers],
                    [_point_out(point) for point in message.points],
                    [_flagged_out(flagged) for flagged in message.flagged],
                    [_signal_out(signal) for signal in message.signals],
                ]
            }
    return json.dumps(body, separators=(",", ":"))


def decode(line: str) -> Message:
    """Decode one line. Raises FormatError if it is not a message (a library printed something)."""
    try:
        ((kind, body),) = json.loads(line).items()
        if kind == "regions":
            return Regions(body[0], tuple(body[1]), _error_in(body[2]))
        if kind == "ended":
            return Ended(*[*body[:6], _error_in(body[6]), dict(body[7])])
        source, region, offers, points, flagged, signals = body
        return Batch(
            source,
            region,
            tuple(_offer_in(row) for row in offers),
            tuple(PricePoint(*row) for row in points),
            tuple(_flagged_in(row) for row in flagged),
            tuple(Signal(*row) for row in signals),
        )
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise FormatError(f"a collector process wrote an invalid line: {line[:200]!r}") from error


def _offer_in(row: Sequence[Any]) -> Offer:
    values: list[Any] = list(row)
    values[_CAPACITY_TYPE] = CapacityType(values[_CAPACITY_TYPE])
    return Offer(*values)


def _flagged_out(flagged: FlaggedFinding) -> list[Any]:
    offer = None if flagged.offer is None else _offer_out(flagged.offer)
    point = None if flagged.point is None else _point_out(flagged.point)
    return [flagged.flag, flagged.subject, flagged.detail, offer, point]


def _flagged_in(row: Sequence[Any]) -> FlaggedFinding:
    flag, subject, detail, offer, point = row
    return FlaggedFinding(
        Flag(flag), subject, detail, offer and _offer_in(offer), None if point is None else PricePoint(*point)
    )


def _error_out(error: ProviderError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {
        "kind": type(error).__name__,
        "message": str(error),
        "hint": error.hint,
        "scope": error.scope,
        "retry_after_s": error.retry_after_s,
        "action": getattr(error, "action", ""),
    }


def _error_in(body: dict[str, Any] | None) -> ProviderError | None:
    if body is None:
        return None
    kind = getattr(errors, body["kind"], ProviderError)
    if kind is PermissionDeniedError:
        return PermissionDeniedError(body["message"], action=body["action"], hint=body["hint"], scope=body["scope"])
    made = kind(body["message"], hint=body["hint"], scope=body["scope"], retry_after_s=body["retry_after_s"])
    assert isinstance(made, ProviderError)
    return made


def lines(messages: Iterable[Message]) -> str:
    """Messages as text, one per line."""
    return "".join(f"{encode(message)}\n" for message in messages)
