"""Inputs for the special functions."""

from math import inf

from .case import Sampler, reals
from .elementwise import chain, kinks, point, with_static

within_one: Sampler = chain(reals((-0.9, 0.9)), kinks([-1.0, 1.0]))
positive: Sampler = chain(reals((0.3, 3)), kinks([0.0]))
probabilities: Sampler = chain(reals((0.1, 0.9)), kinks([0.0, 1.0]))
log_normal: Sampler = chain(reals((-2, 2)), point([-30.0, 8.0], label="tails"))
_entropies = chain(reals((0.2, 2), (0.3, 2)), point(0.7, [0.5, 1.5]), point([0.5, 1.5], 0.7))
entropies: Sampler = chain(_entropies, kinks([0.0, 0.0, 1.0], [0.0, 2.0, 0.0]))
entropies_near_one: Sampler = chain(_entropies, kinks([0.0, 0.0, 1.0], [-1.0, 0.0, 0.0]))
factorials: Sampler = chain(reals((0.4, 4)), point([-0.7, -1.4, 9.5]), kinks([0.0, -1.0, inf]))
polygammas: Sampler = chain(
    *(point(n, [0.6, 1.5, 4.0], label=f"order {n}") for n in (0, 1, 2, 3)),
    point([[0.0], [2.0]], [0.6, 1.5, 4.0], label="orders as an array"),
)
zetas: Sampler = chain(point(2.0, [0.6, 1.5, 4.0]), point([2.0, 3.0, 4.0], [0.6, 1.5, 4.0]))
betas: Sampler = chain(
    reals((0.4, 3), (0.4, 3)), point([0.5, 2.0], 3.0), point(1.5, [0.5, 2.0]), kinks([0.0], [1.0])
)
incomplete_gammas: Sampler = chain(
    *(point(a, [0.3, 1.5, 4.0], label=f"a = {a}") for a in (0.5, 1, 3.5)),
    point([1.0, 2.0, 3.0], [0.3, 1.5, 4.0], label="whole a"),
    kinks(0.5, [0.0]),
)
incomplete_betas: Sampler = chain(
    *(point(a, b, [0.1, 0.5, 0.8], label=f"{a}, {b}") for a, b in ((0.5, 2.0), (3, 1), (2, 5.5))),
    point([1.0, 2.0, 3.0], 2.5, [0.1, 0.5, 0.8], label="whole a"),
    kinks(0.5, 2.0, [0.0, 1.0]),
)
with_zero: Sampler = chain(reals((-3, 3)), point([0.0, 1e-9, 12.0], label="at and near zero"))
off_zero: Sampler = chain(reals((0.3, 3)), point([-1.5, 12.0, -20.0]), kinks([0.0]))
of_order: Sampler = chain(
    with_static(chain(reals((0.3, 3)), point([-1.5, 12.0])), (0,), (1,), (2,), (3,)),
    point([-7.5, 30.0], static=(5,)),
)
