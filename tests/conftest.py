"""What all tests share: one thread a worker, since the workers themselves run in parallel."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded
os.environ["SCIPY_ARRAY_API"] = "1"  # before SciPy is

import torch

torch.set_num_threads(1)
