"""One test case of a row, and samplers of elementwise ones."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.record import record
from ...core.types import Static


@record
class Case:
    """Arguments (float64 or complex128 arrays, index arrays, Python scalars) of one call.

    `post` maps the row's results to ones that are smooth functions of the arguments, where
    the results themselves are defined only up to a sign or a phase; it is written with ops.
    `smooth` is False at a kink or a pole, where finite differences say nothing.
    """

    args: tuple[Any, ...]
    static: Static = ()
    label: str = ""
    post: Callable[..., Any] | None = None
    smooth: bool = True


if TYPE_CHECKING:
    Rng = np.random.Generator
else:
    Rng = object  # to load NumPy's generators takes 20 ms, which only tests need to spend

Cases = Iterator[Case]  # what one sampler draws
Sampler = Callable[[Rng], Iterable[Case]]

SHAPES = ((3, 2), (), (4,), (0,), (2, 0, 3))
PAIRS = (
    ((3, 2), (3, 2)),
    ((3, 2), (2,)),
    ((3, 1), (1, 4)),
    ((), (3,)),
    ((2, 3), ()),
    ((0, 2), (2,)),
)


def reals(*ranges: tuple[float, float], complex_too: bool = False) -> Sampler:
    """Uniform draws, one (low, high) range for each argument."""

    def sampler(rng):
        for shapes in _shapes(len(ranges)):
            args = tuple(rng.uniform(lo, hi, s) for (lo, hi), s in zip(ranges, shapes, strict=True))
            yield Case(args, label="×".join(map(str, shapes)))
            if complex_too:
                yield Case(
                    tuple(a + 1j * rng.uniform(0.2, 0.9, a.shape) for a in args),
                    label="complex " + "×".join(map(str, shapes)),
                )

    return sampler


def _shapes(n: int):
    if n == 1:
        return [(s,) for s in SHAPES]
    if n == 2:
        return PAIRS
    return [((3, 2),) * n, ((3, 1), (1, 2), (2,)) + ((),) * (n - 3), ((0, 2),) * n]
