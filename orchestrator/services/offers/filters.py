"""Filters for offers: parses and applies them, and says which one excludes all offers.

It imports no slow modules.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from orchestrator.errors import UsageError, did_you_mean
from orchestrator.services.offers.views import OfferRow
from providers.hardware import GPUS, gpus_counted, gpus_named
from providers.money import NANO_USD, format_usd, usd

Range = tuple[float | None, float | None]
"""(minimum, maximum), both inclusive; None: no limit."""

GB = 1_000_000_000
_NUMBER = r"\d{1,9}(?:\.\d{1,6})?"
_COUNTS = re.compile(r"[1-9]\d{0,3}(\s*\.\.\s*([1-9]\d{0,3})?)?|\.\.\s*[1-9]\d{0,3}", re.ASCII)
_RANGE = re.compile(rf"({_NUMBER})?\s*(\.\.)?\s*({_NUMBER})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class OfferQuery:
    """Conditions on offers. An offer needs one of `gpus`, canonical names. `gpu_memory` (per GPU) and `memory` are
    in GB, `max_price` is in nano-USD per hour."""

    gpus: tuple[str, ...] = ()
    gpu_count: Range | None = None
    gpu_memory: Range | None = None
    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    spot: bool | None = None
    max_price: int | None = None
    vcpu: Range | None = None
    memory: Range | None = None

    @classmethod
    def of(
        cls,
        *,
        gpu: str | None = None,
        gpu_memory: str | None = None,
        cloud: Sequence[str] = (),
        region: Sequence[str] = (),
        spot: bool | None = None,
        max_price: float | None = None,
        vcpu: str | None = None,
        memory: str | None = None,
    ) -> OfferQuery:
        """Parses command-line values: `H100:8`, `H100:1..8`, `40..80`. Raises UsageError."""
        kinds, count = ((), None) if gpu is None else _gpus(gpu)
        if max_price is not None and not (isinstance(max_price, int | float) and 0 < max_price < 1e9):
            raise UsageError(f"--max-price {max_price} is not a valid price", hint="give US dollars per hour, above 0")
        return cls(
            gpus=kinds,
            gpu_count=count,
            gpu_memory=_range("--gpu-memory", gpu_memory, "40.. or 40..80, in GB"),
            clouds=tuple(cloud),
            regions=tuple(region),
            spot=spot,
            max_price=None if max_price is None else usd(max_price),
            vcpu=_range("--vcpu", vcpu, "8.. or 8..32"),
            memory=_range("--memory", memory, "64.. or 64..256, in GB"),
        )

    def filters(self) -> Iterator[tuple[str, Callable[[OfferRow], bool]]]:
        """(filter in words, predicate) for each condition, in order."""
        clouds, regions, price = self.clouds, self.regions, self.max_price
        if clouds:
            yield f"--cloud {' '.join(clouds)}", lambda row: _matches(row.provider, clouds)
        if self.gpus:
            yield f"--gpu {' or '.join(self.gpus)}", lambda row: row.gpu in self.gpus
        if self.gpu_count is not None:
            counts = self.gpu_count
            yield f"--gpu {' or '.join(self.gpus)}:{_shown(counts)}", lambda row: _inside(row.gpu_count, counts)
        if self.gpu_memory is not None:
            inside = self.gpu_memory
            yield f"--gpu-memory {_shown(inside)}", lambda row: _inside(_gpu_gb(row), inside)
        if regions:
            yield f"--region {' '.join(regions)}", lambda row: _matches(row.region, regions)
        if self.spot is not None:
            yield "--spot" if self.spot else "--on-demand", lambda row: row.spot is self.spot
        if self.vcpu is not None:
            cpus = self.vcpu
            yield f"--vcpu {_shown(cpus)}", lambda row: row.vcpu > 0 and _inside(row.vcpu, cpus)
        if self.memory is not None:
            ram = self.memory
            yield f"--memory {_shown(ram)}", lambda row: row.memory_bytes > 0 and _inside(row.memory_bytes / GB, ram)
        if price is not None:
            yield f"--max-price {price / NANO_USD:g}", lambda row: _price(row) <= price

    def asks(self, provider: str, *, simulated_gpus_only: bool) -> bool:
        """False if the provider's name or its kind of GPUs excludes any match."""
        if self.clouds and not _matches(provider, self.clouds):
            return False
        return not (simulated_gpus_only and self.gpus and not any(GPUS[gpu].simulated for gpu in self.gpus))


def select(rows: Sequence[OfferRow], query: OfferQuery) -> list[OfferRow]:
    """The rows that pass every filter. Raises UsageError, naming the filter after which no row is left."""
    passed: list[str] = []
    left = list(rows)
    for name, passes in query.filters():
        kept = [row for row in left if passes(row)]
        if not kept and left:
            before = f" of the {len(left)} that match {', '.join(passed)}" if passed else f" of {len(left)}"
            raise UsageError(f"{name} matches no offer{before}{_unlisted(name)}", hint=_remedy(name, left, query))
        passed.append(name)
        left = kept
    return left


def _unlisted(name: str) -> str:
    """A note that the lists may be incomplete."""
    by_name = name.split(maxsplit=1)[0] in ("--cloud", "--gpu", "--region", "--spot", "--on-demand")
    return " (not in the catalogue or in collected prices, which may be incomplete)" if by_name else ""


