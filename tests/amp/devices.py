"""The devices that are there, and the way back from them."""

import numpy as np
import torch

DEVICES = ["cpu", "torch", *(["cuda"] if torch.cuda.is_available() else [])]


def host(x) -> np.ndarray:
    """The elements of a tensor that may be anywhere."""
    return x.detach().to("cpu").numpy()
