"""The comparison with torch finds planted errors, and calls no rounding one."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from .agreement import disagreements
from .database import SampleInput, samples
from .trial import Trial

OPS = "mul tanh cumprod matmul fft.rfft logcumsumexp linalg.inv linalg.eigh linalg.svd".split()


def trial_of(name: str, dtype: str = "float64") -> Trial:
    """An op's first sample that has numbers in it."""
    trials = (Trial(name, s) for s in samples(name, dtype))
    return next(t for t in trials if all(r.size for _, r in t.expected.named()))


def changed(outcome, values=lambda v: v, gradients=lambda g: g):
    return replace(
        outcome,
        values=[values(v) for v in outcome.values],
        gradients=[gradients(g) for g in outcome.gradients],
    )


@pytest.mark.parametrize("name", OPS)
def test_torch_agrees_with_itself_a_rounding_away(name):
    trial = trial_of(name)

    def last_digit(r):
        return r * (1 + 4 * np.finfo(r.dtype).eps)

    assert disagreements(trial, changed(trial.expected, last_digit, last_digit)) == []


@pytest.mark.parametrize("error", [1e-6, -2.0], ids=["sixth digit", "sign"])
@pytest.mark.parametrize("name", OPS)
def test_an_error_is_found(name, error):
    trial = trial_of(name)

    def wrong(r):
        return r * (1 + error)

    assert disagreements(trial, changed(trial.expected, values=wrong))
    assert disagreements(trial, changed(trial.expected, gradients=wrong))


@pytest.mark.parametrize("name", ["mul", "matmul", "linalg.inv"])
def test_a_well_conditioned_result_is_judged_to_twelve_digits(name):
    trial = trial_of(name)
    assert disagreements(trial, changed(trial.expected, gradients=lambda g: g * (1 + 1e-11)))


def test_one_wrong_element_is_found():
    trial = trial_of("cumprod")
    spoiled = [g.copy() for g in trial.expected.gradients]
    spoiled[0].flat[-1] += 1e-9 * np.abs(spoiled[0]).max()
    (found,) = disagreements(trial, replace(trial.expected, gradients=spoiled))
    assert found.startswith("gradient 0: 1 of ")


def test_a_missing_conjugate_is_found():
    trial = trial_of("mul", "complex128")
    assert disagreements(trial, changed(trial.expected, gradients=np.conj))


def test_a_tie_given_to_another_element_is_found():
    """The result jumps with the input there, and that is neither condition nor noise."""
    x = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64, requires_grad=True)
    trial = Trial("max/reduction_with_dim", SampleInput(x, args=(0,)))
    assert disagreements(trial, trial.expected) == []
    assert disagreements(trial, changed(trial.expected, gradients=lambda g: g[[1, 0, 2]]))


@pytest.mark.parametrize("strange", [np.nan, np.inf])
def test_a_number_is_not_a_strange_one(strange):
    trial = trial_of("mul")
    assert disagreements(trial, changed(trial.expected, values=lambda v: v * strange))


def test_shapes_and_dtypes_are_compared():
    trial = trial_of("mul")
    (found,) = disagreements(trial, changed(trial.expected, values=lambda v: v[None]))
    assert "shape" in found
    found, *_ = disagreements(trial, changed(trial.expected, gradients=np.float32))
    assert "dtype" in found
