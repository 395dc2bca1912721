"""The throughput model that comes with the product. Written by scripts/fit_throughput.py: change that.

Fitted 2026-11-21 to 246 rates of 7 model families on K80, P100, V100 (1 to 8
GPUs of one server, PyTorch 1.x, FP32), measured 2019 to 2020 by the authors of Gavel: Narayanan, Santhanam, Kazhamiaka,
Phanishayee, Zaharia, OSDI 2020; github.com/stanford-futuredata/gavel at c4fa400, MIT licence. Parameters only, no rows.
How well it predicts families that it has not seen: benchmarks/dollars_per_step.py.
"""

from __future__ import annotations

import numpy as np

from orchestrator.perf.ratios import RatioModel, Spreads

FITTED = RatioModel(
    spreads=Spreads(
        level=1.30322,
        exponent=0.181959,
        architecture=0.199843,
        doubling=0.11219,
        gang=0.286487,
        within=0.23364,
    ),
    architectures=("K80", "P100", "V100"),
    mean=np.array([2.45146, 0.225651, 0.124654, 0.510551, 0.528743, -0.036653, 0.160941, -0.119773]),
    covariance=np.array(
        [
            [0.327469, 0.0038784, 0.020166, -0.00178992, -4.16423e-07, 0.0060369, -0.0261445, -0.0666177],
            [0.0038784, 0.05629, -0.0139412, -0.00712873, -3.50305e-09, 0.00850653, -0.00473436, -0.00373339],
            [0.020166, -0.0139412, 0.024008, -0.0120847, -4.22763e-09, 0.0119711, 0.00764255, -0.019412],
            [-0.00178992, -0.00712873, -0.0120847, 0.0521818, -6.00228e-09, 0.0136466, -0.0153875, 0.00172299],
            [
                -4.16423e-07,
                -3.50305e-09,
                -4.22763e-09,
                -6.00228e-09,
                0.00314227,
                8.40038e-09,
                -1.19061e-08,
                -6.58534e-10,
            ],
            [0.0060369, 0.00850653, 0.0119711, 0.0136466, 8.40038e-09, 0.07129, 0.0245816, -0.00581118],
            [-0.0261445, -0.00473436, 0.00764255, -0.0153875, -1.19061e-08, 0.0245816, 0.03999, 0.025167],
            [-0.0666177, -0.00373339, -0.019412, 0.00172299, -6.58534e-10, -0.00581118, 0.025167, 0.069978],
        ]
    ),
    families=7,
)
