"""The problems in PyTorch: eager, torch.compile, and in float64 for reference."""

import os

import numpy as np
import torch

from . import networks
from .sides import Makers, Side

torch.set_num_threads(os.cpu_count() or 1)
F = torch.nn.functional


def _tensor(a, dtype):
    return torch.tensor(a, dtype=dtype if np.asarray(a).dtype.kind == "f" else None)


def _numpy(found) -> list[np.ndarray]:
    found = found if isinstance(found, tuple | list) else [found]
    return [t.detach().double().numpy() for t in found]


def _gradient(loss, dtype, compiled: bool, *arrays, with_value: bool = False) -> Side:
    leaves = [_tensor(a, dtype).requires_grad_() for a in arrays]
    loss = torch.compile(loss) if compiled else loss

    def call():
        value = loss(*leaves)
        grads = torch.autograd.grad(value, leaves)
        return (value, *grads) if with_value else grads

    return Side(call, _numpy)


def _dispatch(data, dtype, compiled):
    return _gradient(lambda x: (x * torch.tanh(x)).sum(), dtype, compiled, data["x"])


def _chain(data, dtype, compiled):
    def loss(z):
        for _ in range(4):
            z = torch.tanh(z) * torch.exp(-z * z) + torch.log(1 + z * z)
        return z.sum()

    return _gradient(loss, dtype, compiled, data["x"])


def _norm(data, dtype, compiled):
    labels = torch.tensor(data["labels"])

    def loss(x, w, b):
        return F.cross_entropy(F.layer_norm(x, (x.shape[1],), w, b), labels)

    return _gradient(loss, dtype, compiled, data["x"], data["w"], data["b"], with_value=True)


def _training(logits, params: dict, data, dtype, compiled: bool) -> Side:
    x, labels = _tensor(data["x"], dtype), torch.tensor(data["labels"])
    optimizer = torch.optim.AdamW(list(params.values()), lr=1e-3, fused=True)

    def loss():
        return F.cross_entropy(logits(x), labels)

    loss = torch.compile(loss) if compiled else loss
    change = torch.compile(optimizer.step) if compiled else optimizer.step

    def call():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        change()
        return value.item()

    return Side(call, lambda v: [np.array(v)], lambda: _numpy(list(params.values())))


def _functional(network):
    def make(data, dtype, compiled):
        params = {k: _tensor(v, dtype).requires_grad_() for k, v in data["params"].items()}
        return _training(lambda x: network(F, params, x), params, data, dtype, compiled)

    return make


def _gpt(data, dtype, compiled):
    model = networks.gpt(torch).to(dtype)
    model.load_state_dict({k: torch.tensor(v) for k, v in data["params"].items()})
    params = dict(model.named_parameters())
    ordered = {k: params[k] for k in data["params"]}
    return _training(model, ordered, data, dtype, compiled)


def _scan(data, dtype, compiled):
    xs = _tensor(data["xs"], dtype)

    def loss(c, a, b):
        for x in xs:
            c = c + 0.1 * (torch.tanh(a * c + b * x) - c)
        return (c * c).sum()

    return _gradient(loss, dtype, compiled, data["start"], data["a"], data["b"])


def _arm(data, dtype, compiled):
    lengths, twists = _tensor(data["lengths"], dtype), _tensor(data["twists"], dtype)
    zero, one = torch.zeros((), dtype=dtype), torch.ones((), dtype=dtype)

    def pose(q):
        """The first three rows of the product of the joints' transforms."""
        t = torch.eye(4, dtype=dtype)
        for i in range(len(q)):
            c, s = torch.cos(q[i]), torch.sin(q[i])
            ca, sa, r = torch.cos(twists[i]), torch.sin(twists[i]), lengths[i]
            rows = [c, -s * ca, s * sa, r * c, s, c * ca, -c * sa, r * s]
            step = torch.stack([*rows, zero, sa, ca, r, zero, zero, zero, one])
            t = t @ step.reshape(4, 4)
        return t[:3].reshape(-1)

    jacobian, q = torch.func.jacfwd(pose), _tensor(data["q"], dtype)
    return Side(lambda: jacobian(q), _numpy)


def _bottleneck(data, dtype, compiled):
    inner, outer = _tensor(data["inner"], dtype), _tensor(data["outer"], dtype)
    jacobian = torch.func.jacrev(lambda x: torch.tanh(outer @ torch.sin(inner @ x)))
    x = _tensor(data["x"], dtype)
    return Side(lambda: jacobian(x), _numpy)


def _adamw(data, dtype, compiled, **how):
    p = _tensor(data["p"], dtype).requires_grad_()
    p.grad = _tensor(data["g"], dtype)
    step = torch.optim.AdamW([p], lr=1e-3, **(how or {"fused": True})).step
    return Side(lambda: step(), lambda _: [], lambda: _numpy(p))


def _foreach(data, dtype, compiled):
    return _adamw(data, dtype, compiled, foreach=True)


def _logistic(data, dtype, compiled):
    x, y = _tensor(data["X"], dtype), _tensor(data["y"], dtype)

    def loss(w):
        z = x @ w
        return (F.softplus(z) - y * z).mean()

    hessian, w = torch.func.hessian(loss), _tensor(data["w"], dtype)
    return Side(lambda: hessian(w), _numpy)


MAKERS: Makers = {
    "dispatch": _dispatch,
    "chain": _chain,
    "norm": _norm,
    "mlp-small": _functional(networks.perceptron),
    "mlp-middle": _functional(networks.perceptron),
    "gpt": _gpt,
    "scan": _scan,
    "arm": _arm,
    "bottleneck": _bottleneck,
    "adamw": _adamw,
    "cnn": _functional(networks.cnn),
    "logistic": _logistic,
}
COMPILED = ("dispatch", "chain", "norm", "mlp-small", "mlp-middle", "gpt", "cnn")


def side(name: str, contender: str, data) -> Side:
    """One of PyTorch's ways."""
    if contender == "reference":
        return MAKERS[name](data, torch.float64, False)
    dtype = torch.float64 if name in ("scan", "arm", "bottleneck", "logistic") else torch.float32
    make = _foreach if contender == "torch foreach" else MAKERS[name]
    return make(data, dtype, contender == "torch.compile")
