"""The model of jobs that share a GPU. Written by scripts/fit_colocation.py: change that.

Fitted 2026-11-27 to 1881 rates of 7 model families beside one another on K80, P100 and V100, measured 2019 to 2020 by
the authors of Gavel: Narayanan, Santhanam, Kazhamiaka, Phanishayee, Zaharia, OSDI 2020;
github.com/stanford-futuredata/gavel at c4fa400, MIT licence. Parameters only, no rows. How well they predict unseen
rates: benchmarks/colocation.py.
"""

from __future__ import annotations

from orchestrator.perf.colocation import ColocationModel
from orchestrator.perf.fitted import symmetric, vector
from orchestrator.perf.pairings import Effects

FITTED_COLOCATION = ColocationModel(
    effects=Effects(
        sensitivity=0.1349,
        demand=0.1183,
        within=0.2483,
        families=0.1191,
        pair=0.07047,
        residual=0.08035,
        slope=0.09162,
        within_slope=0.6501,
        gpu=0.1538,
        by_gpu=1.14,
    ),
    gpus=("K80", "P100", "V100"),
    strain=(0.3753, 0.505, 1.664),
    mean=vector("""
-0.5942 -0.050832 0.076023 -0.071801 -0.077351 0.037608 0.039297 0.051756 0.004858 -0.010461 -0.032367 0.044219
"""),
    covariance=symmetric(
        12,
        """
0.01079 2.9542e-05 0.0028828 2.9608e-05 -9.2832e-08 0.0028567 -0.0091556 8.1516e-05 6.5239e-05 0.0094456 1.1831e-05
-0.0026172 -1.3841e-07 6.6775e-06 0.0027059 5.969e-06 -1.6575e-07 -0.002604 8.4735e-06 6.0925e-07 0.0026854 -0.0085445
-5.9598e-07 4.7597e-08 0.0079283 -3.3759e-05 -2.8343e-05 0.0092935 9.4771e-06 -0.0024692 7.5737e-08 -3.4491e-05
0.0024101 6.5882e-08 3.8053e-06 0.0027598 8.1241e-06 7.4338e-08 -0.0024651 -2.9631e-05 6.3298e-08 0.0024079 7.6468e-06
7.9005e-07 0.0027346 -0.0031252 -7.3153e-05 -5.7502e-05 0.0038813 3.0192e-05 2.1439e-05 0.004194 3.3177e-05 2.412e-05
0.014765 1.2377e-05 -0.0011984 -4.3175e-08 0.00012076 0.0014716 -8.6414e-07 2.9275e-05 0.0015866 -7.6859e-07
-0.00014678 0.0051473 1.9668e-05 -1.4435e-08 -0.0012454 9.5546e-05 -8.3038e-07 0.0015093 2.075e-05 -7.6957e-07
0.0016186 -0.00011113 1.5835e-06 0.0050239
""",
    ),
    families=7,
    calibration=1.097,
)
