"""The declared price of each offer, and the time when this installation first saw it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from providers.errors import SetupError
from providers.price import PricePoint

SOURCE = "tradewind.toml"


class DeclaredPrices:
    """The declared prices, in a small file. Any number of processes may use it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def points(self, declared: Mapping[str, int], now_ms: int) -> list[PricePoint]:
        """The price in force of every offer (nano-USD per hour). Raises SetupError if the file cannot be used."""
        try:
            known = self._read()
            current = {
                offer_id: since if (since := known.get(offer_id)) and since[0] == price else (price, now_ms)
                for offer_id, price in declared.items()
            }
            if any(known.get(offer_id) != since for offer_id, since in current.items()):
                self._write({**known, **current})
        except (OSError, ValueError, TypeError) as error:
            raise SetupError(f"{self._path} cannot be used: {error}", hint=f"remove {self._path}") from error
        return [
            PricePoint(offer_id, price, min(since_ms, now_ms), now_ms, SOURCE)
            for offer_id, (price, since_ms) in current.items()
        ]

    def _read(self) -> dict[str, tuple[int, int]]:
        if not self._path.exists():
            return {}
        found = json.loads(self._path.read_text(encoding="utf-8"))
        return {str(offer_id): (int(price), int(since_ms)) for offer_id, (price, since_ms) in found.items()}

    def _write(self, prices: Mapping[str, tuple[int, int]]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        partial.write_text(json.dumps(prices), encoding="utf-8")
        partial.replace(self._path)
