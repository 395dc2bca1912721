"""Fits the model of jobs that share a GPU, which comes with the product: python -m scripts.fit_colocation FOLDER DATE

FOLDER has Gavel's tables of throughputs (benchmarks/_colocated.py). Writes orchestrator/perf/fitted_colocation.py with
DATE as the day of the fit.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks._colocated import read_colocated
from orchestrator.perf.colocation import ColocationModel
from orchestrator.perf.colocation_fit import calibrated_colocation, fit_colocation
from scripts.fit_throughput import lower, numbers

TARGET = Path(__file__).parents[1] / "orchestrator" / "perf" / "fitted_colocation.py"


def module(model: ColocationModel, cells: int, on: str) -> str:
    """The source text of the fitted module."""
    effects = ", ".join(f"{name}={value:.4g}" for name, value in asdict(model.effects).items())
    return f'''"""The model of jobs that share a GPU. Written by scripts/fit_colocation.py: change that.

Fitted {on} to {cells} rates of {model.families} model families beside one another on K80, P100 and V100, measured
2019 to 2020 by the authors of Gavel: Narayanan, Santhanam, Kazhamiaka, Phanishayee, Zaharia, OSDI 2020;
github.com/stanford-futuredata/gavel at c4fa400, MIT licence. Parameters only, no rows. How well they predict unseen
rates: benchmarks/colocation.py.
"""

from __future__ import annotations

from orchestrator.perf.colocation import ColocationModel
from orchestrator.perf.fitted import symmetric, vector
from orchestrator.perf.pairings import Effects

FITTED_COLOCATION = ColocationModel(
    effects=Effects({effects}),
    gpus={model.gpus!r},
    strain=({", ".join(f"{value:.4g}" for value in model.strain)}),
    mean=vector("""
{numbers(model.mean)}
"""),
    covariance=symmetric({len(model.mean)}, """
{numbers(lower(model.covariance))}
"""),
    families={model.families},
    calibration={model.calibration:.4g},
)
'''


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    cells = read_colocated(Path(arguments[0])).cells
    model = calibrated_colocation(fit_colocation(cells), cells)
    TARGET.write_text(module(model, len(cells), arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
