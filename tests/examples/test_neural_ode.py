"""The learned flow predicts what it has not seen, and both gradients of it are the same."""

import numpy as np
import pytest
from examples import neural_ode

import weft as wf


def test_prediction_of_what_was_seen_and_what_was_not(tmp_path, drawn, capsys):
    path = tmp_path / "flow.png"
    errors = neural_ode.main(str(path), steps=200)
    truth = neural_ode.true_counts()
    mean = neural_ode.relative_error(truth.mean(axis=0), truth)
    assert mean == pytest.approx(1.0)
    assert errors["seen"] < 0.1 and errors["not seen"] < 0.3
    assert f"not seen: {errors['not seen']:.1%}" in capsys.readouterr().out
    drawn(path)


def test_the_true_counts_conserve_what_the_equations_conserve():
    hares, foxes = neural_ode.true_counts().T
    conserved = hares - np.log(hares) + foxes - np.log(foxes)
    np.testing.assert_allclose(conserved, conserved[0], rtol=1e-8)


def test_the_true_flow_explains_the_counts():
    """With Lotka and Volterra's own slope what is left of the loss is the noise of two counts."""

    def true_flow(log_y, t):
        y = wf.exp(log_y)
        return wf.stack([1.0 - y[..., 1], y[..., 0] - 1.0], axis=-1)

    exact = wf.asarray(np.log(neural_ode.true_counts()[: neural_ode.SEEN]))
    assert neural_ode.windows_loss(true_flow, exact, "discrete").item() < 1e-8
    noisy = wf.asarray(np.log(neural_ode.observed(0)))
    left = neural_ode.windows_loss(true_flow, noisy, "discrete").item()
    assert left == pytest.approx(2 * 0.03**2, rel=0.3)


def test_adjoint_and_discrete_gradients_agree():
    wf.random.seed(0)
    flow = neural_ode.Flow(8).double()
    logs = wf.asarray(np.log(neural_ode.observed(0)))
    found = {}
    for gradient in ("discrete", "adjoint"):
        flow.zero_grad()
        neural_ode.windows_loss(flow, logs, gradient).backward()
        found[gradient] = np.concatenate([p.grad.numpy().ravel() for p in flow.parameters()])
    scale = np.abs(found["discrete"]).max()
    # Both solve to a relative tolerance of 1e-4.
    np.testing.assert_allclose(found["adjoint"], found["discrete"], rtol=0, atol=1e-3 * scale)
