"""Solve Burgers' equation with a network that knows the equation: second derivatives in the loss.

    u_t + u·u_x = ν·u_xx    for −1 ≤ x ≤ 1, 0 ≤ t ≤ 1,   u(x, 0) = −sin πx,   u(±1, t) = 0

No solution is given to the network, only the equation. Its output is put together so that the
start and the ends are right whatever the weights are; the loss is the mean square of what is left
over when the network is put into the equation. The derivatives by x and t are forward mode, once
and twice; the derivative by the weights is reverse mode through them.

The wave steepens until viscosity holds it. Cole and Hopf's formula gives the exact solution to
compare with.

Run: python examples/pinn.py [picture.png] [--iterations 500] [--seed 0]
"""

import argparse

import numpy as np

import weft as wf
from weft import nn
from weft.nn import init

VISCOSITY = 0.02


class Wave(nn.Module):
    """u(x, t) = −sin πx + t(1 − x²)·network(x, t)."""

    def __init__(self, width):
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(2, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, 1),
        ).double()
        for matrix in (p for p in self.network.parameters() if p.ndim == 2):
            init.xavier_normal_(matrix)

    def forward(self, x, t):
        inside = self.network(wf.stack([x, t], axis=-1))[..., 0]
        return -wf.sin(np.pi * x) + t * (1 - x * x) * inside


def residual(u, x, t):
    """u_t + u·u_x − ν·u_xx at the points (x, t).

    Each value of u depends on its own point alone, so one sweep with a tangent of ones gives the
    derivatives at all points.
    """
    ones = wf.ones_like(x)

    def along_x(x):
        return wf.jvp(lambda x: u(x, t), (x,), (ones,))

    (value, u_x), (_, u_xx) = wf.jvp(along_x, (x,), (ones,))
    _, u_t = wf.jvp(lambda t: u(x, t), (t,), (ones,))
    return u_t + value * u_x - VISCOSITY * u_xx


def exact(x, t):
    """Cole and Hopf's solution: two heat integrals, by Gauss and Hermite's quadrature."""
    nodes, weights = np.polynomial.hermite.hermgauss(80)
    y = x[..., None] - np.sqrt(4 * VISCOSITY * t[..., None]) * nodes
    heat = weights * np.exp(-np.cos(np.pi * y) / (2 * np.pi * VISCOSITY))
    return -np.sum(heat * np.sin(np.pi * y), axis=-1) / np.sum(heat, axis=-1)


def grid():
    """The points where solutions are compared."""
    return np.meshgrid(np.linspace(-1.0, 1.0, 201), np.linspace(0.0, 1.0, 101))


def relative_error(u):
    """The distance from the exact solution, ‖u − exact‖ / ‖exact‖ on the grid."""
    x, t = grid()
    with wf.no_grad():
        found = u(wf.asarray(x), wf.asarray(t)).numpy()
    return np.linalg.norm(found - exact(x, t)) / np.linalg.norm(exact(x, t))


def train(iterations=500, points=2048, width=24, seed=0, report=print):
    """The trained network and its (iteration, loss, relative error) as training went on."""
    wf.random.seed(seed)
    u = Wave(width)
    x = wf.random.uniform(-1.0, 1.0, points, dtype="float64")
    t = wf.rand(points, dtype="float64")
    every = 50
    optimizer = wf.optim.LBFGS(
        u.parameters(), max_iter=every, history_size=50, line_search_fn="strong_wolfe"
    )

    def loss():
        return wf.mean(residual(u, x, t) ** 2)

    def closure():
        optimizer.zero_grad()
        found = loss()
        found.backward()
        return found

    history = [(0, loss().item(), relative_error(u))]
    for done in range(every, iterations + 1, every):
        optimizer.step(closure)
        history.append((done, loss().item(), relative_error(u)))
        report("iteration {:4d}  loss {:.2e}  error {:.2%}".format(*history[-1]))
    return u, history


def draw(path, u, history):
    """The wave, three moments of it beside the exact solution, and how the error fell."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    x, t = grid()
    with wf.no_grad():
        found = u(wf.asarray(x), wf.asarray(t)).numpy()
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    image = left.pcolormesh(t, x, found, cmap="RdBu_r", vmin=-1, vmax=1, rasterized=True)
    figure.colorbar(image, ax=left)
    left.set(xlabel="t", ylabel="x", title="u(x, t), as the network has it")
    for row, shade in ((10, 0.35), (40, 0.6), (90, 0.9)):
        colour = plt.cm.viridis(1 - shade)
        middle.plot(x[row], exact(x, t)[row], color="0.75", lw=5)
        middle.plot(x[row], found[row], color=colour, label=f"t = {t[row, 0]:.1f}")
    middle.set(xlabel="x", ylabel="u", title="beside the exact solution (grey)")
    middle.legend(frameon=False)
    steps, losses, errors = zip(*history, strict=True)
    right.semilogy(steps, losses, color="C0", label="loss")
    right.semilogy(steps, errors, color="C3", label="relative error")
    right.set(xlabel="iterations of L-BFGS", title="training")
    right.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(path="pinn.png", iterations=500, seed=0):
    u, history = train(iterations, seed=seed)
    print(f"relative error of the solution {history[-1][2]:.2%}")
    draw(path, u, history)
    print(f"drawn to {path}")
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", nargs="?", default="pinn.png")
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
