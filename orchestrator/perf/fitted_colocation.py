"""The model of jobs that share a GPU. Written by scripts/fit_colocation.py: change that.

Fitted 2026-11-27 to 1881 rates of 7 model families beside one another on K80, P100 and V100, measured
2019 to 2020 by the authors of Gavel: Narayanan, Santhanam, Kazhamiaka, Phanishayee, Zaharia, OSDI 2020;
github.com/stanford-futuredata/gavel at c4fa400, MIT licence. Parameters only, no rows. How well they predict what they
have not seen: benchmarks/colocation.py.
"""

from __future__ import annotations

from orchestrator.perf.colocation import ColocationModel
from orchestrator.perf.fitted import symmetric, vector
from orchestrator.perf.pairings import Effects

FITTED_COLOCATION = ColocationModel(
    effects=Effects(
        sensitivity=0.09932,
        demand=0.1084,
        within=0.175,
        families=0.1045,
        pair=0.03499,
        residual=0.09162,
        slope=0.07691,
        within_slope=0.8452,
        gpu=0.09507,
        by_gpu=1.3,
    ),
    gpus=("K80", "P100", "V100"),
    strain=(0.4313, 0.5911, 1.958),
    mean=vector("""
-0.60002 -0.046858 0.069801 -0.057317 -0.081323 0.045007 0.047519 0.050545 0.0085771 -0.0071964 -0.030146 0.037169
"""),
    covariance=symmetric(
        12,
        """
0.0057237 4.6737e-05 0.0023026 4.9157e-05 -7.4044e-08 0.0023124 -0.0042417 3.1415e-05 3.6967e-05 0.0045449 3.3901e-06
-0.0020468 -2.4049e-07 2.2924e-05 0.0021785 6.0192e-06 -2.1178e-07 -0.0020507 2.3749e-05 4.7885e-07 0.0021873
-0.0037003 -6.682e-06 -7.9418e-06 0.0031805 -2.4914e-05 -2.7534e-05 0.0044672 1.0098e-05 -0.0018981 8.4576e-08
-2.1793e-05 0.001853 1.4388e-07 1.919e-05 0.0022726 1.0273e-05 8.3752e-08 -0.0018981 -2.3405e-05 1.409e-07 0.0018525
1.8532e-05 7.548e-07 0.0022848 -0.00052071 -2.0039e-05 -2.4089e-05 0.00088622 2.3303e-06 4.3899e-06 0.0010182
3.6171e-06 5.9044e-06 0.0070808 4.7279e-05 -0.00075262 5.9642e-08 3.9713e-05 0.0009986 -8.9808e-07 -2.9636e-06
0.0010977 -7.8681e-07 -3.2002e-05 0.0046164 4.762e-05 3.1758e-08 -0.00073588 4.7719e-05 -9.3242e-07 0.00098505
-1.3235e-06 -7.8872e-07 0.001086 -4.1614e-05 1.7624e-06 0.0046634
""",
    ),
    families=7,
    calibration=1.112,
)
