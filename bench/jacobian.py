"""Jacobians and Hessians: planned ones beside dense forward and reverse, jax.jit and torch.func.

Run: python bench/jacobian.py [case …]
Every case is the same function in each library, float64, checked against each other before it is
timed; best of several rounds in one process. "dense" is the better of Weft's own `jacfwd` and
`jacrev`; so are the peers' columns. A dash: it would need more memory than there is.
"""

import sys
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import torch

import weft as wf

jax.config.update("jax_enable_x64", True)
ROUND_SECONDS = 0.3
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """A function written once over an array namespace, its argument, and the goal."""

    name: str
    f: object
    x: np.ndarray
    goal: str
    hessian: bool = False
    format: str = "dense"
    dense: bool = True  # whether the dense modes can finish


def cat(xp):
    return xp.cat if xp is torch else xp.concatenate if xp is jnp else xp.concat


def as_array(xp, a):
    return torch.asarray(a) if xp is torch else jnp.asarray(a) if xp is jnp else wf.asarray(a)


WIDE, TALL = RNG.normal(size=(40, 1000)) / 30, RNG.normal(size=(1000, 40)) / 6
IN, OUT = RNG.normal(size=(4, 512)) / 20, RNG.normal(size=(512, 4))


def wide(xp, x):
    return xp.sin(xp.tanh(as_array(xp, WIDE) @ x))


def tall(xp, x):
    return xp.sin(xp.tanh(as_array(xp, TALL) @ x))


def bottleneck(xp, x):
    return xp.tanh(as_array(xp, OUT) @ xp.sin(as_array(xp, IN) @ x))


def tridiagonal(xp, x):
    inner = x[1:-1] * (x[:-2] - 2 * x[1:-1] + x[2:]) - xp.exp(x[1:-1])
    return cat(xp)([x[:1] ** 2, inner, x[-1:] ** 2])


def arrowhead(xp, x):
    return cat(xp)([xp.sum(xp.sin(x))[None], x[0] * x[1:] + x[1:] ** 3])


GRID = 64


def brusselator(xp, z):
    """Two species that react and diffuse on a periodic grid."""
    u, v = z[: GRID * GRID].reshape(GRID, GRID), z[GRID * GRID :].reshape(GRID, GRID)

    def spread(w):
        rows = cat(xp)([w[1:], w[:1]]) + cat(xp)([w[-1:], w[:-1]])
        flat = w.T if xp is not torch else w.mT
        columns = cat(xp)([flat[1:], flat[:1]]) + cat(xp)([flat[-1:], flat[:-1]])
        return rows + (columns.T if xp is not torch else columns.mT) - 4 * w

    du = 1.0 + u * u * v - 4.4 * u + 0.1 * GRID**2 * spread(u)
    dv = 3.4 * u - u * u * v + 0.1 * GRID**2 * spread(v)
    return cat(xp)([du.reshape(-1), dv.reshape(-1)])


def rosenbrock(xp, x):
    return xp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


CASES = [
    Case("wide 1000→40", wide, RNG.normal(size=1000), "≤ 1.2 × the better dense mode"),
    Case("tall 40→1000", tall, RNG.normal(size=40), "≤ 1.2 × the better dense mode"),
    Case("bottleneck 512→4→512", bottleneck, RNG.normal(size=512), "≥ 4 × faster"),
    Case("tridiagonal 2000", tridiagonal, RNG.normal(size=2000), "≥ 50 × faster", format="csr"),
    Case("arrowhead 2000", arrowhead, RNG.normal(size=2000), "≤ 6 sweeps", format="csr"),
    Case(
        "Brusselator 8192",
        brusselator,
        RNG.uniform(0.5, 1.5, 2 * GRID * GRID),
        "well under 1 s",
        format="csr",
        dense=False,
    ),
    Case(
        "Hessian of Rosenbrock 5000",
        rosenbrock,
        RNG.normal(size=5000),
        "by star colouring",
        hessian=True,
        format="csr",
        dense=False,
    ),
]


def best(run) -> float:
    """The quickest of the runs that fit into the time for a round."""
    run()
    shortest, start = float("inf"), time.perf_counter()
    while time.perf_counter() - start < ROUND_SECONDS:
        before = time.perf_counter()
        run()
        shortest = min(shortest, time.perf_counter() - before)
    return shortest


def weft_ways(case: Case):
    x = wf.asarray(case.x)
    f = lambda x: case.f(wf, x)  # noqa: E731
    way = wf.hessian if case.hessian else wf.jacobian
    planned = way(f, format=case.format)
    dense = [way(f, mode=mode) for mode in ("forward", "reverse")] if case.dense else []
    return planned, dense, x


def peers(case: Case):
    """The better of forward and reverse in jax.jit and torch.func, or None."""
    if not case.dense:
        return None, None
    jx, tx = jnp.asarray(case.x), torch.asarray(case.x)
    in_jax = [jax.jit(way(lambda x: case.f(jnp, x))) for way in (jax.jacfwd, jax.jacrev)]
    in_torch = [way(lambda x: case.f(torch, x)) for way in (torch.func.jacfwd, torch.func.jacrev)]
    return (
        min(best(lambda j=j: j(jx).block_until_ready()) for j in in_jax),
        min(best(lambda j=j: j(tx)) for j in in_torch),
    )


def check(case: Case, found) -> None:
    """The planned matrix times a vector, against JAX's forward sweep."""
    f = lambda x: case.f(jnp, x)  # noqa: E731
    f = jax.grad(f) if case.hessian else f
    v = RNG.normal(size=case.x.size)
    want = np.asarray(jax.jvp(f, (jnp.asarray(case.x),), (jnp.asarray(v),))[1])
    got = (found if case.format == "csr" else found.numpy()) @ v
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * np.abs(want).max())


def main() -> None:
    chosen = sys.argv[1:]
    print(
        f"{'case':<28}{'plan':>9}{'sweeps':>8}{'planned':>12}{'dense':>12}{'ratio':>8}"
        f"{'jax.jit':>12}{'torch.func':>12}   goal"
    )
    for case in CASES:
        if chosen and not any(c in case.name for c in chosen):
            continue
        planned, dense, x = weft_ways(case)
        check(case, planned(x))
        plan = planned.plan(x, measure=False)
        ours = best(lambda: planned(x))  # noqa: B023
        slow = min((best(lambda d=d: d(x)) for d in dense), default=None)  # noqa: B023
        in_jax, in_torch = peers(case)
        count = plan.chosen.forward + plan.chosen.reverse
        print(
            f"{case.name:<28}{plan.chosen.kind:>9}{count:>8}{shown(ours):>12}{shown(slow):>12}"
            f"{'–' if slow is None else f'{ours / slow:.3f}':>8}{shown(in_jax):>12}"
            f"{shown(in_torch):>12}   {case.goal}",
            flush=True,
        )


def shown(seconds) -> str:
    return "–" if seconds is None else f"{seconds * 1e6:,.0f} µs"


if __name__ == "__main__":
    main()
