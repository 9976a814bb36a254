"""Correct uses of the public names: type checkers pass them, and they run (`test_stubs.py`)."""

from typing import Any, assert_type

import numpy as np

import weft as wf
from weft import nn
from weft.linalg import solve
from weft.train import DataLoader, TensorDataset, Trainer

x = wf.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
assert_type(x.sum(), wf.Tensor)
assert_type(x.sum(0, True), wf.Tensor)
assert_type(x[0], wf.Tensor)
assert_type(x[:, None, ...], wf.Tensor)
assert_type(x.T.reshape(-1), wf.Tensor)
assert_type(x.shape, tuple[int, ...])
assert_type(wf.sin(x), wf.Tensor)
assert_type(wf.max(x, axis=(0, 1), keepdims=True), wf.Tensor)
assert_type(wf.where(x > 0, x, 0.0), wf.Tensor)
assert_type(wf.concat([x, x], axis=0), wf.Tensor)
assert_type(wf.zeros((2, 3), dtype=wf.float64, device="cpu"), wf.Tensor)
assert_type(wf.arange(4, dtype="int64"), wf.Tensor)
assert_type(wf.allclose(x, x), bool)
assert_type(wf.topk(x, 1).values, wf.Tensor)

# Operators both ways
assert_type(x + 1, wf.Tensor)
assert_type(1 - x, wf.Tensor)
assert_type(2.0 ** (x / 8), wf.Tensor)
assert_type(x @ x, wf.Tensor)
assert_type(x * np.ones(2), wf.Tensor)
assert_type(np.ones(2) * x, wf.Tensor)
assert_type(x == 1.0, wf.Tensor)
assert_type(-x, wf.Tensor)
y = x.detach().clone()
y += 1.0
y[0] = 2.0
assert_type(y.at[0].set(1.0), wf.Tensor)

# Derivatives
grads = (x * x).sum().backward()
assert_type(grads, wf.GradientMap)
assert_type(grads[x], wf.Tensor)
assert_type(x.grad, wf.Tensor | Any)


def energy(a: wf.Tensor, b: wf.Tensor) -> wf.Tensor:
    return (a * b**2).sum()


wf.grad(energy, argnums=(0, 1))(y, y)
wf.grad(energy)(y, b=y)
value, gradient = wf.value_and_grad(energy, argnums=1)(y, y)
assert_type(wf.vmap(energy)(y, y), wf.Tensor)
assert_type(wf.checkpoint(energy)(y, y), wf.Tensor)
assert_type(wf.checkpoint(energy, y, y), wf.Tensor)
wf.jacobian(energy, argnums=(0, 1))(y, y)
wf.jacobian(energy).plan(y, y)
with wf.no_grad():
    energy(y, y)


@wf.no_grad()
def quiet(a: wf.Tensor) -> wf.Tensor:
    return a * 2


assert_type(quiet(y), wf.Tensor)


@wf.compile
def step(a: wf.Tensor, scale: float = 1.0) -> wf.Tensor:
    return (a * scale).sum()


assert_type(step(y, scale=2.0), wf.Tensor)
step.explain()
assert_type(step.recompilations, list[str])
print(step.kernels, step.graph)


@wf.compile(static_argnames="n")
def power(a: wf.Tensor, n: int) -> wf.Tensor:
    return a**n


assert_type(power(y, 2), wf.Tensor)


@wf.custom_op
def cube(a: wf.Tensor) -> np.ndarray:
    return a.numpy() ** 3


@cube.def_vjp
def _(g, inputs):
    return 3 * inputs[0] ** 2 * g


cube(y)

# Modules, optimizers, training
assert_type(wf.linalg.solve(wf.eye(2), y), wf.Tensor)
assert_type(solve(wf.eye(2), y), wf.Tensor)
assert_type(wf.fft.rfft(y, axis=0), wf.Tensor)
assert_type(wf.special.gammaln(y), wf.Tensor)
assert_type(wf.random.normal(0.0, 1.0, (2, 3)), wf.Tensor)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, a: wf.Tensor) -> wf.Tensor:
        return nn.functional.relu(self.layer(a))


model = Net()
assert_type(wf.compile(model), Net)
optimizer = wf.optim.AdamW(model.parameters(), lr=1e-2)
optimizer.zero_grad()
model(y).sum().backward()
optimizer.step()
loader = DataLoader(TensorDataset(y, wf.ones((2, 1))), batch_size=2)
trainer = Trainer(model, optimizer, nn.MSELoss(), clip_norm=1.0, progress=False)
trainer.fit(loader, epochs=1)
