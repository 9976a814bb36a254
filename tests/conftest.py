"""What all tests share: one thread a worker, since the workers themselves run in parallel."""

import os

os.environ["SCIPY_ARRAY_API"] = "1"  # read when SciPy is first imported

import torch  # noqa: E402

torch.set_num_threads(1)
