"""Cases for the rows of weighted sums."""

from .case import Case, Cases, Rng

WEIGHTS = (0.5, -2.0, 1.0, 0.25)


def weighted_sums(rng: Rng) -> Cases:
    for shape, count in (((3, 2), 4), ((), 2), ((4,), 1), ((0, 2), 3)):
        args = tuple(rng.normal(size=shape) for _ in range(count))
        yield Case(args, (WEIGHTS[:count],), f"{count} of {shape}")
        turned = tuple(a + 1j * rng.normal(size=shape) for a in args)
        yield Case(turned, (WEIGHTS[:count],), f"{count} complex of {shape}")
