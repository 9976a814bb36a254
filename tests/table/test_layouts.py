"""No row's values or derivatives depend on how arguments, tangents and cotangents lie in memory."""

import os

import numpy as np
import pytest

import weft as wf
from weft.core.value import wrap

from .layouts import Laid, Plain, difference, outcome
from .probe import BACKEND_NAMES, Probe, raw, to_numpy
from .rows import EXEMPT, cases, load

TABLE = load()
NAMES = sorted(set(TABLE) - set(EXEMPT))
ROUNDS = 30 if os.environ.get("WEFT_SOAK") else 3
# Sums in another order, and what the worst conditioned cases make of it.
CLOSE = 1e-9
# Rows of matrices, which with equal rows or columns are singular, or whose eigenvalues are equal:
# then digits are noise.
MATRICES = set("""
    cholesky coupling det divided eig eigh eigvals eigvalsh inv lstsq matrix_rank pinv qr slogdet
    solve svd svdvals triangular_solve
""".split())  # fmt: skip


def computed(probe: Probe, vary) -> list[np.ndarray]:
    """Results, a pull-back and a push-forward; vary(array) gives an array in some layout."""

    def given(x: np.ndarray, keep: bool = False):
        return wrap(raw(vary(x, keep), probe.backend))

    steady = probe.op.name in MATRICES
    args = [given(a, steady) if isinstance(a, np.ndarray) else a for a in probe.case.args]
    wf.random.seed(0)
    found = list(probe.bare(args))
    if probe.op.rule is not None and probe.moving and probe.case.smooth:
        found += derivatives(probe, args, given)
    return [to_numpy(t._data) for t in found]


def derivatives(probe: Probe, args: list, given) -> list:
    """One pull-back and one push-forward."""

    def f(*moving):
        own = list(args)
        for i, t in zip(probe.moving, moving, strict=True):
            own[i] = t
        wf.random.seed(0)
        return tuple(probe.differentiable(probe.call(own)))

    primals = tuple([args[i] for i in probe.moving])
    y, pull = wf.vjp(f, *primals)
    rng = np.random.default_rng(5)
    seeds, tangents = (tuple([given(numbers(rng, t)) for t in ts]) for ts in (y, primals))
    return [*pull(seeds), *wf.jvp(f, primals, tangents)[1]] if y else []


def numbers(rng, like) -> np.ndarray:
    x = np.asarray(rng.standard_normal(like.shape))
    x = x + 1j * rng.standard_normal(x.shape) if like.dtype.kind == "c" else x
    return x.astype(like.dtype)


@pytest.mark.parametrize("backend", BACKEND_NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_layouts_do_not_matter(name, backend):
    op = TABLE[name]
    for draw in range(ROUNDS):
        for k, case in enumerate(cases(op, draw)):
            probe = Probe(op, case, backend)
            laid = Laid([draw, k], draw % 3 == 1, backend == "numpy")
            with np.errstate(all="ignore"):
                got = outcome(computed, probe, laid)
                want = outcome(computed, probe, Plain(laid))
            where = f"{case.label}, draw {draw}, {laid.strides()}"
            assert not difference(got, want, CLOSE), f"{difference(got, want, CLOSE)} ({where})"
            assert laid.unchanged(), f"an argument was changed ({where})"