def _remedy(name: str, left: Sequence[OfferRow], query: OfferQuery) -> str:
    """The nearest values among the remaining rows."""
    option = name.split(maxsplit=1)[0]
    if option == "--max-price":
        cheapest = min((_price(row) for row in left), default=float("inf"))
        return f"the cheapest is {format_usd(int(cheapest), 4)}/h" if cheapest < float("inf") else "no price is known"
    if option == "--gpu-memory":
        has = sorted({_gpu_gb(row) for row in left})
        least, most = query.gpu_memory or (None, None)
        if least is not None and has[-1] < least:
            return f"the largest GPU has {has[-1]:g} GB, {least - has[-1]:g} GB less"
        if most is not None and has[0] > most:
            return f"the smallest GPU has {has[0]:g} GB, {has[0] - most:g} GB more"
        return f"available GPU memory: {_some(f'{each:g}' for each in has)} GB"
    if option == "--gpu" and ":" in name:
        return f"available GPU counts: {_some(str(each) for each in sorted({row.gpu_count for row in left}))}"
    values: dict[str, Callable[[OfferRow], str]] = {
        "--cloud": lambda row: row.provider,
        "--gpu": lambda row: row.gpu or "none",
        "--region": lambda row: row.region,
        "--vcpu": lambda row: str(row.vcpu),
        "--memory": lambda row: f"{row.memory_bytes / GB:.0f}",
        "--spot": lambda _row: "on-demand only",
        "--on-demand": lambda _row: "spot only",
    }
    near = ""
    if option in ("--cloud", "--region"):
        wanted = (query.clouds if option == "--cloud" else query.regions)[0]
        named = {values[option](row) for row in left}
        begun = f"{wanted}*"
        if any(_matches(each, (begun,)) for each in named):
            return f"to match all that begin like this: {option} {shlex.quote(begun)}"
        near = did_you_mean(wanted, named)
    order = {str(row.vcpu): row.vcpu for row in left} | {
        f"{row.memory_bytes / GB:.0f}": row.memory_bytes for row in left
    }
    found = sorted({values[option](row) for row in left}, key=lambda value: (order.get(value, 0), value))
    return near or f"available: {_some(found)}"


def _some(values: Sequence[str] | Iterator[str]) -> str:
    listed = list(values)
    return ", ".join(listed[:8]) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")


def _gpus(text: str) -> tuple[tuple[str, ...], Range | None]:
    name, colon, count = text.partition(":")
    if colon and not _COUNTS.fullmatch(count.strip()):
        raise UsageError(f"--gpu {text} is not valid", hint="write it like H100:8 or H100:1..8")
    if not colon and (counted := gpus_counted(name)):
        raise UsageError(f"--gpu {text} is not valid", hint=f"write {counted[0]}:{counted[1]}")
    kinds = gpus_named(name)
    if not kinds:
        _refuse_if_priced(name)
        near = did_you_mean(name.strip(), GPUS)
        raise UsageError(f"unknown GPU {name}", hint=near or "see: tradewind offers --group-by gpu")
    return kinds, _range("--gpu", count, "H100:8 or H100:1..8") if colon else None


def _refuse_if_priced(name: str) -> None:
    """Raises UsageError, with prices, for an accelerator that is in the catalogue but not usable by any trainer."""
    from orchestrator.services.catalog.contents import not_usable  # only needed for an error
    from providers.catalog import load
    from providers.catalog.accelerators import normalized_name

    for row in not_usable(load()):
        if normalized_name(row.accelerator) == normalized_name(name):
            prices = {"on demand": row.nano_usd_per_chip_hour, "spot": row.spot_nano_usd_per_chip_hour}
            said = [f"{format_usd(nano, 4)} {kind}" for kind, nano in prices.items() if nano is not None]
            raise UsageError(
                f"{row.accelerator} cannot be used by Tradewind's trainers yet; at {row.provider} it costs from "
                f"{' and '.join(said)} per chip and hour ({', '.join(row.regions)}; as of {row.newest})",
                hint="see: tradewind catalog show; for GPUs: tradewind offers --group-by gpu",
            )


def _range(option: str, text: str | None, example: str) -> Range | None:
    if text is None:
        return None
    match = _RANGE.fullmatch(text.strip())
    low, dots, high = match.groups() if match else (None, None, None)
    if match is None or (low is None and high is None):
        raise UsageError(f"{option} {text} is not a range", hint=f"write it like {example}")
    limits = (None if low is None else float(low), None if high is None else float(high))
    if not dots:
        limits = (limits[0], limits[0])
    if limits[0] is not None and limits[1] is not None and limits[0] > limits[1]:
        raise UsageError(f"the range {option} {text} is empty", hint="write the smaller number first")
    return limits


def _shown(limits: Range) -> str:
    low, high = (("" if each is None else f"{each:g}") for each in limits)
    return low if limits[0] == limits[1] else f"{low}..{high}"


def _inside(value: float, limits: Range) -> bool:
    low, high = limits
    return (low is None or value >= low) and (high is None or value <= high)


def _gpu_gb(row: OfferRow) -> float:
    return 0.0 if row.gpu is None else GPUS[row.gpu].memory_bytes / GB


def _price(row: OfferRow) -> float:
    return float("inf") if row.nano_usd_per_hour is None else row.nano_usd_per_hour


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
