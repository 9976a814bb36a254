"""A value that is being differentiated never becomes a constant unnoticed.

Conversions × transformations: each gives the derivative that differences give, or raises an error
of Weft's that says what to do. Outside of transformations numbers of recorded tensors are allowed.
"""

import cmath
import copy
import math
import operator
import pickle
import statistics
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors

X = 0.7
# x times a constant made of x, where x is a 0-d tensor: its derivative by differences is not that
# of a constant.
CONVERSIONS = {
    "float": lambda x: float(x) * x,
    "int": lambda x: (int(x) + 1) * x + float(x * 0 + 1) * x * x,
    "complex": lambda x: abs(complex(x)) * x,
    "index": lambda x: operator.index(x) * x,
    "round": lambda x: round(x, 3) * x,
    "math.sin": lambda x: math.sin(x) * x,
    "math.floor": lambda x: (math.floor(x) + 1) * x * float(x),
    "math.hypot": lambda x: math.hypot(x, 1.0) * x,
    "math.fsum": lambda x: math.fsum([x, x]) * x,
    "cmath.exp": lambda x: abs(cmath.exp(x)) * x,
    "statistics": lambda x: statistics.fmean([x, x]) * x,
    "Fraction": lambda x: float(Fraction(x)) * x,
    "np.float64": lambda x: np.float64(x) * x,
    "np.float32": lambda x: np.float32(x) * x,
    "np.asarray": lambda x: np.asarray(x) * x,
    "np.array of a list": lambda x: np.array([x, x]).sum() * x,
    "np.zeros": lambda x: _filled(x) * x,
    "np.full": lambda x: np.full(2, x).sum() * x,
    "np.vectorize": lambda x: np.vectorize(lambda v: v * v)(x) * x,
    "np.from_dlpack": lambda x: np.from_dlpack(x) * x,
    "np.fromiter": lambda x: np.fromiter([x], float).sum() * x,
    "item": lambda x: x.item() * x,
    "tolist": lambda x: x.tolist() * x,
    "to_vec": lambda x: x.to_vec()[0] * x,
    "numpy": lambda x: x.numpy() * x,
    "to_scalar": lambda x: x.to_scalar() * x,
    "torch": lambda x: x.torch().item() * x,
    "torch.as_tensor": lambda x: torch.as_tensor(x).item() * x,
    "torch.tensor": lambda x: torch.tensor(x).item() * x,
    "deepcopy": lambda x: copy.deepcopy(x) * x,
    "copy": lambda x: copy.copy(x) * x,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)) * x,
    "wf.tensor": lambda x: wf.asarray([x, x]).sum() * x,
    "wf.full": lambda x: wf.full(2, x).sum() * x,
    "wf.arange": lambda x: wf.arange(0.0, x, 0.1).sum() * x,
    "wf.linspace": lambda x: wf.linspace(0.0, x, 3).sum() * x,
    "sum": lambda x: sum([x, x]) * x,
    "max": lambda x: max(x, x * x) * x,
    "divmod": lambda x: divmod(x, 0.2)[1] * x,
    "a branch": lambda x: x * x if x > 0.5 else x,
    "truth": lambda x: x * x if x else x,
    "memoryview": lambda x: np.asarray(memoryview(x)) * x,
    "an entry": lambda x: {"a": 1.0}["a"] * x * x,
}
if sys.version_info < (3, 12):
    del CONVERSIONS["memoryview"]


def _filled(x):
    a = np.zeros(1)
    a[0] = x
    return a.sum()


def at(x=X):
    return wf.tensor(x, dtype="float64")


def pushed(f, x):
    return wf.jvp(f, (x,), (wf.ones_like(x),))[1]


