"""Learn the law of motion of two populations from noisy counts: a neural differential equation.

Hares and foxes obey Lotka and Volterra's equations, which the program does not know. It is given
their numbers at 60 times, with 3 % noise, and fits a network f so that d(log y)/dt = f(log y)
explains them. Fitting the whole time series at once gets stuck (a wrong period makes every later
count wrong), so each step starts at all counts and follows the flow for the next five: one
differential equation of many columns, solved by `wf.odeint` and differentiated through the solver's
steps ("discrete") or by the adjoint equation ("adjoint").

Then the network is left alone: from the first count it predicts the time it has seen and as much
again that it has not.

Run: python examples/neural_ode.py [picture.png] [--steps 600] [--gradient discrete] [--seed 0]
"""

import argparse
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

import weft as wf
from weft import nn
from weft.optim import Adam, CosineScheduler

TIMES = np.linspace(0.0, 24.0, 121)  # the first half is seen
SEEN = 60
WINDOW = 6  # counts that a solution goes through


def lotka_volterra(t, y):
    """Hares are born and eaten, foxes eat and die."""
    hares, foxes = y
    return [hares * (1.0 - foxes), foxes * (hares - 1.0)]


def true_counts():
    """The populations at all times."""
    tight: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}
    return solve_ivp(lotka_volterra, (0.0, TIMES[-1]), [0.4, 0.9], "DOP853", TIMES, **tight).y.T


class Flow(nn.Module):
    """The slope of log y, as a network of log y."""

    def __init__(self, width=32):
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )

    def forward(self, log_y, t):
        return self.network(log_y)


def windows_loss(flow, logs, gradient):
    """How far the flow from each count misses the next ones: the mean square over all windows."""
    starts = len(logs) - WINDOW + 1
    ts = (TIMES[:WINDOW] - TIMES[0]).tolist()
    found = wf.odeint(flow, logs[:starts], ts, rtol=1e-4, atol=1e-5, gradient=gradient)
    seen = wf.stack([logs[k : k + starts] for k in range(WINDOW)])
    return wf.mean((found - seen)[1:] ** 2)


def train(flow, logs, steps, gradient="discrete", report=print):
    """Fit the flow to the logarithms of the counts."""
    optimizer = Adam(flow.parameters(), lr=1e-2)
    schedule = CosineScheduler(1e-2, 1e-4, steps // 20, steps)
    for step in range(steps):
        optimizer.zero_grad()
        loss = windows_loss(flow, logs, gradient)
        loss.backward()
        optimizer.set_lr(schedule.get_lr(step))
        optimizer.step()
        if step % max(steps // 6, 1) == 0 or step == steps - 1:
            report(f"step {step:4d}  loss {loss.item():.6f}")


def predict(flow, start):
    """The counts that the flow gives at all times, from the first on."""
    with wf.no_grad():
        return wf.exp(wf.odeint(flow, wf.log(start), TIMES.tolist(), rtol=1e-5)).numpy()


def observed(seed):
    """The counts that are seen: the true ones with 3 % noise."""
    noise = np.random.default_rng(seed).standard_normal((SEEN, 2))
    return true_counts()[:SEEN] * np.exp(0.03 * noise)


def relative_error(found, truth):
    """‖found − truth‖ / ‖truth − its mean‖: 1 is what the mean alone would have."""
    return np.linalg.norm(found - truth) / np.linalg.norm(truth - truth.mean(axis=0))


def draw(path, counts, before, after):
    """The populations in time and against each other, before training and after."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    truth = true_counts()
    figure, axes = plt.subplots(2, 2, figsize=(11, 6), width_ratios=[2.2, 1], layout="constrained")
    for (wide, square), found, when in zip(axes, (before, after), ("before", "after"), strict=True):
        wide.axvspan(TIMES[SEEN - 1], TIMES[-1], color="0.94")
        for k, (name, colour) in enumerate((("hares", "C0"), ("foxes", "C3"))):
            wide.plot(TIMES, truth[:, k], color="0.75", lw=4)
            wide.plot(TIMES[:SEEN], counts[:, k], ".", color=colour, ms=4)
            wide.plot(TIMES, found[:, k], color=colour, label=name)
        wide.set(ylim=(0, 1.2 * truth.max()), ylabel="count", title=f"{when} training")
        square.plot(*truth.T, color="0.75", lw=4)
        square.plot(*found.T, color="C2")
        square.set(xlabel="hares", ylabel="foxes", xlim=(0, 2.9), ylim=(0, 2.9))
    axes[0, 0].legend(frameon=False, ncols=2, loc="upper left")
    axes[1, 0].set(xlabel="time (shaded: not seen in training; grey: the truth)")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(path="neural_ode.png", steps=600, gradient="discrete", seed=0):
    counts = observed(seed)
    start = wf.asarray(counts[0], dtype="float32")
    logs = wf.asarray(np.log(counts), dtype="float32")
    wf.random.seed(seed)
    flow = Flow()
    before = predict(flow, start)
    train(flow, logs, steps, gradient)
    after = predict(flow, start)
    truth = true_counts()
    errors = {}
    for name, part in (("seen", slice(0, SEEN)), ("not seen", slice(SEEN, None))):
        errors[name] = relative_error(after[part], truth[part])
        was = relative_error(before[part], truth[part])
        print(f"error over the time {name}: {errors[name]:.1%} (before training {was:.0%})")
    draw(path, counts, before, after)
    print(f"drawn to {path}")
    return errors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", nargs="?", default="neural_ode.png")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--gradient", choices=["discrete", "adjoint"], default="discrete")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
