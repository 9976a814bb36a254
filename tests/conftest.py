"""What all tests share: one thread a worker, since the workers themselves run in parallel."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded

import torch

torch.set_num_threads(1)
