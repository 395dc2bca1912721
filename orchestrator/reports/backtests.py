"""Back-tests kept with `tradewind backtest --keep`: files in the state folder, one per scenario."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from orchestrator.arena.results import Backtest
from orchestrator.formats.codec import CodecError
from orchestrator.formats.csv_cells import table
from orchestrator.formats.documents import codec_of
from orchestrator.formats.whole_file import write_whole
from orchestrator.installation import Installation
from orchestrator.policy import online

FOLDER = "backtests"
OURS = online.NAME


@dataclass(frozen=True, slots=True)
class KeptBacktest:
    """A back-test, and when it was kept (epoch ms of real time)."""

    at_ms: int
    result: Backtest


@dataclass(frozen=True, slots=True)
class BacktestList:
    """The kept back-tests, newest first; `unreadable` are files that are not valid back-tests, with the reason."""

    kind: ClassVar[str] = "backtests"

    at_ms: int
    backtests: tuple[KeptBacktest, ...]
    unreadable: tuple[tuple[str, str], ...]


def backtests(installation: Installation) -> BacktestList:
    """The back-tests in the state folder."""
    found, bad = [], []
    for path in sorted((installation.state_dir / FOLDER).glob("*.json")):
        try:
            made = codec_of(Backtest).loads(path.read_bytes())
        except (OSError, CodecError) as error:
            bad.append((path.name, str(error)))
            continue
        found.append(KeptBacktest(round(path.stat().st_mtime * 1000), made))
    found.sort(key=lambda each: -each.at_ms)
    return BacktestList(installation.clock.now_ms(), tuple(found), tuple(bad))


def keep(state_dir: Path, view: Backtest) -> Path:
    """Write a back-test to the folder that `backtests` reads. Raises OSError."""
    folder = state_dir / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    name = "".join(each if each.isalnum() and each.isascii() else "-" for each in view.name)[:80] or "backtest"
    path = folder / f"{name}.json"
    write_whole(path, codec_of(Backtest).dumps(view, indent=1))
    return path


def backtests_csv(view: BacktestList) -> str:
    """CSV with a row per back-test and policy."""
    columns = ("backtest", "policy", "runs", "cost_nano_usd", "over_optimum", "p95", "worst", "missed")
    rows = (
        (each.result.name, row.policy, row.runs, row.cost_nano_usd, row.over_optimum, row.p95, row.worst, row.missed)
        for each in view.backtests
        for row in each.result.policies
    )
    return table(columns, rows)
