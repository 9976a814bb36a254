"""Correct uses of the public names: type checkers pass them, and they run (`test_stubs.py`)."""

import tempfile
from collections.abc import Callable
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
assert_type(wf.sum(x), wf.Tensor)
assert_type(wf.asarray(np.ones(3)), wf.Tensor)
assert_type(x.max(), wf.Tensor)
assert_type(x.max(axis=0, keepdims=True), wf.Tensor)
assert_type(x.dtype, np.dtype[Any])
assert_type(x.device, str)
assert_type(len(x), int)
assert_type(float(x.sum()), float)
assert_type(x.to("float64").to("cpu"), wf.Tensor)
assert_type(wf.quantile(x, 0.5, axis=1), wf.Tensor)
assert_type(wf.split(x, 2), tuple[wf.Tensor, ...])
assert_type(wf.pad(x, 1, mode="edge"), wf.Tensor)
assert_type(wf.result_type(x, wf.float64), np.dtype[Any])
u, s, vh = wf.linalg.svd(x)
assert_type(s, wf.Tensor)
assert_type(wf.linalg.svd(x).U, wf.Tensor)
assert_type(wf.linalg.norm(x, "fro"), wf.Tensor)
assert_type(wf.linalg.qr(x, mode="complete").R, wf.Tensor)

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
y[y > 3.0] = 0.0
assert_type(x[x > 1.0], wf.Tensor)
assert_type(x[[0, 1], wf.tensor([0, 1])], wf.Tensor)
assert_type(y.copy_(x.detach()), wf.Tensor)
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
def _(g: wf.Tensor, inputs: tuple[wf.Tensor, ...]) -> wf.Tensor:
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


layer = nn.Linear(2, 3, bias=False, dtype="float64", device="cpu")
assert_type(layer.weight, wf.Parameter)
assert_type(layer.bias, wf.Parameter | None)
assert_type(nn.Linear(2, 3)(y), wf.Tensor)
assert_type(nn.Linear(2, 3)(input=[[1.0, 2.0]]), wf.Tensor)
assert_type(nn.Sequential(nn.Linear(2, 3), nn.ReLU())(y), wf.Tensor)
assert_type(nn.Sequential(nn.Linear(2, 3), nn.ReLU())[0], nn.Module)
assert_type(nn.LSTM(2, 3)(wf.ones((4, 1, 2))), tuple[wf.Tensor, tuple[wf.Tensor, wf.Tensor]])
assert_type(nn.CrossEntropyLoss(reduction="sum")(wf.zeros((1, 4)), [2]), wf.Tensor)
assert_type(nn.functional.mse_loss(y, y, reduction="none"), wf.Tensor)
assert_type(nn.init.zeros_(layer.weight), wf.Parameter)
attended, weights = nn.MultiheadAttention(2, 1)(y, y, y)
assert_type(weights, wf.Tensor | None)
assert_type(list(layer.named_parameters()), list[tuple[str, wf.Parameter]])
assert_type(layer.state_dict(), dict[str, wf.Tensor])
assert_type(layer.to("float32").eval(), nn.Linear)
assert_type(dict(nn.Sequential(layer).named_modules()), dict[str, nn.Module])
# A module is a function with the arguments and the result of its `forward`.
called: Callable[[wf.Tensor], wf.Tensor] = layer
assert_type(wf.vmap(layer)(y), wf.Tensor)
model = Net()
assert_type(model(y), wf.Tensor)
assert_type(wf.compile(model)(y), wf.Tensor)
assert_type(wf.compile(model), Net)
assert_type(wf.compile(model, capture=False), Net)
assert_type(wf.compile(energy, capture=False)(y, y), wf.Tensor)
assert_type(wf.compile(capture=False)(energy)(y, y), wf.Tensor)
optimizer = wf.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.99))
assert_type(optimizer.config, wf.optim.AdamWConfig)
optimizer.zero_grad()
model(y).sum().backward()
assert_type(wf.optim.clip_grad_norm(model, 1.0), float)
assert_type(optimizer.step(), None)


def closure() -> wf.Tensor:
    optimizer.zero_grad()
    loss = model(y).sum()
    loss.backward()
    return loss


assert_type(optimizer.step(closure), wf.Tensor)
assert_type(wf.optim.LBFGS(model.parameters()).step(closure), wf.Tensor)
scaler = wf.amp.GradScaler(init_scale=2.0)
assert_type(scaler.scale(model(y).sum()), wf.Tensor)
wf.optim.SGD([{"params": model.parameters(), "lr": 0.1}], momentum=0.9)
wf.optim.Adam(model.named_parameters(), wf.optim.AdamConfig(lr=1e-3))


class Log(wf.train.Callback):
    def on_step_end(self, trainer: Trainer, row: dict[str, float]) -> None:
        trainer.step + len(row)


data = TensorDataset(y, wf.ones((2, 1)))
assert_type(data[0], tuple[wf.Tensor, ...])
loader = DataLoader(data, batch_size=2)
trainer = Trainer(
    model,
    optimizer,
    nn.MSELoss(),
    schedule=wf.optim.CosineScheduler(1e-2, total_steps=10),
    clip_norm=1.0,
    callbacks=[Log()],
    progress=False,
)
history = trainer.fit(loader, epochs=1)
assert_type(history, wf.train.History)
assert_type(history["loss"], list[float])
assert_type(wf.train.random_split(data, [0.5, 0.5])[0], wf.train.Subset)

# Files
with tempfile.TemporaryDirectory() as run:
    wf.save_checkpoint(run, wf.Checkpoint(model.state_dict(), step=1))
    assert_type(wf.load_checkpoint(run), wf.Checkpoint)
    wf.io.save_safetensors(f"{run}/w.safetensors", model.state_dict())
    assert_type(wf.io.load_safetensors(f"{run}/w.safetensors"), dict[str, wf.Tensor])
    wf.save_optimizer(f"{run}/adamw", optimizer)
    assert_type(wf.load_optimizer(f"{run}/adamw", optimizer), wf.optim.AdamW)

# What NumPy and PyTorch users write
nn.Identity(54, bias=False)(wf.ones(2)).tolist()
dual = wf.ForwardADContext().dual(wf.tensor(2.0), wf.tensor(1.0))
(dual * dual).tangent.item()
config = wf.AmpConfig(loss_scaler=wf.amp.Dynamic(init_scale=1024.0))
config.loss_scaler.growth_factor.hex()
for norm in (nn.BatchNorm1d(2), nn.GroupNorm(1, 2), nn.RMSNorm(2), nn.LayerNorm(2)):
    norm.weight.tolist()
frozen = wf.Parameter([1.0])
frozen.requires_grad = False
sorted([*wf.train.random_split(range(4), [0.5, 0.5])[0]])