TRANSFORMATIONS = {
    "grad": lambda f: wf.grad(f)(at()),
    "value_and_grad": lambda f: wf.value_and_grad(f)(at())[1],
    "vjp": lambda f: wf.vjp(f, at())[1](wf.tensor(1.0, dtype="float64"))[0],
    "jvp": lambda f: pushed(f, at()),
    "jacobian": lambda f: wf.jacobian(f)(at()),
    "jacfwd": lambda f: wf.jacfwd(f)(at()),
    "jacrev": lambda f: wf.jacrev(f)(at()),
    "linearize": lambda f: wf.linearize(f, at())[1](at(1.0)),
    "vmap(grad)": lambda f: wf.vmap(wf.grad(f))(wf.stack([at(), at()]))[1],
    "grad of vmap": lambda f: wf.grad(lambda x: wf.vmap(f)(wf.stack([x, x])).sum())(at()) / 2,
    "jvp of vmap": lambda f: pushed(lambda x: wf.vmap(f)(wf.stack([x, x])).sum(), at()) / 2,
    "vmap(jvp)": lambda f: wf.vmap(lambda x: pushed(f, x))(wf.stack([at(), at()]))[1],
    "checkpoint": lambda f: wf.grad(lambda x: wf.checkpoint(f, x))(at()),
    "scan": lambda f: wf.grad(lambda x: wf.scan(lambda c, _: (f(c), c), x, None, length=1)[0])(
        at()
    ),
    "compiled": lambda f: wf.compile(wf.grad(f))(at()),
    "DualTensor": lambda f: f(wf.DualTensor(at(), at(1.0))).tangent,
    "ForwardADContext": lambda f: _in_context(f),
}


def _in_context(f):
    with wf.ForwardADContext():
        return f(wf.DualTensor(at(), at(1.0))).tangent


def slope(f) -> float:
    h = 1e-4
    return (8 * (f(X + h) - f(X - h)) - (f(X + 2 * h) - f(X - 2 * h))) / (12 * h)


# What Python's own protocols say of a type that lacks them: an error, but not one of Weft's.
UNKNOWN = {"round", "divmod", "Fraction"}


@pytest.mark.parametrize("name", CONVERSIONS)
@pytest.mark.parametrize("mode", TRANSFORMATIONS)
def test_right_or_refused(mode, name):
    f = CONVERSIONS[name]
    try:
        got = TRANSFORMATIONS[mode](f)
    except Exception as e:
        named = e
        while named is not None and not isinstance(named, errors.WeftError):
            named = named.__cause__ or named.__context__
        assert named is not None or (name in UNKNOWN and isinstance(e, TypeError)), repr(e)
        return
    want = slope(lambda v: f(at(v)).item())
    assert got.item() == pytest.approx(want, rel=1e-8), name


@pytest.mark.parametrize(
    "name", ["float", "int", "complex", "math.sin", "item", "tolist", "np.float64"]
)
def test_numbers_of_recorded_tensors_are_allowed_outside(name):
    x = wf.tensor(X, dtype="float64", requires_grad=True)
    assert CONVERSIONS[name](x).requires_grad
    with wf.GradientTape() as tape:
        y = CONVERSIONS[name](tape.watch(at()))
    assert y.requires_grad


def test_a_detached_value_is_a_constant_in_every_mode():
    for use in (float, lambda v: v.item(), lambda v: v.numpy(), lambda v: math.exp(v) * 0 + X):
        for mode, run in TRANSFORMATIONS.items():
            if "vmap" in mode or mode == "compiled":
                continue  # where there is no value to make a number of
            slope = run(lambda x, use=use: use(x.detach()) * x)
            assert slope.item() == pytest.approx(X), mode


def test_integers_and_branches_are_no_derivatives():
    def f(x):
        k = int(wf.argmax(x))
        return x[k] ** 2 + (x[0] if bool((x > 0).all()) else 0.0) + float((x > 0).sum())

    x = wf.tensor([1.0, 3.0], dtype="float64")
    for g in (wf.grad(f)(x), wf.jacobian(f)(x), wf.jacfwd(f)(x)):
        assert g.tolist() == [1.0, 6.0]


def test_looking_at_a_value_is_allowed(capsys):
    def f(x):
        print(x, f"{x}", repr(x), f"{x:.3f}")
        return x * x

    for mode in ("grad", "jvp", "jacobian", "DualTensor", "scan"):
        assert TRANSFORMATIONS[mode](f).item() == pytest.approx(2 * X)
    assert capsys.readouterr().out.count("0.700") >= 5


def test_the_message_says_what_to_do():
    with pytest.raises(errors.InterchangeError, match=r"float\(\).*wf\.sin\(x\).*x\.detach\(\)"):
        wf.grad(lambda x: math.sin(x) * x)(at())
