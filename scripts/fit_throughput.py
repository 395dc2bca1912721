"""Fits the throughput models that come with the product: python -m scripts.fit_throughput TABLE PUBLISHED DATE

TABLE is Gavel's table of isolated throughputs (CSV or JSON, orchestrator/services/speed/throughput_tables.py),
PUBLISHED the collection of published rates that benchmarks/_published.py reads. Writes orchestrator/perf/fitted.py with
DATE as the day of the fit. Run it again if the hardware table changes.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from textwrap import fill

import numpy as np

from benchmarks._published import read_published
from orchestrator.perf import Floats
from orchestrator.perf.ratios import RatioModel, Row, calibrated, fit
from orchestrator.services.speed.throughput_tables import read_table

TARGET = Path(__file__).parents[1] / "orchestrator" / "perf" / "fitted.py"


def module(wide: RatioModel, narrow: RatioModel, tables: tuple[list[Row], list[Row]], on: str) -> str:
    """The source text of the fitted module."""
    return f'''"""The throughput models that come with the product. Written by scripts/fit_throughput.py: change that.

FITTED is for FP32: fitted {on} to {len(tables[0])} rates of {wide.families} model families on K80, P100 and
V100 (1 to 8 GPUs of one server, PyTorch 1.x), measured 2019 to 2020 by the authors of Gavel: Narayanan,
Santhanam, Kazhamiaka, Phanishayee, Zaharia, OSDI 2020; github.com/stanford-futuredata/gavel at c4fa400, MIT licence.
FITTED_NARROW is for TF32, 16 and 8 bits: fitted {on} to {_size(tables[1])},
published 2021 to 2026 by mosaicml/llm-foundry, NVIDIA-NeMo (Apache-2), pytorch/torchtitan (BSD-3),
mlcommons/training_results v1.1 to v5.1 (Apache-2), NVIDIA/DeepLearningExamples (Apache-2, BSD),
VectorInstitute/vectorlm (MIT), hpcaitech/ColossalAI (Apache-2) and lambdal/deeplearning-benchmark (no licence stated);
read 2026-11-22.
Parameters only, no rows. How well they predict unseen rates: benchmarks/dollars_per_step.py.
"""

from __future__ import annotations

import numpy as np

from orchestrator.perf.posterior import Floats
from orchestrator.perf.ratios import RatioModel
from orchestrator.perf.structure import Spreads


def vector(numbers: str) -> Floats:
    """The numbers in a text."""
    return np.array(numbers.split(), dtype=np.float64)


def symmetric(size: int, lower: str) -> Floats:
    """The matrix whose lower triangle, row by row, is this."""
    matrix = np.zeros((size, size))
    matrix[np.tril_indices(size)] = vector(lower)
    return matrix + np.tril(matrix, -1).T


{_model("FITTED", wide)}
{_model("FITTED_NARROW", narrow)}'''


def _model(name: str, model: RatioModel) -> str:
    spreads = ", ".join(f"{part}={value:.6g}" for part, value in asdict(model.spreads).items())
    return f'''{name} = RatioModel(
    spreads=Spreads({spreads}),
    offsets={model.offsets!r},
    mean=vector("""
{numbers(model.mean)}
"""),
    covariance=symmetric({len(model.mean)}, """
{numbers(lower(model.covariance))}
"""),
    families={model.families},
    sorts={model.sorts!r},
    per_step={model.per_step},
    calibration={model.calibration:.4g},
)
'''


def _size(rows: list[Row]) -> str:
    models, gpus = {row.family for row in rows}, {row.gpu for row in rows}
    return f"{len(rows)} rates of {len(models)} models on {len(gpus)} kinds of GPU"


def numbers(values: Floats) -> str:
    """Lines with these numbers (n,), as `vector` in the fitted module reads them."""
    return fill(" ".join(f"{value:.5g}" for value in values.tolist()), 119)


def lower(matrix: Floats) -> Floats:
    """The lower triangle of a matrix (n, n), row by row, as `symmetric` in the fitted module reads it."""
    return np.asarray(matrix[np.tril_indices(len(matrix))])


def main(arguments: list[str]) -> int:
    if len(arguments) != 3:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    wide, narrow = list(read_table(Path(arguments[0])).rows), read_published(Path(arguments[1]), idle=False)
    models = fit(wide), calibrated(fit(narrow), narrow)
    TARGET.write_text(module(*models, (wide, narrow), arguments[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
