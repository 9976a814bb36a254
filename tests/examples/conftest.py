"""What the examples' tests share: looking at a picture."""

import numpy as np
import pytest


@pytest.fixture
def drawn():
    """A function that asserts that a file is a picture with something on it."""
    image = pytest.importorskip("matplotlib.image")

    def look(path, colours=50):
        pixels = image.imread(path)[..., :3]
        assert pixels.shape[0] > 200 and pixels.shape[1] > 300
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > colours
        assert 0.02 < np.mean(np.any(pixels < 0.99, axis=-1)) < 0.95

    return look
