"""Parameters and gradients that make no sense: errors that name the line, and nothing changes."""

import numpy as np
import pytest

import weft as wf
from weft import errors


def matrix(seed=0, shape=(3, 2)):
    return wf.Parameter(np.random.default_rng(seed).standard_normal(shape))


def gradient_of(p):
    return wf.tensor(np.random.default_rng(5).standard_normal(p.shape))


MISTAKES = {
    "nothing": (errors.ArgumentError, lambda p: wf.optim.SGD([])),
    "a tensor": (errors.ArgumentError, lambda p: wf.optim.SGD(p)),
    "a number": (errors.DTypeError, lambda p: wf.optim.SGD([1.0])),
    "twice": (errors.ArgumentError, lambda p: wf.optim.SGD([p, p])),
    "in two groups": (
        errors.ArgumentError,
        lambda p: wf.optim.SGD([{"params": [p]}, {"params": [p]}]),
    ),
    "no leaf": (errors.ArgumentError, lambda p: wf.optim.SGD([p * 2])),
    "integers": (errors.DTypeError, lambda p: wf.optim.SGD([wf.tensor([1, 2])])),
    "unbound": (errors.ArgumentError, lambda p: wf.optim.SGD().step()),
    "unbound map": (errors.ArgumentError, lambda p: wf.optim.SGD().step(wf.GradientMap())),
    "too few": (errors.ArgumentError, lambda p: wf.optim.SGD([p]).step([])),
    "too many": (errors.ArgumentError, lambda p: wf.optim.SGD([p]).step([gradient_of(p)] * 2)),
    "an array": (errors.DTypeError, lambda p: wf.optim.SGD([p]).step(gradient_of(p))),
    "shape": (errors.ShapeError, lambda p: wf.optim.SGD([p]).step([wf.ones(2)])),
    "device": (
        errors.DeviceError,
        lambda p: wf.optim.SGD([p]).step([gradient_of(p).to("torch")]),
    ),
    "complex": (
        errors.DTypeError,
        lambda p: wf.optim.SGD([p]).step([wf.ones((3, 2), dtype="complex128")]),
    ),
    "stranger": (
        errors.ArgumentError,
        lambda p: wf.optim.SGD([matrix(3)]).step([(p.id, p, gradient_of(p))]),
    ),
    "one parameter, two gradients": (
        errors.ArgumentError,
        lambda p: wf.optim.SGD([p]).apply_gradients([(p, gradient_of(p)), (p, gradient_of(p))]),
    ),
    "four": (errors.ArgumentError, lambda p: wf.optim.SGD([p]).step([(1, 2, p, gradient_of(p))])),
    "unknown name": (errors.ArgumentError, lambda p: wf.optim.SGD([p]).step({"w": gradient_of(p)})),
    "dual": (
        errors.InPlaceOnTracked,
        lambda p: wf.optim.SGD([p]).step([wf.DualTensor(gradient_of(p), gradient_of(p))]),
    ),
    "a vector for Muon": (errors.ShapeError, lambda p: wf.optim.Muon([matrix(0, (3,))])),
    "complex for LAMB": (
        errors.DTypeError,
        lambda p: wf.optim.LAMB([wf.Parameter(wf.ones(2, dtype="complex64"))]),
    ),
    "LBFGS without a function": (errors.ArgumentError, lambda p: wf.optim.LBFGS([p]).step()),
    "LBFGS in groups": (
        errors.ArgumentError,
        lambda p: wf.optim.LBFGS([{"params": [p]}, {"params": [matrix(1)]}]),
    ),
    "LBFGS by one gradient": (
        errors.ArgumentError,
        lambda p: wf.optim.LBFGS([p]).compute_update(gradient_of(p)),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_name_the_line_and_change_nothing(name):
    error, call = MISTAKES[name]
    p = matrix()
    before = p.tolist()
    with pytest.raises(error, match=r"\(at test_mistakes.py:\d+\)"):
        call(p)
    assert p.tolist() == before and p.requires_grad
