"""Fits the throughput model that comes with the product: python -m scripts.fit_throughput TABLE DATE

TABLE is Gavel's table of isolated throughputs (CSV or JSON, orchestrator/services/throughput_tables.py). Writes
orchestrator/perf/fitted.py with DATE as the day of the fit. To be run again when the hardware table changes.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from orchestrator.perf.ratios import RatioModel, fit
from orchestrator.services.throughput_tables import read_table

TARGET = Path(__file__).parents[1] / "orchestrator" / "perf" / "fitted.py"


def module(model: RatioModel, rows: int, on: str) -> str:
    """The source text of the fitted module."""
    spreads = ",\n        ".join(f"{name}={value:.6g}" for name, value in asdict(model.spreads).items())
    covariance = "\n".join(f"            {_numbers(row)}," for row in model.covariance)
    return f'''"""The throughput model that comes with the product. Written by scripts/fit_throughput.py: change that.

Fitted {on} to {rows} rates of {model.families} model families on {", ".join(model.architectures)} (1 to 8
GPUs of one server, PyTorch 1.x, FP32), measured 2019 to 2020 by the authors of Gavel: Narayanan, Santhanam, Kazhamiaka,
Phanishayee, Zaharia, OSDI 2020; github.com/stanford-futuredata/gavel at c4fa400, MIT licence. Parameters only, no rows.
How well it predicts families that it has not seen: benchmarks/dollars_per_step.py.
"""

from __future__ import annotations

import numpy as np

from orchestrator.perf.ratios import RatioModel, Spreads

FITTED = RatioModel(
    spreads=Spreads(
        {spreads},
    ),
    architectures={model.architectures!r},
    mean=np.array({_numbers(model.mean)}),
    covariance=np.array(
        [
{covariance}
        ]
    ),
    families={model.families},
)
'''


def _numbers(values: object) -> str:
    return "[" + ", ".join(f"{float(value):.6g}" for value in values) + "]"  # type: ignore[attr-defined]


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    rows = read_table(Path(arguments[0])).rows
    TARGET.write_text(module(fit(rows), len(rows), arguments[1]).replace("'", '"'))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
