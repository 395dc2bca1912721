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
        sensitivity=0.1084,
        demand=0.09507,
        within=0.2084,
        families=0.1,
        pair=0.06456,
        residual=0.0542,
        slope=0.07047,
        within_slope=0.9225,
        gpu=0.09932,
        by_gpu=1.419,
    ),
    gpus=("K80", "P100", "V100"),
    strain=(0.4326, 0.5848, 1.931),
    mean=vector("""
-0.60283 -0.044564 0.067166 -0.057432 -0.082002 0.046829 0.045649 0.047342 0.011069 -0.0070727 -0.02858 0.037415
"""),
    covariance=symmetric(
        12,
        """
0.0060259 4.3916e-05 0.0020625 4.0874e-05 -6.5014e-08 0.002048 -0.00453 4.2553e-05 3.372e-05 0.0048878 1.2704e-05
-0.0018185 -2.0929e-07 2.6236e-05 0.0019768 7.8247e-06 -2.5054e-07 -0.0018131 2.4378e-05 4.0773e-07 0.0019623
-0.0040056 -8.6754e-06 -6.6872e-06 0.0034561 -3.0709e-05 -2.6231e-05 0.0048145 1.1194e-05 -0.0016795 1.2916e-07
-2.2909e-05 0.0016405 8.7597e-08 1.5748e-05 0.0020848 1.095e-05 1.2839e-07 -0.0016802 -2.0767e-05 9.5757e-08 0.0016419
1.733e-05 6.6615e-07 0.0020641 -0.00066782 -2.9065e-05 -2.2553e-05 0.0010235 5.865e-06 2.7106e-06 0.0011543 8.3876e-06
4.637e-06 0.007613 3.8422e-05 -0.00062209 -1.2124e-08 5.7059e-05 0.00084894 -8.5086e-07 2.6499e-06 0.00093832
-5.7971e-07 -5.5498e-05 0.0043768 3.9227e-05 2.9885e-08 -0.00064729 4.424e-05 -8.0049e-07 0.0008698 -5.8885e-07
-5.7047e-07 0.00095652 -3.9352e-05 1.4134e-06 0.004302
""",
    ),
    families=7,
    calibration=1.095,
)
