"""Tests that are generated from the table: a new row brings its own."""

import os

# Matrices of three rows do not get faster by waking threads; set before NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
