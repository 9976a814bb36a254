"""How the twins state results: the numbers a document gives, or the error its program meets."""

from contextlib import contextmanager

import numpy as np


def close(found, expected, ulps: int = 16) -> None:
    """`found` equals `expected` up to `ulps` roundings, in its dtype, of the largest element."""
    have = found.detach().numpy()
    expected = np.asarray(expected)
    assert have.shape == expected.shape, f"shape {have.shape}, expected {expected.shape}"
    bound = ulps * np.finfo(have.dtype).eps * np.max(np.abs(expected), initial=0.0)
    np.testing.assert_allclose(have, expected, rtol=0.0, atol=bound)


@contextmanager
def refusal(error: type[Exception], *words: str):
    """The block raises `error`, and its message holds the words."""
    try:
        yield
    except error as raised:
        missing = [w for w in words if w not in str(raised)]
        assert not missing, f"{missing} not in: {raised}"
    else:
        raise AssertionError(f"no {error.__name__} was raised")
