"""Import this before numpy to use one thread for linear algebra. Matrices of 250 rows gain nothing from more threads,
and lose much on a busy machine."""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
