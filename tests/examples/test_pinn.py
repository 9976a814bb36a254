"""The network's wave beside the exact one, and the equation itself beside solutions of others."""

import numpy as np
from examples import pinn
from scipy.integrate import solve_ivp

import weft as wf

NU = pinn.VISCOSITY


def test_the_residual_of_a_travelling_wave_is_zero():
    """c − a·tanh(a(x − ct)/2ν) solves the equation for all a and c."""
    a, c = 0.4, 0.3
    x, t = wf.linspace(-1.0, 1.0, 41, dtype="float64"), wf.linspace(0.0, 1.0, 41, dtype="float64")
    wave = lambda x, t: c - a * wf.tanh(a * (x - c * t) / (2 * NU))  # noqa: E731
    largest = a * a * a / NU  # the size of the terms that cancel
    assert np.abs(pinn.residual(wave, x, t).numpy()).max() <= 1e-12 * largest
    assert np.abs(pinn.residual(lambda x, t: 1.1 * wave(x, t), x, t).numpy()).max() > 1e-2


def test_the_exact_solution_is_that_of_finite_differences():
    x = np.linspace(-1.0, 1.0, 801)
    h = x[1] - x[0]

    def slope(t, u):
        rate = np.zeros_like(u)
        flux = u * u / 2
        rate[1:-1] = (flux[:-2] - flux[2:]) / (2 * h) + NU * (u[:-2] - 2 * u[1:-1] + u[2:]) / h**2
        return rate

    start, banded = -np.sin(np.pi * x), {"lband": 1, "uband": 1}
    solved = solve_ivp(slope, (0, 1), start, "LSODA", [0.3, 1.0], rtol=1e-7, **banded)
    for found, t in zip(solved.y.T, solved.t, strict=True):
        np.testing.assert_allclose(found, pinn.exact(x, np.full_like(x, t)), atol=2e-3)


def test_start_and_ends_are_right_before_training():
    u = pinn.Wave(8)
    x = wf.linspace(-1.0, 1.0, 21, dtype="float64")
    np.testing.assert_allclose(
        u(x, wf.zeros_like(x)).detach().numpy(), -np.sin(np.pi * x.numpy()), atol=1e-15
    )
    for end in (-1.0, 1.0):
        np.testing.assert_allclose(u(wf.full_like(x, end), x).detach().numpy(), 0.0, atol=1e-15)


def test_the_wave_is_found(tmp_path, drawn, capsys):
    path = tmp_path / "pinn.png"
    history = pinn.main(str(path), iterations=300)
    standing = pinn.relative_error(lambda x, t: -wf.sin(np.pi * x))
    assert standing > 0.3  # a wave that stays as it was is no solution
    assert history[-1][2] <= 0.02
    assert history[-1][1] < 1e-2 * history[0][1]
    assert f"relative error of the solution {history[-1][2]:.2%}" in capsys.readouterr().out
    drawn(path)
